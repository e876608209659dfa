package mig

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Profile is a kind of GPU instance, under NVIDIA's name for it (1g.5gb, 1g.5gb+me).
type Profile struct {
	Name      string
	ID        int    // the GPU instance profile id; not universal: 14 is 2g on an A100 and 1g on an A30
	Compute   int    // compute slices
	Size      int    // units of the GPU model's grid
	Max       int    // most instances at a time
	Starts    []int  // units where an instance may begin, ascending
	MemoryMiB uint64 // MiB, as an instance reports it; drifts with the driver; 0: unknown

	// Multiprocessors, copy engines and media engines of one instance; -1: unknown.
	SM, CE, DEC, ENC, JPEG, OFA int

	Gfx  bool   // can render (graphics APIs)
	Enum string // what follows NVML_GPU_INSTANCE_PROFILE_ in nvml.h; empty: unknown
}

// Plain tells the profiles that are on offer by default from their variants with other engines (+me, +me.all, -me) or
// with graphics (+gfx).
func Plain(p Profile) bool { return !strings.ContainsAny(p.Name, "+-") }

// Memory is how much memory an instance surely has, in MiB: MemoryMiB where that is known, else 88% of what the name
// says. Of the profiles whose memory is known those have the least for their name that are called 1g.18gb on an H200
// (88.9%).
func (p Profile) Memory() float64 {
	if p.MemoryMiB > 0 {
		return float64(p.MemoryMiB)
	}
	_, size, _ := strings.Cut(p.Name, ".")
	gb := 0.0
	fmt.Sscanf(size, "%fgb", &gb)
	return math.Floor(0.88 * 1024 * gb)
}

// Claims is what a profile's name says: 2g.10gb is two compute slices and 10 GB. Names are the same under every driver
// where sizes in MiB are not; both are 0 in a name that says nothing.
func Claims(name string) (compute int, gb float64) {
	if n, _ := fmt.Sscanf(name, "%dg.%fgb", &compute, &gb); n != 2 {
		return 0, 0
	}
	return compute, gb
}

func (p Profile) check(grid int) error {
	switch {
	case !validName(p.Name):
		return fmt.Errorf("profile name %q: want letters, digits and .+-_ after a letter or digit", p.Name)
	case p.Compute < 1:
		return fmt.Errorf("profile %s: %d compute slices", p.Name, p.Compute)
	case p.Size < 1 || p.Size > grid:
		return fmt.Errorf("profile %s: size %d on a grid of %d units", p.Name, p.Size, grid)
	case p.Max < 1:
		return fmt.Errorf("profile %s: at most %d instances", p.Name, p.Max)
	case len(p.Starts) == 0:
		return fmt.Errorf("profile %s: no start; leave it out of the board", p.Name)
	}
	for i, s := range p.Starts {
		if s < 0 || s+p.Size > grid {
			return fmt.Errorf("profile %s: size %d at start %d leaves a grid of %d units", p.Name, p.Size, s, grid)
		}
		if slices.Contains(p.Starts[:i], s) {
			return fmt.Errorf("profile %s: start %d twice", p.Name, s)
		}
	}
	return nil
}

// validName keeps to the characters that a drawing, a GRES type and a file name can carry.
func validName(s string) bool {
	for i, c := range []byte(s) {
		alnum := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !alnum && (i == 0 || !strings.ContainsRune(".+-_", rune(c))) {
			return false
		}
	}
	return s != ""
}
