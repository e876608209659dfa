package state

import (
	"cmp"
	"maps"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
)

// Where a fraction starts, and which size it has, are only labels (gpu.Fractions.Relabel). The agent changes them to
// make room for a larger fraction. A pending lease keeps its spots: its prolog may already be creating instances there.

// Growth is the growth of a job's fraction to a larger profile. Until slurmctld no longer offers the units, the agent
// reserves them and moves no fractions. A job that starts takes precedence: if it finds no other spots, the growth
// ends.
type Growth struct {
	GPU      int
	Instance *Instance
	Profile  string // the larger one
	units    uint64 // the units that are free, and will be held after the growth
}

// Reserve reserves the units for a growth, and reports whether there is room. The caller must end the growth. Only one
// fraction of the node grows at a time.
func (n *Node) Reserve(growth *Growth) bool {
	n.Lock()
	defer n.Unlock()
	here := func(s api.ReservedSlice) bool { return s.GPU == growth.GPU }
	if n.Reserved != nil && slices.ContainsFunc(n.Reserved.Slices, here) {
		return false // a waiting job needs the units
	}
	n.Growing = growth
	to, _, ok := n.Repack(growth.GPU, growth)
	if !ok {
		n.Growing = nil
		return false
	}
	m, held := n.Cards[growth.GPU].Model, uint64(0)
	for p, in := range n.Cards[growth.GPU].Ours {
		if !in.Idle() {
			held |= m.Units(p)
		}
	}
	for _, p := range to {
		growth.units |= m.Units(p) &^ held
	}
	n.Version++
	return true
}

// EndGrowth removes the reservation of a growth, if it still exists.
func (n *Node) EndGrowth(growth *Growth) {
	n.Lock()
	defer n.Unlock()
	if n.Growing == growth {
		n.Growing = nil
		n.Version++
	}
}

// Repack returns new placements for the fractions of a GPU that jobs hold or that are stuck, so that the free units
// form the largest possible blocks. If growth is not nil, its instance gets the larger profile. The idle instances must
// be destroyed first. ok is false if the fractions do not fit, if growth is nil and the free units already form such
// blocks, or if another growth has the reservation, or none. The caller holds the node's lock.
func (n *Node) Repack(g int, growth *Growth) (to map[*Instance]int, idle []*Instance, ok bool) {
	c := n.Cards[g]
	m, fixed := c.Model, uint64(0)
	if n.Growing != growth {
		return nil, nil, false
	}
	for _, pr := range n.Pending {
		if pr.Spots == nil && growth != nil {
			return nil, nil, false // a starting job may need the units
		}
		for _, s := range pr.Spots {
			if s.GPU == g {
				fixed |= m.Units(s.Placement)
			}
		}
	}
	var moving []*Instance
	var profiles []int
	used := fixed
	for _, p := range slices.Sorted(maps.Keys(c.Ours)) {
		in := c.Ours[p]
		switch k := m.Placements[p].Profile; {
		case in.GI == gpu.FullGI:
			return nil, nil, false
		case growth != nil && in == growth.Instance:
			k, _ = m.ProfileIndex(growth.Profile)
			fallthrough
		case !in.Idle():
			moving, profiles, used = append(moving, in), append(profiles, k), used|m.Units(p)
		case !n.Promised(offer.Spot{GPU: g, Placement: p}):
			idle = append(idle, in)
		}
	}
	at, packed, ok := pack(m, fixed, profiles)
	if !ok || len(c.Foreign) > 0 || growth == nil && free(m, packed) <= free(m, used) {
		return nil, nil, false
	}
	to = map[*Instance]int{}
	for k, in := range moving {
		to[in] = at[k]
	}
	return to, idle, true
}

// pack chooses a placement for each of the given profiles in the units that are not used, and returns the units that
// are used then. The sizes of fractions are powers of two, and their starts are multiples of their sizes. Therefore, if
// the largest ones choose first, all find room if this is possible. Each takes the last free units, because the last
// ones may belong to no larger block, which keeps the largest blocks free.
func pack(m *mig.Model, used uint64, profiles []int) (at []int, packed uint64, ok bool) {
	order := make([]int, len(profiles))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return cmp.Compare(m.Profiles[profiles[y]].Size, m.Profiles[profiles[x]].Size)
	})
	at = make([]int, len(profiles))
	for _, k := range order {
		if at[k], ok = Last(m, used, m.Profiles[profiles[k]].Name); !ok {
			return nil, used, false
		}
		used |= m.Units(at[k])
	}
	return at, used, true
}

// free returns the number of placements that use only units that are not used.
func free(m *mig.Model, used uint64) int { return m.Open(0, used).Count() }

// Relabel moves the instances of a GPU to the given placements. The caller holds the node's lock.
func (n *Node) Relabel(g int, to map[*Instance]int) {
	c := n.Cards[g]
	maps.DeleteFunc(c.Ours, func(_ int, in *Instance) bool {
		_, moves := to[in]
		return moves
	})
	for in, p := range to {
		in.Profile, in.Start, in.Size = c.Model.ProfileOf(p), c.Model.Placements[p].Start, c.Model.Placements[p].Size
		c.Ours[p] = in
	}
	n.RenameLeases()
	n.Version++
}

// Last returns the last placement of a profile in units that are not used. ok is false if there is none.
func Last(m *mig.Model, used uint64, profile string) (last int, ok bool) {
	for p := range m.Placements {
		if m.ProfileOf(p) == profile && m.Units(p)&used == 0 {
			last, ok = p, true
		}
	}
	return last, ok
}

// RenameLeases updates the profile, placement and memory of each leased slice from its instance. AdvertisedAs keeps the
// earlier profile name, because slurmctld still counts the slice under that name. The caller must hold the node's lock,
// unless no other goroutine is running yet.
func (n *Node) RenameLeases() {
	for id, l := range n.Leases {
		renamed := *l // a copy, because other goroutines read the original without the lock
		renamed.Slices = slices.Clone(l.Slices)
		for i := range renamed.Slices {
			s := &renamed.Slices[i]
			if s.GPU >= len(n.Cards) {
				continue
			}
			for p, in := range n.Cards[s.GPU].Ours {
				if in.UUID != s.UUID || in.Job != id {
					continue
				}
				counted, m := cmp.Or(s.AdvertisedAs, s.Profile), n.Cards[s.GPU].Model
				s.Profile, s.Start, s.Size = in.Profile, in.Start, in.Size
				s.MemoryMiB = m.Profiles[m.Placements[p].Profile].MemoryMiB
				if s.AdvertisedAs = ""; counted != s.Profile {
					s.AdvertisedAs = counted
				}
			}
		}
		n.Leases[id] = &renamed
	}
}
