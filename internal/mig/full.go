package mig

import "math"

// Full is the name of the profile of a GPU whose MIG mode is off. The driver does not report this profile. The profile
// occupies all units, so that a GPU holds either one job with the profile Full or slices.
const Full = "full"

// WithFull returns a copy of the GPU model that also has the profile Full. memoryMiB is the memory of the GPU in MiB.
func (b *Model) WithFull(memoryMiB uint64) *Model {
	known := func(n int) int {
		if n == math.MaxInt {
			return -1
		}
		return n
	}
	full := Profile{
		Name: Full, ID: -1, Compute: b.total[0], Size: b.Grid, Max: 1, Starts: []int{0}, MemoryMiB: memoryMiB, SM: -1,
		CE: -1, DEC: known(b.total[1]), ENC: known(b.total[2]), JPEG: known(b.total[3]), OFA: known(b.total[4]),
	}
	if known(full.Compute) < 0 {
		full.Compute = b.Grid // no model has more compute slices than units
	}
	s, err := newModel(Model{Name: b.Name, Type: b.Type, Device: b.Device, PCI: b.PCI, Reset: b.Reset, Grid: b.Grid,
		total: b.total}, append(append([]Profile(nil), b.Profiles...), full))
	if err != nil {
		panic("mig: a valid GPU model is not valid with the profile " + Full + ": " + err.Error())
	}
	return s
}

// Full returns the placement of the profile Full, or 0 if the model does not have the profile.
func (b *Model) Full() Layout { return b.full }
