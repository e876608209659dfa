package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"caelum/internal/mig"
)

// GPUs are a node's GPUs of one GPU model, known by nothing but intervals.
type GPUs struct {
	n     int
	grid  int
	kinds map[string]kind
}

// kind is a profile: what it takes and where it may begin, in units, and how many there may be on a GPU.
type kind struct {
	size, most int
	starts     []int
}

// Interval is what a slice takes of a GPU.
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

// NewGPUs takes the facts of a GPU model from models.txt.
func NewGPUs(board string, n int) (*GPUs, error) {
	b, err := mig.ModelByName(board)
	if err != nil {
		return nil, err
	}
	g := &GPUs{n: n, grid: b.Grid, kinds: map[string]kind{}}
	for _, p := range b.Profiles {
		g.kinds[p.Name] = kind{p.Size, p.Max, p.Starts}
	}
	return g, nil
}

// Own is what a slice of this name is on the GPU model: that profile, or where the GPU model has none of the name the
// least that its own names promise as much of; empty if nothing does.
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

// Has reports whether the GPU model has a profile, or one for as much.
func (g *GPUs) Has(profile string) bool { return g.Own(profile) != "" }

// Pack reports whether all slices of some profiles can be made at once beside those that stand. It tries everything,
// the largest first. Slices of one profile are alike, so each is tried only behind the one before it.
func (g *GPUs) Pack(stand []Interval, want map[string]int) bool {
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
	for _, s := range stand {
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

// pack places list[0] at a place from first on; places are numbered over all GPUs.
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

// list draws a multiset of profiles; the filler is none.
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
