package offer

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// TestComponents checks that either all components of a het job get slices, on separate nodes, or none does.
func TestComponents(t *testing.T) {
	b := plain(t, "A100-40GB")
	two := component(2, 1, "1g.5gb")
	two.Wants[0].Count = 2
	both := component(9, 0, "1g.5gb")
	both.Nodes, both.Wants[0].Count = 2, 2
	for _, c := range []struct {
		what   string
		nodes  [][]place.GPU
		jobs   []*Job
		served []uint32
		at     float64 // the start of the reservation, or 0 without a reservation
	}{
		{"one node has room for both", [][]place.GPU{freeNode(b), freeNode(b)},
			[]*Job{component(1, 1, "1g.5gb"), component(2, 1, "2g.10gb")}, []uint32{1, 2}, 0},
		{"the second is limited to the node that the first would get", [][]place.GPU{freeNode(b), freeNode(b)},
			[]*Job{component(1, 1, "1g.5gb"), component(2, 1, "2g.10gb", 0)}, []uint32{1, 2}, 0},
		{"the policy would give the first an idle instance on the second node", [][]place.GPU{freeNode(b), idleNode(b)},
			[]*Job{component(1, 1, "1g.5gb"), two}, []uint32{1, 2}, 0},
		{"one node for two", [][]place.GPU{freeNode(b), fullNode(b)},
			[]*Job{component(1, 1, "1g.5gb"), component(2, 1, "2g.10gb")}, []uint32{}, math.Inf(1)},
		{"one node for two until 100", [][]place.GPU{freeNode(b), nodeUntil(b, 100)},
			[]*Job{component(1, 1, "1g.5gb"), component(2, 1, "2g.10gb")}, []uint32{}, 100},
		{"a job that ends before", [][]place.GPU{freeNode(b), nodeUntil(b, 100)},
			[]*Job{component(1, 1, "1g.5gb"), component(2, 1, "2g.10gb"), component(3, 0, "3g.20gb")},
			[]uint32{3}, 100},
		{"behind a job on both nodes that needs the same profile", [][]place.GPU{freeNode(b), freeNode(b)},
			[]*Job{both, component(1, 1, "1g.5gb"), component(2, 1, "2g.10gb")}, []uint32{9, 1, 2}, 0},
		{"two het jobs that need the same nodes", [][]place.GPU{freeNode(b), freeNode(b), nodeUntil(b, 100)},
			[]*Job{component(1, 1, "7g.40gb"), component(2, 1, "7g.40gb"),
				component(3, 3, "4g.20gb"), component(4, 3, "4g.20gb")},
			[]uint32{1, 2}, 50},
		{"slurmctld would give the first component the second's node", [][]place.GPU{freeNode(b), freeNode(b)},
			[]*Job{component(1, 1, "1g.5gb"), component(2, 1, "1g.5gb", 0)}, []uint32{}, math.Inf(1)},
	} {
		cl := NewCluster(place.Reach, c.nodes...)
		p := Make(cl, c.jobs, false)
		at := 0.0
		if p.Reserved != nil {
			at = p.Reserved.At
		}
		if got := served(c.jobs, p); !slices.Equal(got, c.served) || at != c.at {
			t.Errorf("%s: served %v, want %v; reserved at %v, want %v", c.what, got, c.served, at, c.at)
		}
	}
}

func freeNode(b *mig.Model) []place.GPU { return []place.GPU{{Model: b, Offerable: everything(b)}} }

func fullNode(b *mig.Model) []place.GPU {
	return []place.GPU{{Model: b, Offerable: everything(b), Blocked: 1<<b.Grid - 1}}
}

// idleNode returns a node with an idle 1g.5gb.
func idleNode(b *mig.Model) []place.GPU {
	gpus := freeNode(b)
	small, _ := b.Placement("1g.5gb", 0)
	gpus[0].Idle = gpus[0].Idle.With(small)
	return gpus
}

// nodeUntil returns a node that is full until end (seconds).
func nodeUntil(b *mig.Model, end float64) []place.GPU {
	gpus := freeNode(b)
	whole, _ := b.Placement("7g.40gb", 0)
	gpus[0].Hold(whole, end)
	return gpus
}

// component returns a component of het job het, or an ordinary job if het is 0, which runs for 50 s.
func component(id, het uint32, profile string, on ...int) *Job {
	return &Job{
		ID:            id,
		Het:           het,
		Wants:         []Want{{Profile: profile, Count: 1}},
		EligibleNodes: on,
		RunTime:       50,
		TimeLimit:     50,
	}
}

// TestComponentsStart checks that slurmctld starts the components of a het job once their slices are offered.
func TestComponentsStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		jobs := drawHetJobs(t, nodes)
		cl := NewCluster(place.Reach, nodes...)
		p := Make(cl, jobs, false)
		free := make([]map[string]int, len(nodes)) // the free counts in slurmctld
		for n := range nodes {
			free[n] = map[string]int{}
			for _, k := range cl.Nodes[n] {
				for i := range p.Offers[k].Indices() {
					free[n][p.Name(cl.Pool.GPU(k).Model, Spot{GPU: k, Placement: i})]++
				}
			}
		}
		for k, group := range byStart(jobs) {
			if mustBeServedTogether(t, cl.nodeOf(), group, p.Spots[k:k+len(group)]) {
				mustStart(t, group, free)
			}
		}
	})
}

// drawHetJobs returns random het jobs with one to three components each.
func drawHetJobs(t *rapid.T, nodes [][]place.GPU) (jobs []*Job) {
	for het := range uint32(rapid.IntRange(1, 4).Draw(t, "jobs")) {
		for range rapid.IntRange(1, 3).Draw(t, "components") {
			g := rapid.SampledFrom(slices.Concat(nodes...)).Draw(t, "of")
			profile := g.Model.Profiles[rapid.IntRange(0, len(g.Model.Profiles)-1).Draw(t, "profile")].Name
			j := component(uint32(len(jobs)+1), het+1, profile)
			j.Wants[0].Count = rapid.IntRange(1, 2).Draw(t, "count")
			j.Nodes = rapid.IntRange(1, 2).Draw(t, "nodes")
			for n := range nodes {
				if rapid.IntRange(0, 3).Draw(t, "on") > 0 {
					j.EligibleNodes = append(j.EligibleNodes, n)
				}
			}
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// mustBeServedTogether checks that either all components have spots or none does, and that no two share a node. It
// returns true if they have spots.
func mustBeServedTogether(t *rapid.T, nodeOf []int, group []*Job, all [][]Spot) bool {
	used := map[int]uint32{}
	got := 0
	for i, spots := range all {
		if spots != nil {
			got++
		}
		for _, at := range spots {
			if by := used[nodeOf[at.GPU]]; by != 0 && by != group[i].ID {
				t.Fatalf("jobs %d and %d on node %d", by, group[i].ID, nodeOf[at.GPU])
			}
			used[nodeOf[at.GPU]] = group[i].ID
		}
	}
	if got != 0 && got != len(group) {
		t.Fatalf("%d of %d components of %d are served", got, len(group), group[0].Het)
	}
	return got > 0
}

// mustStart starts components as backfill would, given each node's free counts. Backfill processes the components in
// order, and starts each on the first nodes that offer its slices and that no earlier component uses (backfill.c,
// 22.05.8).
func mustStart(t *rapid.T, group []*Job, free []map[string]int) {
	taken := map[int]bool{}
	for _, j := range group {
		need, w := j.Nodes, j.Wants[0]
		for n := range free {
			if need > 0 && !taken[n] && j.CanStartOn(n) && free[n][w.Profile] >= w.Count {
				taken[n] = true
				free[n][w.Profile] -= w.Count
				need--
			}
		}
		if need > 0 {
			t.Fatalf("slurmctld finds no nodes for component %d of %d", j.ID, j.Het)
		}
	}
}

// TestComponentsFindNodes checks a het job that is the only job in the queue. The plan must place it whenever slurmctld
// would start it with some assignment of nodes.
func TestComponentsFindNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		jobs := drawNamedComponents(t, nodes)
		cl := NewCluster(place.Reach, nodes...)
		want := canStart(cl, jobs)
		p := Make(cl, jobs, false)
		if got := p.Spots[0] != nil; got != want {
			t.Fatalf("served: %v, possible: %v", got, want)
		}
	})
}

// drawNamedComponents returns the components of a random het job, some of which request a node by name. slurmctld
// does not use that node for the others (proc_req.c, 22.05.8).
func drawNamedComponents(t *rapid.T, nodes [][]place.GPU) (jobs []*Job) {
	named := map[int]bool{}
	for range rapid.IntRange(2, 3).Draw(t, "components") {
		g := rapid.SampledFrom(slices.Concat(nodes...)).Draw(t, "of")
		profile := g.Model.Profiles[rapid.IntRange(0, len(g.Model.Profiles)-1).Draw(t, "profile")].Name
		j := component(uint32(len(jobs)+1), 1, profile)
		j.Wants[0].Count = rapid.IntRange(1, 2).Draw(t, "count")
		if rapid.Bool().Draw(t, "named") {
			n := rapid.IntRange(0, len(nodes)-1).Draw(t, "on")
			j.EligibleNodes, named[n] = []int{n}, true
		}
		jobs = append(jobs, j)
	}
	for _, j := range jobs {
		if j.EligibleNodes == nil && len(named) > 0 {
			j.EligibleNodes = []int{}
			for n := range nodes {
				if !named[n] {
					j.EligibleNodes = append(j.EligibleNodes, n)
				}
			}
		}
	}
	return jobs
}

// canStart reports whether jobs that start together could start with any assignment of nodes.
func canStart(cl *Cluster, jobs []*Job) bool {
	all := make([][]Spot, len(jobs))
	used := map[int]bool{}
	var try func(k int) bool
	try = func(k int) bool {
		if k == len(jobs) {
			return cl.starts(jobs, all)
		}
		for n := range cl.Nodes {
			if used[n] || !jobs[k].CanStartOn(n) {
				continue
			}
			j := *jobs[k]
			j.EligibleNodes = []int{n}
			if all[k], _ = cl.Find(&j, nil); all[k] == nil {
				continue
			}
			used[n] = true
			if try(k + 1) {
				return true
			}
			delete(used, n)
		}
		return false
	}
	return try(0)
}
