package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"caelum/internal/core/mig"
)

// GPUs describes a node's GPUs, which are all of the same model. Each profile is a set of intervals.
type GPUs struct {
	n     int
	grid  int
	kinds map[string]kind
}

// kind describes a profile: its size and possible starts in units, its compute slices, and the maximum number of its
// instances on a GPU.
type kind struct {
	size, compute, most int
	starts              []int
}

// Interval is the part of a GPU that a slice occupies.
type Interval struct {
	GPU, Start, Size int // units
	Profile          string
}

func (i Interval) String() string {
	return fmt.Sprintf("GPU %d %s@%d", i.GPU, i.Profile, i.Start)
}

func (i Interval) overlaps(k Interval) bool {
	return i.GPU == k.GPU && i.Start < k.Start+k.Size && k.Start < i.Start+i.Size
}

// NewGPUs reads a GPU model's properties from models.txt. The argument full is true if the GPUs can be full GPUs.
func NewGPUs(model string, n int, full bool) (*GPUs, error) {
	b, err := mig.ModelByName(model)
	if err != nil {
		return nil, err
	}
	g := &GPUs{n: n, grid: b.Grid, kinds: map[string]kind{}}
	for _, p := range b.Profiles {
		g.kinds[p.Name] = kind{p.Size, p.Compute, p.Max, p.Starts}
	}
	if full {
		g.kinds[fullProfile] = kind{size: b.Grid, compute: b.Grid, most: 1, starts: []int{0}}
	}
	return g, nil
}

// Own returns profile if the GPU model has it. Otherwise, it returns the model's smallest profile whose name states at
// least as many compute slices and GB, or "" if there is no such profile.
func (g *GPUs) Own(profile string) (own string) {
	if _, ok := g.kinds[profile]; ok {
		return profile
	}
	var compute, gb int
	if n, _ := fmt.Sscanf(profile, "%dg.%dgb", &compute, &gb); n < 2 || strings.ContainsAny(profile, "+-") {
		return ""
	}
	least := 1 << 20
	for name, k := range g.kinds {
		var c, m int
		fmt.Sscanf(name, "%dg.%dgb", &c, &m)
		if cost := k.size*100 + c; !strings.ContainsAny(name, "+-") && c >= compute && m >= gb && cost < least {
			own, least = name, cost
		}
	}
	return own
}

// Has reports whether the GPU model has the profile or an equivalent profile.
func (g *GPUs) Has(profile string) bool { return g.Own(profile) != "" }

// Pack reports whether all of the requested slices can exist at the same time in addition to the slices in present. The
// search is exhaustive and begins with the largest profiles. Because slices of the same profile are interchangeable,
// each slice is tried only at places after that of the previous one.
func (g *GPUs) Pack(present []Interval, want map[string]int) bool {
	var list []string
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if !g.Has(p) && want[p] > 0 {
			return false
		}
		for range want[p] {
			list = append(list, g.Own(p))
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return g.kinds[b].size - g.kinds[a].size })
	taken := make([][]bool, g.n)
	count := make([]map[string]int, g.n)
	for i := range taken {
		taken[i] = make([]bool, g.grid)
		count[i] = map[string]int{}
	}
	for _, s := range present {
		for u := s.Start; u < s.Start+s.Size; u++ {
			if s.GPU >= g.n || u >= g.grid || taken[s.GPU][u] {
				return false
			}
			taken[s.GPU][u] = true
		}
		count[s.GPU][s.Profile]++
	}
	return g.pack(taken, count, list, 0)
}

// pack tries every position for list[0], starting at first. Places are numbered consecutively across all GPUs.
func (g *GPUs) pack(taken [][]bool, count []map[string]int, list []string, first int) bool {
	if len(list) == 0 {
		return true
	}
	p := list[0]
	k := g.kinds[p]
	for gpu := range g.n {
		for _, start := range k.starts {
			place := gpu*g.grid + start
			units := taken[gpu][start : start+k.size]
			if place < first || count[gpu][p] >= k.most || slices.Contains(units, true) {
				continue
			}
			next := 0
			if len(list) > 1 && list[1] == p {
				next = place + 1
			}
			fill(units, true)
			count[gpu][p]++
			if g.pack(taken, count, list[1:], next) {
				return true
			}
			fill(units, false)
			count[gpu][p]--
		}
	}
	return false
}

func fill(units []bool, v bool) {
	for i := range units {
		units[i] = v
	}
}

// list formats a multiset of profiles, omitting the closed type.
func list(n map[string]int) string {
	var all []string
	for _, p := range slices.Sorted(maps.Keys(n)) {
		if n[p] > 0 && p != closedType {
			all = append(all, fmt.Sprintf("%s:%d", p, n[p]))
		}
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ",")
}
