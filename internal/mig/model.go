package mig

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// MaxPlacements is how many placements a GPU model can have, so that a set of them is one machine word. The largest GPU
// model of the tables, the RTX PRO 6000 with every variant, has 30.
const MaxPlacements = 64

// Placement is a profile at a start: it takes the units [Start, Start+Size) of the GPU model's grid.
type Placement struct {
	Profile     int // index in the GPU model's Profiles
	Start, Size int // units
}

// Model is a GPU model as MIG sees it. It is immutable, and safe for concurrent use: change none of its fields.
type Model struct {
	Name     string // A100-40GB
	Type     string // of the model in gres.conf: a100
	Device   string // what NVML calls it: NVIDIA A100-SXM4-40GB
	PCI      string // PCI device id, 0x20B010DE; empty: unknown
	Reset    bool   // changing MIG mode takes a reset of the GPU (Ampere); later GPU models change live
	Grid     int    // units
	Profiles []Profile

	// Placements holds every profile at every start, in the order of Profiles, then by start.
	Placements []Placement

	total     budget   // what the whole GPU has
	need      []budget // by profile
	units     []uint64 // by placement
	conflicts []Layout // by placement: those that overlap it, itself included
	ofProfile []Layout // by profile
	cell      int      // characters per unit in a drawing: with the bars covered, enough for every name

	futures func() futures
	table   func() *Table
	tables  *sync.Map // blocked units -> func() *Table
}

// Compute is how many compute slices the GPU has; math.MaxInt if no profile takes all of it, and nobody knows.
func (b *Model) Compute() int { return b.total[0] }

// NewModel makes a GPU model of these profiles. Grid is in units, at most 64. The profile that takes the whole grid
// says how many compute slices and media engines there are to share out; without such a profile only units and instance
// limits bind. The error names the profile that cannot be.
func NewModel(name, typ, device string, grid int, profiles []Profile) (*Model, error) {
	return newModel(Model{Name: name, Type: typ, Device: device, Grid: grid, total: totals(grid, profiles)}, profiles)
}

// newBoard completes a GPU model whose totals are known: a selection keeps those of the GPU model it was selected from.
func newModel(b Model, profiles []Profile) (*Model, error) {
	if b.Grid < 1 || b.Grid > 64 {
		return nil, fmt.Errorf("board %s: a grid of %d units; want 1 to 64", b.Name, b.Grid)
	}
	seen := map[string]bool{}
	for _, p := range profiles {
		if err := p.check(b.Grid); err != nil {
			return nil, fmt.Errorf("board %s: %w", b.Name, err)
		}
		if seen[p.Name] {
			return nil, fmt.Errorf("board %s: profile %s twice", b.Name, p.Name)
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
		b.need = append(b.need, needs(p))
		b.cell = max(b.cell, len(p.Name)/p.Size)
	}
	if n := len(b.Placements); n > MaxPlacements {
		return nil, fmt.Errorf(
			"board %s: %d placements; at most %d fit: select fewer profiles",
			b.Name,
			n,
			MaxPlacements,
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

// Select returns the GPU model with only the profiles to keep. It is still the same GPU: compute slices and media
// engines to share out are the whole GPU model's. Indices of profiles and placements are the selection's own; use
// [Model.Carry] to take a layout along.
func (b *Model) Select(keep func(Profile) bool) *Model {
	var kept []Profile
	for _, p := range b.Profiles {
		if keep(p) {
			kept = append(kept, p)
		}
	}
	s, err := newModel(Model{Name: b.Name, Type: b.Type, Device: b.Device, PCI: b.PCI, Reset: b.Reset, Grid: b.Grid,
		total: b.total}, kept)
	if err != nil {
		panic("mig: a selection from a valid board is valid: " + err.Error())
	}
	return s
}

// Carry translates a layout of GPU model from into one of b. Placements that b does not have come back as the units
// they take, to be passed on as blocked.
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

// ProfileIndex finds a profile by name. It is asked at every placement: slices.IndexFunc would copy each profile.
func (b *Model) ProfileIndex(name string) (int, bool) {
	for i := range b.Profiles {
		if b.Profiles[i].Name == name {
			return i, true
		}
	}
	return -1, false
}

// EquivalentProfile is the GPU model's profile for who asks for one by name that may be another GPU model's: that
// profile if it is among them, else the smallest plain one whose name promises as many compute slices and as much
// memory; a variant has no such equal. Only profiles of which a placement is in of count. False: there is none.
func (b *Model) EquivalentProfile(name string, of Layout) (string, bool) {
	if p, ok := b.ProfileIndex(name); ok && b.ofProfile[p]&of != 0 {
		return name, true
	}
	compute, gb := Claims(name)
	if compute == 0 || !Plain(Profile{Name: name}) {
		return "", false
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

// Placement finds the index in Placements of a profile at a start.
func (b *Model) Placement(profile string, start int) (int, bool) {
	p, ok := b.ProfileIndex(profile)
	if !ok {
		return -1, false
	}
	i := slices.IndexFunc(b.Placements, func(pl Placement) bool { return pl.Profile == p && pl.Start == start })
	return i, i >= 0
}

// OfProfile is the set of placements of profile p (an index in Profiles).
func (b *Model) OfProfile(p int) Layout { return b.ofProfile[p] }

// ProfileOf is the name of the profile of placement i.
func (b *Model) ProfileOf(i int) string { return b.Profiles[b.Placements[i].Profile].Name }

// Label names placement i as people write it: 3g.20gb@4.
func (b *Model) Label(i int) string {
	pl := b.Placements[i]
	return fmt.Sprintf("%s@%d", b.Profiles[pl.Profile].Name, pl.Start)
}
