package place

import (
	"cmp"
	"encoding/binary"
	"slices"

	"caelum/internal/core/mig"
)

// Pack returns one spot for each of the given profiles, in the given order. All instances fit on the GPUs at the same
// time, in addition to the busy instances and blocked units. Idle instances do not block a spot, and idle instances
// with the requested profile are tried first. The search is exact: Pack returns false only if the instances do not fit.
// The input may include GPUs whose Model is nil, and profiles that no GPU has.
//
// The search places the largest profiles first, so the number of placed instances determines which profiles remain. The
// state of the search is therefore determined by the layouts of the GPUs, and equal GPUs are interchangeable. The
// search recognizes a state that has failed before, even if equal instances or equal GPUs were used in a different
// order. A state fails immediately if the remaining instances need more compute slices or units than all GPUs together
// can still provide. The amount that a GPU can still provide is the maximum over all layouts. For example, an A100 with
// two 3g.20gb instances cannot provide another compute slice, even though one is unused.
func Pack(gpus []GPU, profiles []string) ([]Spot, bool) {
	p := packing{
		gpus: gpus, at: make([]Spot, len(profiles)), failed: map[string]bool{}, gives: map[*mig.LayoutInfo]amount{},
	}
	for _, g := range gpus {
		var n *mig.LayoutInfo
		if g.Model != nil {
			n = g.Model.TableBeside(g.Blocked).Info(g.Busy)
		}
		p.now = append(p.now, n)
	}
	for k, name := range profiles {
		p.items = append(p.items, item{k, name, p.least(name)})
	}
	slices.SortStableFunc(p.items, func(a, b item) int {
		return cmp.Or(cmp.Compare(b.units, a.units), cmp.Compare(a.profile, b.profile))
	})
	if !p.place(0) {
		return nil, false
	}
	return p.at, true
}

type packing struct {
	gpus   []GPU
	items  []item
	now    []*mig.LayoutInfo // for each GPU, the placed and the busy instances; nil for a GPU whose Model is nil
	at     []Spot            // in the order of the given profiles
	failed map[string]bool
	gives  map[*mig.LayoutInfo]amount
}

// amount is a number of compute slices and a number of units.
type amount struct{ compute, units int }

type item struct {
	order   int
	profile string
	amount  // the smallest amount that an instance needs on any of the GPU models
}

func (p *packing) least(profile string) amount {
	least := amount{-1, -1}
	for _, g := range p.gpus {
		if g.Model == nil {
			continue
		}
		if i, ok := g.Model.ProfileIndex(profile); ok {
			pr := g.Model.Profiles[i]
			if least.units < 0 {
				least = amount{pr.Compute, pr.Size}
			}
			least = amount{min(least.compute, pr.Compute), min(least.units, pr.Size)}
		}
	}
	return least
}

// place places the k-th item and all items after it.
func (p *packing) place(k int) bool {
	if k == len(p.items) {
		return true
	}
	state := p.state(k)
	if p.failed[state] || !p.enough(k) {
		return false
	}
	it := p.items[k]
	for _, reuse := range []bool{true, false} {
		for g, n := range p.now {
			if n == nil {
				continue
			}
			pr, ok := p.gpus[g].Model.ProfileIndex(it.profile)
			if !ok {
				continue
			}
			open := n.Open & p.gpus[g].Model.OfProfile(pr) &^ p.gpus[g].Idle
			if reuse {
				open = n.Open & p.gpus[g].Model.OfProfile(pr) & p.gpus[g].Idle
			}
			for i := range open.Indices() {
				p.now[g], p.at[it.order] = n.With(i), Spot{g, i}
				if p.place(k + 1) {
					return true
				}
			}
			p.now[g] = n
		}
	}
	p.failed[state] = true
	return false
}

// enough returns false if the remaining items cannot fit. The items with the k-th item's profile must fit if the other
// items are left out, and the GPUs must have enough compute slices and units for all of the items.
func (p *packing) enough(k int) bool {
	like, room := 0, 0
	var need, have amount
	for _, it := range p.items[k:] {
		if it.profile == p.items[k].profile {
			like++
		}
		need.compute += it.compute
		need.units += it.units
	}
	for g, n := range p.now {
		if n == nil {
			continue
		}
		if pr, ok := p.gpus[g].Model.ProfileIndex(p.items[k].profile); ok {
			room += n.Placeable(pr)
		}
		gives := p.give(p.gpus[g].Model, n)
		have.compute += gives.compute
		have.units += gives.units
	}
	return room >= like && have.compute >= need.compute && have.units >= need.units
}

// give returns the maximum number of compute slices and units that a GPU can still provide for the requested profiles.
func (p *packing) give(b *mig.Model, n *mig.LayoutInfo) amount {
	most, known := p.gives[n]
	if !known {
		for i := range n.Open.Indices() {
			pr := b.Profiles[b.Placements[i].Profile]
			if !slices.ContainsFunc(p.items, func(it item) bool { return it.profile == pr.Name }) {
				continue
			}
			then := p.give(b, n.With(i))
			most = amount{max(most.compute, pr.Compute+then.compute), max(most.units, pr.Size+then.units)}
		}
		p.gives[n] = most
	}
	return most
}

// state returns a key for the layouts of the GPUs before the k-th item is placed. In the key, equal GPUs are
// interchangeable. A combination of GPU model and blocked units is identified by the index of the first GPU with this
// combination.
func (p *packing) state(k int) string {
	kinds := make([][2]uint64, 0, len(p.now))
	for g, n := range p.now {
		if n == nil {
			continue
		}
		first := slices.IndexFunc(p.now, func(o *mig.LayoutInfo) bool { return o != nil && o.Table() == n.Table() })
		kinds = append(kinds, [2]uint64{uint64(first), uint64(p.now[g].Layout)})
	}
	slices.SortFunc(kinds, func(a, b [2]uint64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	key := binary.AppendUvarint(nil, uint64(k))
	for _, kind := range kinds {
		key = binary.AppendUvarint(binary.AppendUvarint(key, kind[0]), kind[1])
	}
	return string(key)
}
