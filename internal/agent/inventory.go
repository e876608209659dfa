package agent

import (
	"fmt"
	"slices"
	"strings"

	"caelum/internal/gpu"
	"caelum/internal/mig"
)

// Inventory is what a node's GPUs add up to in Slurm's terms.
type Inventory struct {
	// Slots are the units of gres/gpu, by Type and in the order of their device files.
	Slots []TypedCount `json:"slots"`
	// Most is how many instances of each profile the node can hold at most, smallest profile first.
	Most []Offered `json:"most"`
	// Models are the profiles that each model can put on offer.
	Models []Model `json:"models"`
	// Total is N, the constant total of gres/mig.
	Total int `json:"total"`
	// Problems are the GPUs that are left out, and why.
	Problems []string `json:"problems,omitempty"`
}

// TypedCount is a count of one GRES type.
type TypedCount struct {
	Type  string `json:"type"`
	Count int    `json:"count"`
}

// Offered is a profile that a node can put on offer.
type Offered struct {
	TypedCount
	// MemoryMiB is what an instance surely has: of GPU models that differ, the least.
	MemoryMiB int `json:"memory_mib"`
	// Whole is the largest profile on offer of the same GPU model: a whole GPU.
	Whole string `json:"whole"`
}

// Model is a kind of GPU.
type Model struct {
	Type     string   `json:"type"`     // in gres.conf
	Profiles []string `json:"profiles"` // smallest first
}

// TakeInventory asks the hardware. Profiles are those put on offer, or none for every plain one.
func TakeInventory(hw gpu.Hardware, profiles []string) (Inventory, error) {
	var inv Inventory
	found, err := hw.GPUs()
	if err != nil {
		return inv, err
	}
	cards, names, err := inventory(found, profiles)
	if err != nil {
		return inv, err
	}
	slots := 0
	for _, c := range cards {
		if c.Problem != "" {
			inv.Problems = append(inv.Problems, fmt.Sprintf("GPU %d: %s", c.Index, c.Problem))
			continue
		}
		slots += len(c.slots)
		if k := len(inv.Slots) - 1; k >= 0 && inv.Slots[k].Type == c.Model.Type {
			inv.Slots[k].Count += len(c.slots)
		} else {
			inv.Slots = append(inv.Slots, TypedCount{c.Model.Type, len(c.slots)})
		}
		if !slices.ContainsFunc(inv.Models, func(m Model) bool { return m.Type == c.Model.Type }) {
			has := func(name string) bool { _, ok := c.Model.ProfileIndex(name); return ok }
			inv.Models = append(
				inv.Models,
				Model{
					c.Model.Type,
					slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !has(name) }),
				},
			)
		}
	}
	inv.Total = Total(slots)
	for _, name := range names {
		inv.Most = append(inv.Most, offered(cards, names, name))
	}
	return inv, nil
}

// offered describes one of a node's profiles, which are ordered smallest first.
func offered(cards []*card, names []string, name string) Offered {
	o := Offered{TypedCount: TypedCount{Type: name}}
	for _, c := range cards {
		if c.Problem != "" {
			continue
		}
		i, ok := c.Model.ProfileIndex(name)
		if !ok {
			continue
		}
		o.Count += mostOf(c.Model, c.Model.OfProfile(i))
		if mib := int(c.Model.Profiles[i].Memory()); o.MemoryMiB == 0 || mib < o.MemoryMiB {
			o.MemoryMiB = mib
		}
		if o.Whole == "" {
			o.Whole = largest(c.Model, names)
		}
	}
	return o
}

// largest is the last of the profiles that the GPU model has.
func largest(b *mig.Model, names []string) (last string) {
	for _, name := range names {
		if _, ok := b.ProfileIndex(name); ok {
			last = name
		}
	}
	return last
}

// mostOf is the largest number of placements of a set that a GPU can hold at once.
func mostOf(b *mig.Model, set mig.Layout) int {
	most := 0
	for _, l := range b.Maximal() {
		most = max(most, (l & set).Count())
	}
	return most
}

// inventory turns what discovery found into cards. The profiles put on offer are those named, or every plain one;
// they are answered smallest first.
func inventory(found []gpu.GPU, named []string) ([]*card, []string, error) {
	var cards []*card
	var profiles []string
	size := map[string]int{}
	slots := 0
	for _, g := range found {
		c := &card{GPU: g, ours: map[int]*instance{}}
		cards = append(cards, c)
		if g.Problem != "" {
			continue
		}
		for i, p := range g.Model.Profiles {
			if len(named) > 0 && !slices.Contains(named, p.Name) || len(named) == 0 && !mig.Plain(p) {
				continue
			}
			c.offerable |= g.Model.OfProfile(i)
			if !slices.Contains(profiles, p.Name) {
				profiles = append(profiles, p.Name)
				size[p.Name] = p.Size*100 + p.Compute
			}
		}
		for range mostOf(g.Model, c.offerable) {
			c.slots = append(c.slots, slots)
			slots++
		}
	}
	for _, name := range named {
		if known := namesOf(found); len(known) > 0 && !slices.Contains(known, name) {
			return nil, nil, fmt.Errorf(
				"profiles: no GPU of this node has the profile %q; it has %s",
				name,
				strings.Join(known, ", "),
			)
		}
	}
	slices.SortStableFunc(profiles, func(x, y string) int { return size[x] - size[y] })
	return cards, profiles, nil
}

// namesOf are the profiles that the driver reports, each once.
func namesOf(found []gpu.GPU) []string {
	var all []string
	for _, g := range found {
		if g.Model == nil {
			continue
		}
		for _, p := range g.Model.Profiles {
			if !slices.Contains(all, p.Name) {
				all = append(all, p.Name)
			}
		}
	}
	return all
}

// Total is N, the constant total of gres/mig on a node with so many slots. What is in use and what is on offer add up
// to at most twice the most instances that the node can hold; as much again covers what slurmctld still counts as used
// of jobs that have ended.
func Total(slots int) int { return 4 * slots }
