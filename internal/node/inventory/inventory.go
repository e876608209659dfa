package inventory

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/node/gpu"
)

// Inventory describes a node's GPUs in Slurm's terms.
type Inventory struct {
	// Slots holds the number of gres/gpu slots of each type, in the order of the slots' device files.
	Slots []TypedCount `json:"slots"`
	// Most holds, for each profile, the maximum number of instances that the node can have. The profiles are sorted
	// from small to large.
	Most []Offered `json:"most"`
	// Models lists the node's GPU models, each with the profiles that it can offer.
	Models []Model `json:"models"`
	// Total is N, the constant total of gres/mig.
	Total int `json:"total"`
	// Problems contains, for each GPU that cannot be managed, a line with the reason.
	Problems []string `json:"problems,omitempty"`
}

// TypedCount is the count of one GRES type.
type TypedCount struct {
	Type  string `json:"type"`
	Count int    `json:"count"`
}

// Offered is a profile that a node can offer.
type Offered struct {
	TypedCount
	// MemoryMiB is the memory of an instance in MiB, or the minimum if it differs between the node's GPU models.
	MemoryMiB int `json:"memory_mib"`
	// Whole is the largest profile of MIG that the site offers on the first GPU model that supports this profile. If
	// the site offers all profiles, Whole is the profile of the whole GPU. It is empty for a GPU without MIG.
	Whole string `json:"whole"`
}

// Model is one of a node's GPU models.
type Model struct {
	Type     string   `json:"type"`     // the type in gres.conf
	Profiles []string `json:"profiles"` // from small to large
	// Units is the number of units into which the memory of a GPU without MIG is divided (mig.Fractions), or 0.
	Units int `json:"units,omitempty"`
}

// Read reads the inventory from the hardware. profiles lists the profiles that the site offers; if it is empty, the
// site offers all plain profiles (mig.Plain). full determines which GPUs also have the mig.Full profile.
func Read(hw gpu.Hardware, profiles []string, full mig.FullGPUs) (Inventory, error) {
	var inv Inventory
	found, err := hw.GPUs()
	if err != nil {
		return inv, err
	}
	gpus, names, err := Divide(found, profiles, full)
	if err != nil {
		return inv, err
	}
	slots := 0
	for _, c := range gpus {
		if c.Problem != "" {
			inv.Problems = append(inv.Problems, fmt.Sprintf("GPU %d: %s", c.Index, c.Problem))
			continue
		}
		if c.Undivided != "" {
			inv.Problems = append(inv.Problems, fmt.Sprintf("GPU %d: it has no fractions: %s", c.Index, c.Undivided))
		}
		slots += len(c.Slots)
		if k := len(inv.Slots) - 1; k >= 0 && inv.Slots[k].Type == c.Model.Type {
			inv.Slots[k].Count += len(c.Slots)
		} else {
			inv.Slots = append(inv.Slots, TypedCount{c.Model.Type, len(c.Slots)})
		}
		if !slices.ContainsFunc(inv.Models, func(m Model) bool { return m.Type == c.Model.Type }) {
			has := func(name string) bool { _, ok := c.Model.ProfileIndex(name); return ok }
			inv.Models = append(
				inv.Models,
				Model{
					c.Model.Type,
					slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !has(name) }),
					c.Model.Fractions,
				},
			)
		}
	}
	inv.Total = Total(slots)
	for _, name := range names {
		inv.Most = append(inv.Most, offered(gpus, names, name))
	}
	return inv, nil
}

// offered describes one of a node's profiles. names lists all of them, from small to large.
func offered(gpus []GPU, names []string, name string) Offered {
	o := Offered{TypedCount: TypedCount{Type: name}}
	for _, c := range gpus {
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

// largest returns the largest profile in names that the GPU model supports, except mig.Full and fractions. names is
// sorted from small to large.
func largest(b *mig.Model, names []string) (last string) {
	for _, name := range names {
		if _, ok := b.ProfileIndex(name); ok && name != mig.Full && !mig.IsFraction(name) {
			last = name
		}
	}
	return last
}

// mostOf returns the maximum number of placements from a set that fit on a GPU at the same time.
func mostOf(b *mig.Model, set mig.Layout) int {
	most := 0
	for _, l := range b.Maximal() {
		most = max(most, (l & set).Count())
	}
	return most
}

// GPU is one of the node's GPUs, with the placements and slots that the site offers.
type GPU struct {
	gpu.GPU
	// Offerable holds the placements of all profiles that the site offers.
	Offerable mig.Layout
	// Slots lists this GPU's gres/gpu indices, one for each instance that it can hold. A slot does not belong to a
	// particular instance.
	Slots []int
}

// Divide assigns offerable placements and slots to each discovered GPU. Its second result lists the profiles that the
// site offers, from small to large: those in named, or every plain profile if named is empty (mig.Offers). If full
// allows the mig.Full profile on a GPU, the site also offers it. Divide returns an error if named contains a profile
// that no GPU supports.
func Divide(found []gpu.GPU, named []string, full mig.FullGPUs) ([]GPU, []string, error) {
	var gpus []GPU
	var profiles []string
	size := map[string]int{}
	slots := 0
	for _, g := range found {
		g = g.Managed(full)
		c := GPU{GPU: g}
		if g.Problem != "" {
			gpus = append(gpus, c)
			continue
		}
		// GPUs with equal models share one, because each model keeps a table of 0.5 MB (mig.Table).
		for _, other := range gpus {
			if other.Model != nil && reflect.DeepEqual(other.Model.Profiles, g.Model.Profiles) &&
				other.Model.Name == g.Model.Name {
				g.Model = other.Model
			}
		}
		c.GPU = g
		for i, p := range g.Model.Profiles {
			if !offers(p, named) {
				continue
			}
			c.Offerable |= g.Model.OfProfile(i)
			if !slices.Contains(profiles, p.Name) {
				profiles = append(profiles, p.Name)
				size[p.Name] = p.Size*100 + p.Compute
			}
			if p.Name == mig.Full {
				size[p.Name] = math.MaxInt // a GPU without MIG can have only one unit
			}
		}
		for range mostOf(g.Model, c.Offerable) {
			c.Slots = append(c.Slots, slots)
			slots++
		}
		gpus = append(gpus, c)
	}
	for _, name := range named {
		if known := namesOf(found, mig.IsFraction(name)); len(known) > 0 && !slices.Contains(known, name) {
			return nil, nil, fmt.Errorf(
				"profiles: no GPU on this node has the profile %q; choose from the node's profiles: %s",
				name,
				strings.Join(known, ", "),
			)
		}
	}
	slices.SortStableFunc(profiles, func(x, y string) int { return size[x] - size[y] })
	return gpus, profiles, nil
}

// offers reports whether the site offers a profile on a GPU that supports the profile.
func offers(p mig.Profile, named []string) bool {
	return p.Name == mig.Full || slices.Contains(named, p.Name) || mig.Offers(named, p.Name) && mig.Plain(p)
}

// namesOf returns the profiles of the GPUs, without duplicates: those of MIG, or the fractions.
func namesOf(found []gpu.GPU, fractions bool) []string {
	var all []string
	for _, g := range found {
		if g.Model == nil {
			continue
		}
		for _, p := range g.Model.Profiles {
			if mig.IsFraction(p.Name) == fractions && !slices.Contains(all, p.Name) {
				all = append(all, p.Name)
			}
		}
	}
	return all
}

// Total returns N, the constant total of gres/mig on a node with the given number of slots. Used and offered slices
// together need at most half of N. The other half covers slices that slurmctld still counts as used after their jobs
// have ended.
func Total(slots int) int { return 4 * slots }
