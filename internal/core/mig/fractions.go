package mig

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MinFractions and MaxFractions limit the number of units into which the memory of a GPU without MIG can be divided.
// The number of layouts more than doubles with each unit: 8 units have 677 layouts, 12 have 17,577 and 16 have 458,330,
// whose Table would take 100 MB.
const (
	MinFractions = 2
	MaxFractions = 12
)

// driverMiB is the memory of a GPU, in MiB, that no fraction gets, because the driver needs it.
const driverMiB = 512

// Fractions returns the model, without the Full profile, of a GPU without MIG whose memory is divided into k equal
// units. device is its name in NVML, and memoryMiB is its memory in MiB. A fraction is an instance of 1, 2, 4, ...
// units, up to half of the GPU. The driver limits its memory. Its Compute is that of the whole GPU, because jobs on the
// same GPU share the compute slices. Fractions returns an error if a unit has less than 1 GiB.
func Fractions(device string, memoryMiB uint64, k int) (*Model, error) {
	if k < MinFractions || k > MaxFractions {
		return nil, fmt.Errorf("the memory of %s cannot have %d units; use %d to %d",
			device, k, MinFractions, MaxFractions)
	}
	unit := (max(memoryMiB, driverMiB) - driverMiB) / uint64(k)
	if unit < 1024 {
		return nil, fmt.Errorf("each of %d units of %s has %d MiB of memory, but needs 1024; use fewer units",
			k, device, unit)
	}
	var profiles []Profile
	for n := 1; 2*n <= k; n *= 2 {
		p := Profile{
			ID: -1, Compute: k, Size: n, Max: k / n, MemoryMiB: uint64(n) * unit,
			SM: -1, CE: -1, DEC: -1, ENC: -1, JPEG: -1, OFA: -1,
		}
		p.Name = fmt.Sprintf("%df.%dgb", n, p.MemoryMiB/1024)
		for start := 0; start+n <= k; start += n {
			p.Starts = append(p.Starts, start)
		}
		profiles = append(profiles, p)
	}
	return NewModel(device, GRESType(device), device, k, profiles)
}

var fraction = regexp.MustCompile(`^[1-9][0-9]*f\.[1-9][0-9]*gb$`)

// FractionGB returns the memory, in whole GiB and rounded down, in the name of a fraction, or 0 for any other name.
func FractionGB(profile string) (gb int) {
	if IsFraction(profile) {
		_, size, _ := strings.Cut(profile, ".")
		gb, _ = strconv.Atoi(strings.TrimSuffix(size, "gb"))
	}
	return gb
}

// IsFraction reports whether a profile's name is that of a fraction, for example 1f.11gb.
func IsFraction(profile string) bool { return fraction.MatchString(profile) }

// Units returns the number of units in the name of a fraction, or 0 for any other profile.
func Units(profile string) int {
	if !IsFraction(profile) {
		return 0
	}
	n, _, _ := strings.Cut(profile, "f")
	units, _ := strconv.Atoi(n)
	return units
}

// Offers reports whether a site that names the profiles to offer (the profiles configuration key) can offer the given
// plain profile. A list without fractions does not restrict fractions, and a list of only fractions does not restrict
// the profiles of MIG.
func Offers(named []string, profile string) bool {
	alike := func(name string) bool { return IsFraction(name) == IsFraction(profile) }
	return slices.Contains(named, profile) || !slices.ContainsFunc(named, alike)
}
