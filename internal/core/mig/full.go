package mig

import (
	"fmt"
	"math"
	"strconv"
)

// Full is the profile name for a GPU whose MIG mode is off. The driver does not report this profile. It occupies all
// units, so a GPU holds either one job with the Full profile or slices.
const Full = "full"

// WithFull returns a copy of the GPU model with the Full profile added. memoryMiB is the GPU's memory in MiB.
func (b *Model) WithFull(memoryMiB uint64) *Model {
	known := func(n int) int {
		if n == math.MaxInt {
			return -1
		}
		return n
	}
	full := Profile{
		Name: Full, ID: -1, Compute: b.Compute(), Size: b.Grid, Max: 1, Starts: []int{0}, MemoryMiB: memoryMiB, SM: -1,
		CE: -1, DEC: known(b.total[1]), ENC: known(b.total[2]), JPEG: known(b.total[3]), OFA: known(b.total[4]),
	}
	if known(full.Compute) < 0 {
		full.Compute = b.Grid // no model has more compute slices than units
	}
	s, err := newModel(Model{Name: b.Name, Type: b.Type, Device: b.Device, PCI: b.PCI, Reset: b.Reset, Grid: b.Grid,
		Fractions: b.Fractions, total: b.total}, append(append([]Profile(nil), b.Profiles...), full))
	if err != nil {
		panic("mig: a valid GPU model is no longer valid with the added profile " + Full + ": " + err.Error())
	}
	return s
}

// Without returns the model, without profiles, of a GPU that does not support MIG. device is its name in NVML.
func Without(device string) *Model {
	b, err := NewModel(device, GRESType(device), device, 1, nil)
	if err != nil {
		panic("mig: a GPU model without profiles is invalid: " + err.Error())
	}
	return b
}

// WithoutMIG reports whether b is the model of a GPU that does not support MIG and has the Full profile.
func (b *Model) WithoutMIG() bool { return b.full != 0 && (b.Grid == 1 || b.Fractions > 0) }

// Holds reports whether the memory of a GPU without MIG is at least that in a profile's name.
func (b *Model) Holds(profile string) bool {
	_, gb := Claims(profile)
	return 1024*gb <= float64(b.Profiles[len(b.Profiles)-1].MemoryMiB) // Full is the last profile
}

// Full returns the placement of the Full profile, or 0 if the model does not have this profile.
func (b *Model) Full() Layout { return b.full }

// FullGPUs determines which GPUs of a node can have the Full profile (the whole_gpus configuration key).
type FullGPUs struct {
	// Switch allows the agent to switch the MIG mode of GPUs that do not require a reset to do so. Reset allows the
	// agent to switch the MIG mode of all GPUs.
	Switch, Reset bool
	// Fixed is the number of GPUs, starting with GPU 0, that support only the Full profile. The agent does not switch
	// the MIG mode of any other GPU.
	Fixed int
}

// ParseFullGPUs parses never, auto (GPUs that do not require a reset), reset (all GPUs), or a number of GPUs.
func ParseFullGPUs(text string) (w FullGPUs, err error) {
	switch text {
	case "never":
	case "auto":
		w.Switch = true
	case "reset":
		w.Switch, w.Reset = true, true
	default:
		if w.Fixed, err = strconv.Atoi(text); err != nil || w.Fixed < 0 {
			return FullGPUs{}, fmt.Errorf("%q is not never, auto, reset or a number of GPUs", text)
		}
	}
	return w, nil
}

// Allows reports whether a GPU can have the Full profile. reset is true if the driver must reset the GPU to switch its
// MIG mode.
func (w FullGPUs) Allows(gpu int, reset bool) bool {
	return gpu < w.Fixed || w.Reset || w.Switch && !reset
}
