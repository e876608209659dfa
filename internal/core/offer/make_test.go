package offer

import (
	"math"
	"slices"
	"testing"

	"caelum/internal/core/place"
)

// TestServeInOrder checks that jobs that can run only on different nodes do not wait for each other. All other jobs
// must be placed in the order of the nodes.
func TestServeInOrder(t *testing.T) {
	b := plain(t, "A100-40GB")
	node := func() []place.GPU { return []place.GPU{{Model: b, Offerable: everything(b)}} }
	job := func(id uint32, on ...int) *Job {
		return &Job{
			ID:            id,
			Wants:         []Want{{Profile: "3g.20gb", Count: 1}},
			EligibleNodes: on,
			RunTime:       math.Inf(1),
			TimeLimit:     math.Inf(1),
		}
	}
	for _, c := range []struct {
		what   string
		jobs   []*Job
		served []uint32
	}{
		{"one job on the second node only, the others on the first only",
			[]*Job{job(9, 1), job(1, 0), job(2, 0)}, []uint32{9, 1, 2}},
		{"job 7 waits for the first node, later jobs can use the second",
			[]*Job{job(9, 0), job(8, 0), job(7, 0), job(1), job(2)}, []uint32{9, 8, 1, 2}},
		{"job 5 waits for either node",
			[]*Job{job(9, 0), job(8, 0), job(7, 1), job(6, 1), job(5), job(1, 0), job(2, 1)}, []uint32{9, 8, 7, 6}},
		{"job 7 may run on both nodes, job 1 on the first only",
			[]*Job{job(9, 1), job(8, 1), job(7, 0, 1), job(1, 0)}, []uint32{9, 8, 7, 1}},
	} {
		c1 := NewCluster(place.Reach, node(), node())
		if got := served(c.jobs, Make(c1, c.jobs, false)); !slices.Equal(got, c.served) {
			t.Errorf("%s: served %v, want %v", c.what, got, c.served)
		}
	}
	// A job that may run on both nodes must not be placed on the second, because slurmctld would start it on the
	// slice that the first node offers.
	full := node()
	for i := range everything(b).Indices() {
		if b.ProfileOf(i) == "4g.20gb" {
			full[0].Hold(i, math.Inf(1))
		}
	}
	c := NewCluster(place.Reach, full, node())
	jobs := []*Job{job(1, 1), job(2, 0, 1), job(3, 0)}
	jobs[1].DeferredNodes = []int{0} // job 2 cannot start on the first node now
	if got := served(jobs, Make(c, jobs, false)); !slices.Equal(got, []uint32{1, 2, 3}) {
		t.Errorf("served %v", got)
	}
}

// TestFewerThanTheFirstWants checks a job that needs several slices on a node and must wait for an unknown time. If
// fewer slices are free, other jobs must be able to use them, because slurmctld cannot start the first job with
// fewer.
func TestFewerThanTheFirstWants(t *testing.T) {
	b := plain(t, "A100-40GB")
	node := func(full, empty int) (gpus []place.GPU) {
		for k := range full + empty {
			g := place.GPU{Model: b, Offerable: everything(b)}
			if k < full {
				whole, _ := b.Placement("7g.40gb", 0)
				g.Hold(whole, math.Inf(1))
			}
			gpus = append(gpus, g)
		}
		return gpus
	}
	for _, c := range []struct {
		what   string
		nodes  [][]place.GPU
		jobs   string
		served []uint32
	}{
		{"one on each node", [][]place.GPU{node(1, 1), node(1, 1)},
			"1 7g.40gb 2\n2 7g.40gb 1\n3 7g.40gb 1\n4 7g.40gb 1\n", []uint32{2, 3}},
		{"two of three", [][]place.GPU{node(1, 2)},
			"1 7g.40gb 3\n2 7g.40gb 1\n3 7g.40gb 1\n", []uint32{2, 3}},
		{"as many as another earlier job wants", [][]place.GPU{node(1, 1)},
			"1 7g.40gb 2\n2 7g.40gb 1 3g.20gb 1\n3 7g.40gb 1\n", []uint32{}},
	} {
		jobs := demands(c.jobs)
		if got := served(jobs, Make(NewCluster(place.Reach, c.nodes...), jobs, false)); !slices.Equal(got, c.served) {
			t.Errorf("%s: served %v, want %v", c.what, got, c.served)
		}
	}
}

// TestKeptForOne checks that the plan keeps and offers spots for the first job that lacks resources other than slices
// on every node, but none for the second. Jobs that can start must get the remaining spots.
func TestKeptForOne(t *testing.T) {
	b := plain(t, "A100-40GB")
	gpus := func() []place.GPU {
		return []place.GPU{{Model: b, Offerable: everything(b)}, {Model: b, Offerable: everything(b)}}
	}
	job := func(id uint32, profile string, later ...int) *Job {
		return &Job{
			ID:            id,
			Wants:         []Want{{Profile: profile, Count: 1}},
			DeferredNodes: later,
			RunTime:       math.Inf(1),
			TimeLimit:     math.Inf(1),
		}
	}
	jobs := []*Job{job(1, "7g.40gb", 0), job(2, "7g.40gb", 0), job(3, "3g.20gb"), job(4, "3g.20gb")}
	plan := Make(NewCluster(place.Reach, gpus()), jobs, false)
	if got := served(jobs, plan); !slices.Equal(got, []uint32{1, 3, 4}) {
		t.Errorf("served %v", got)
	}
	// The job can start on the other node.
	jobs = []*Job{job(1, "7g.40gb", 0)}
	plan = Make(NewCluster(place.Reach, gpus(), gpus()), jobs, false)
	if len(plan.Spots[0]) != 1 || plan.Spots[0][0].GPU < 2 {
		t.Errorf("placed at %v; the second node has GPUs 2 and 3", plan.Spots[0])
	}
	if jobs[0].DeferredNodes == nil {
		t.Error("Make has changed the job")
	}
}

// TestAnotherModel checks a job for whose requested profile no GPU has room. The plan must offer another GPU model's
// equivalent profile under the requested name. An earlier job that requests the same name must get the slice first.
func TestAnotherModel(t *testing.T) {
	a, h := plain(t, "A100-40GB"), plain(t, "H100-80GB")
	job := func(id uint32, or ...string) *Job {
		return &Job{
			ID:        id,
			Wants:     []Want{{Profile: "2g.10gb", Count: 1, Alternatives: or}},
			RunTime:   math.Inf(1),
			TimeLimit: math.Inf(1),
		}
	}
	full := place.GPU{Model: a, Offerable: everything(a), Blocked: 1<<a.Grid - 1}
	free := place.GPU{Model: h, Offerable: everything(h)}
	for _, c := range []struct {
		what   string
		first  place.GPU
		jobs   []*Job
		served []uint32
		as     int // the number of H100 slices offered as 2g.10gb
	}{
		{"no room on its own model", full, []*Job{job(1, "2g.20gb"), job(2, "2g.20gb")}, []uint32{1, 2}, 2},
		{"the job named its profile", full, []*Job{job(1)}, []uint32{}, 0},
		{"an earlier job named the same profile: slurmctld would give it the offer", full,
			[]*Job{job(1), job(2, "2g.20gb")}, []uint32{}, 0},
		{"room on its own model", place.GPU{Model: a, Offerable: everything(a)},
			[]*Job{job(1, "2g.20gb")}, []uint32{1}, 0},
	} {
		gpus := []place.GPU{c.first, free}
		cl := NewCluster(place.Reach, gpus[:1], gpus[1:])
		p := Make(cl, c.jobs, false)
		if got := served(c.jobs, p); !slices.Equal(got, c.served) {
			t.Errorf("%s: served %v, want %v", c.what, got, c.served)
		}
		as := 0
		for i := range p.Offers[1].Indices() {
			if p.Name(h, Spot{GPU: 1, Placement: i}) == "2g.10gb" {
				as++
				if h.ProfileOf(i) != "2g.20gb" {
					t.Errorf("%s: %s is on offer as 2g.10gb", c.what, h.Label(i))
				}
			}
		}
		if as != c.as {
			t.Errorf("%s: %d on offer as 2g.10gb, want %d", c.what, as, c.as)
		}
	}
	// After a restart, the agent finds spots for the equivalent profiles that the jobs had before.
	spots, ok := Pack([]place.GPU{free}, []*Job{job(1, "2g.20gb"), job(2, "2g.20gb"), job(3, "2g.20gb")})
	if !ok || len(spots) != 3 {
		t.Errorf("three slices on an empty H100: %v", spots)
	}
	wants := []Want{{Profile: "2g.10gb", Alternatives: []string{"2g.20gb"}}, {Profile: "2g.20gb"}}
	if got := RequestedAs(wants, "2g.20gb"); got != "2g.20gb" {
		t.Errorf("requested as %s", got)
	}
}
