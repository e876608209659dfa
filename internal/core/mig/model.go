package mig

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// maxPlacements is the maximum number of placements of a GPU model. A set of placements therefore fits into one machine
// word. The largest GPU model in models.txt is the RTX PRO 6000 with 30 placements, including those of all variants.
const maxPlacements = 64

// Placement is a profile at a start. It occupies Size units of the GPU model's grid, beginning with unit Start.
type Placement struct {
	Profile     int // the index in the GPU model's Profiles
	Start, Size int // units
}

// Model is the MIG geometry of a GPU model. It is safe for concurrent use, because its fields never change.
type Model struct {
	Name     string // e.g. A100-40GB
	Type     string // the Type in gres.conf, e.g. a100
	Device   string // the name in NVML, e.g. NVIDIA A100-SXM4-40GB
	PCI      string // PCI device id, e.g. 0x20B010DE; empty if unknown
	Reset    bool   // switching the MIG mode requires a reset of the GPU (Ampere, but not later generations)
	Grid     int    // number of units
	Profiles []Profile
	// Fractions is the number of units into which the memory of a GPU without MIG is divided, or 0.
	Fractions int

	// Placements lists every profile at every start, ordered by profile and then by start.
	Placements []Placement

	total     budget   // the resources of the whole GPU
	need      []budget // by profile
	units     []uint64 // by placement
	conflicts []Layout // for each placement, the overlapping placements, including itself
	ofProfile []Layout // by profile
	full      Layout   // the placement of the Full profile
	cell      int      // characters per unit in a drawing, so that every name fits between the bars

	futures func() futures
	table   func() *Table
	tables  *sync.Map // blocked units -> func() *Table
}

// Compute returns the number of compute slices of the GPU. If the number is unknown because no profile occupies the
// whole GPU, Compute returns math.MaxInt. A GPU without MIG has as many as units.
func (b *Model) Compute() int {
	if b.Fractions > 0 || b.WithoutMIG() {
		return b.Grid
	}
	return b.total[0]
}

// NewModel returns a GPU model with the given profiles. grid is the number of units, at most 64. The profile that
// occupies the whole grid determines the GPU's compute slices and media engines. Without such a profile, layouts are
// restricted only by units and instance limits. If a profile is invalid, the error contains its name.
func NewModel(name, typ, device string, grid int, profiles []Profile) (*Model, error) {
	return newModel(Model{Name: name, Type: typ, Device: device, Grid: grid, total: totals(grid, profiles)}, profiles)
}

// newModel completes a GPU model whose totals are known. Select calls it with the original model's totals.
func newModel(b Model, profiles []Profile) (*Model, error) {
	if b.Grid < 1 || b.Grid > 64 {
		return nil, fmt.Errorf("GPU model %s: the grid has %d units, but must have 1 to 64", b.Name, b.Grid)
	}
	seen := map[string]bool{}
	for _, p := range profiles {
		if err := p.check(b.Grid); err != nil {
			return nil, fmt.Errorf("GPU model %s: %w", b.Name, err)
		}
		if seen[p.Name] {
			return nil, fmt.Errorf("GPU model %s: profile %s occurs twice", b.Name, p.Name)
		}
		seen[p.Name] = true

		p.Starts = slices.Sorted(slices.Values(p.Starts))
		var of Layout
		for _, start := range p.Starts {
			of = of.With(len(b.Placements))
			b.Placements = append(b.Placements, Placement{Profile: len(b.Profiles), Start: start, Size: p.Size})
			b.units = append(b.units, span(start, p.Size))
		}
		b.Profiles = append(b.Profiles, p)
		b.ofProfile = append(b.ofProfile, of)
		if p.Name == Full {
			b.full = of
		}
		if IsFraction(p.Name) { // fractions share the compute slices and media engines of the whole GPU
			b.Fractions, b.total = b.Grid, totals(b.Grid, nil)
		}
		b.need = append(b.need, needs(p))
		b.cell = max(b.cell, len(p.Name)/p.Size)
	}
	if n := len(b.Placements); n > maxPlacements {
		return nil, fmt.Errorf(
			"GPU model %s has %d placements, but at most %d are supported; select fewer profiles",
			b.Name,
			n,
			maxPlacements,
		)
	}
	b.cell = max(b.cell, 1)
	for _, u := range b.units {
		b.conflicts = append(b.conflicts, b.touching(u))
	}
	b.futures = sync.OnceValue(b.enumerate)
	b.tables = new(sync.Map)
	b.table = sync.OnceValue(func() *Table { return newTable(&b, 0) })
	return &b, nil
}

// Select returns a copy of the GPU model with only those profiles for which keep returns true. The copy retains the
// total compute slices and media engines of the GPU. The copy numbers its profiles and placements independently;
// [Model.Carry] converts layouts between the two models.
func (b *Model) Select(keep func(Profile) bool) *Model {
	var kept []Profile
	for _, p := range b.Profiles {
		if keep(p) {
			kept = append(kept, p)
		}
	}
	s, err := newModel(Model{Name: b.Name, Type: b.Type, Device: b.Device, PCI: b.PCI, Reset: b.Reset, Grid: b.Grid,
		Fractions: b.Fractions, total: b.total}, kept)
	if err != nil {
		panic("mig: a selection from a valid GPU model is invalid: " + err.Error())
	}
	return s
}

// Carry converts a layout of another GPU model to a layout of b. If a placement does not exist in b, its units are
// returned as blocked units.
func (b *Model) Carry(from *Model, l Layout) (carried Layout, blocked uint64) {
	for i := range l.Indices() {
		pl := from.Placements[i]
		if j, ok := b.Placement(from.Profiles[pl.Profile].Name, pl.Start); ok && b.Placements[j].Size == pl.Size {
			carried = carried.With(j)
		} else {
			blocked |= from.units[i]
		}
	}
	return carried, blocked
}

// ProfileIndex returns the index of the profile with the given name. Policies call it for every placement, so it does
// not use slices.IndexFunc, which would copy each profile.
func (b *Model) ProfileIndex(name string) (int, bool) {
	for i := range b.Profiles {
		if b.Profiles[i].Name == name {
			return i, true
		}
	}
	return -1, false
}

// EquivalentProfile returns the smallest profile of b that is at least as large as the named profile, which may belong
// to another GPU model. If b itself has a profile with this name, the result is that profile. Otherwise, it is the
// smallest plain profile whose name states at least as many compute slices and at least as much memory. Variants of
// other GPU models have no equivalent profile, and neither have fractions. A GPU without MIG replaces any part of a GPU
// with a whole one: Full is equivalent to each plain profile of a GPU with MIG, even to one whose name states more
// memory than the GPU has ([Model.Holds]). The result is restricted to profiles that have at least one of the given
// placements. The second result is false if b has no equivalent profile.
func (b *Model) EquivalentProfile(name string, of Layout) (string, bool) {
	if p, ok := b.ProfileIndex(name); ok && b.ofProfile[p]&of != 0 {
		return name, true
	}
	compute, gb := Claims(name)
	if compute == 0 || !Plain(Profile{Name: name}) {
		return "", false
	}
	if b.WithoutMIG() {
		if of&b.full == 0 {
			return "", false
		}
		return Full, true
	}
	best := -1
	for k := range b.Profiles {
		p := &b.Profiles[k]
		if c, m := Claims(p.Name); !Plain(*p) || b.ofProfile[k]&of == 0 || c < compute || m < gb {
			continue
		}
		if best < 0 ||
			cmp.Or(cmp.Compare(p.Size, b.Profiles[best].Size), cmp.Compare(p.Compute, b.Profiles[best].Compute)) < 0 {
			best = k
		}
	}
	if best < 0 {
		return "", false
	}
	return b.Profiles[best].Name, true
}

// Placement returns the index in Placements of the given profile at the given start.
func (b *Model) Placement(profile string, start int) (int, bool) {
	p, ok := b.ProfileIndex(profile)
	if !ok {
		return -1, false
	}
	i := slices.IndexFunc(b.Placements, func(pl Placement) bool { return pl.Profile == p && pl.Start == start })
	return i, i >= 0
}

// OfProfile returns the placements of profile p, an index into Profiles.
func (b *Model) OfProfile(p int) Layout { return b.ofProfile[p] }

// ProfileOf returns the name of the profile of placement i.
func (b *Model) ProfileOf(i int) string { return b.Profiles[b.Placements[i].Profile].Name }

// Label returns the usual name of placement i, for example 3g.20gb@4.
func (b *Model) Label(i int) string {
	pl := b.Placements[i]
	return fmt.Sprintf("%s@%d", b.Profiles[pl.Profile].Name, pl.Start)
}
