package mig

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Profile is a GPU instance profile, which determines the size of an instance. Name is NVIDIA's name, such as 1g.5gb or
// 1g.5gb+me.
type Profile struct {
	Name      string
	ID        int    // the GPU instance profile id; for example, 14 is 2g on an A100 and 1g on an A30
	Compute   int    // number of compute slices
	Size      int    // number of units in the GPU model's grid
	Max       int    // the maximum number of simultaneous instances
	Starts    []int  // the units at which an instance can begin, ascending
	MemoryMiB uint64 // the memory that an instance reports, in MiB; 0 if unknown

	// SM, CE, DEC, ENC, JPEG and OFA are the numbers of multiprocessors, copy engines and media engines of one
	// instance. Unknown numbers are -1.
	SM, CE, DEC, ENC, JPEG, OFA int

	Gfx  bool   // true if the profile supports graphics APIs
	Enum string // the name in nvml.h without NVML_GPU_INSTANCE_PROFILE_, or empty if unknown
}

// Plain reports whether agents offer a profile by default. They do not offer variants with other engines (+me, +me.all,
// -me) or with graphics (+gfx).
func Plain(p Profile) bool { return !strings.ContainsAny(p.Name, "+-") }

// Memory returns the minimum memory of an instance in MiB. This is MemoryMiB or, if that is unknown, 88% of the size in
// the profile's name. The percentage is a lower bound: among the profiles whose memory is known, 1g.18gb on an H200 has
// the smallest fraction of its nominal size (88.9%).
func (p Profile) Memory() float64 {
	if p.MemoryMiB > 0 {
		return float64(p.MemoryMiB)
	}
	_, size, _ := strings.Cut(p.Name, ".")
	gb := 0.0
	fmt.Sscanf(size, "%fgb", &gb)
	return math.Floor(0.88 * 1024 * gb)
}

// Claims returns the number of compute slices and the memory, in GB, that are stated in the name of a profile. For
// example, 2g.10gb has 2 compute slices and 10 GB. Unlike the sizes in MiB, the names do not depend on the driver
// version. Both results are 0 if the name does not contain these numbers.
func Claims(name string) (compute int, gb float64) {
	if n, _ := fmt.Sscanf(name, "%dg.%fgb", &compute, &gb); n != 2 {
		return 0, 0
	}
	return compute, gb
}

func (p Profile) check(grid int) error {
	switch {
	case !validName(p.Name):
		return fmt.Errorf("profile name %q: use letters, digits and .+-_, and begin with a letter or digit", p.Name)
	case p.Compute < 1:
		return fmt.Errorf("profile %s: the number of compute slices is %d, but must be at least 1", p.Name, p.Compute)
	case p.Size < 1 || p.Size > grid:
		return fmt.Errorf("profile %s: the size is %d units, but must be between 1 and %d", p.Name, p.Size, grid)
	case p.Max < 1:
		return fmt.Errorf("profile %s: the instance limit is %d, but must be at least 1", p.Name, p.Max)
	case len(p.Starts) == 0:
		return fmt.Errorf("profile %s has no start position; remove the profile from the GPU model", p.Name)
	}
	for i, s := range p.Starts {
		if s < 0 || s+p.Size > grid {
			const format = "profile %s of size %d does not fit at start %d on a grid of %d units"
			return fmt.Errorf(format, p.Name, p.Size, s, grid)
		}
		if slices.Contains(p.Starts[:i], s) {
			return fmt.Errorf("profile %s: start %d occurs twice", p.Name, s)
		}
	}
	return nil
}

// validName reports whether a name contains only characters that are allowed in drawings, GRES types and file names.
func validName(s string) bool {
	for i, c := range []byte(s) {
		alnum := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !alnum && (i == 0 || !strings.ContainsRune(".+-_", rune(c))) {
			return false
		}
	}
	return s != ""
}
