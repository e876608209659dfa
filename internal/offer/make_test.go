package offer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"caelum/internal/mig"
	"caelum/internal/place"
)

func plain(t testing.TB, name string) *mig.Model {
	t.Helper()
	b, err := mig.ModelByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return b.Select(mig.Plain)
}

func everything(b *mig.Model) mig.Layout {
	var l mig.Layout
	for p := range b.Profiles {
		l |= b.OfProfile(p)
	}
	return l
}

// TestNotebook runs testdata/node/*.txt: a node drawn GPU by GPU, the queue, and the plan.
func TestNotebook(t *testing.T) {
	datadriven.Walk(t, "testdata/node", func(t *testing.T, path string) {
		var gpus []place.GPU
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "node": // one drawing per line; an idle instance follows as idle=3g.20gb@4
				var board string
				d.ScanArgs(t, "board", &board)
				b := plain(t, board)
				gpus = nil
				for line := range strings.Lines(d.Input) {
					drawing, idle, _ := strings.Cut(strings.TrimSpace(line), " idle=")
					busy, blocked, err := b.ParseBeside(drawing)
					if err != nil {
						return err.Error()
					}
					g := place.GPU{Model: b, Busy: busy, Blocked: blocked, Offerable: everything(b)}
					for _, label := range strings.Fields(idle) {
						profile, start, _ := strings.Cut(label, "@")
						n, _ := strconv.Atoi(start)
						p, ok := b.Placement(profile, n)
						if !ok {
							return "no " + label
						}
						g.Idle = g.Idle.With(p)
					}
					gpus = append(gpus, g)
				}
				return ""
			case "plan": // one job per line: id profile count [profile count ...]
				plan := Make(NewCluster(place.Reach, gpus), demands(d.Input), false)
				if err := plan.Check(gpus); err != nil {
					return "UNSOUND: " + err.Error()
				}
				var out strings.Builder
				for i, g := range gpus {
					fmt.Fprintf(&out, "GPU %d: %s\n", i, g.Model.List(plan.Offers[i]))
				}
				fmt.Fprintf(&out, "served: %v\n", served(demands(d.Input), plan))
				return out.String()
			case "pack":
				spots, ok := Pack(gpus, demands(d.Input))
				if !ok {
					return "no room for all"
				}
				var out strings.Builder
				for _, dm := range demands(d.Input) {
					fmt.Fprintf(&out, "%d:", dm.ID)
					for _, s := range spots[dm.ID] {
						fmt.Fprintf(&out, " GPU %d %s", s.GPU, gpus[s.GPU].Model.Label(s.Placement))
					}
					out.WriteString("\n")
				}
				return out.String()
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

func served(jobs []*Job, plan Plan) []uint32 {
	all := []uint32{}
	for k, spots := range plan.Spots {
		if spots != nil {
			all = append(all, jobs[k].ID)
		}
	}
	return all
}

func demands(text string) []*Job {
	var all []*Job
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		id, _ := strconv.Atoi(f[0])
		d := &Job{ID: uint32(id), RunTime: math.Inf(1), TimeLimit: math.Inf(1)}
		for k := 1; k+1 < len(f); k += 2 {
			n, _ := strconv.Atoi(f[k+1])
			d.Wants = append(d.Wants, Want{Profile: f[k], Count: n})
		}
		all = append(all, d)
	}
	return all
}

// drawNode makes a random node: any layout of any GPU model's plain profiles, some units blocked, some instances idle.
func drawNode(t *rapid.T) []place.GPU {
	models := mig.Models()
	gpus := make([]place.GPU, rapid.IntRange(1, 4).Draw(t, "gpus"))
	for i := range gpus {
		b := models[rapid.IntRange(0, len(models)-1).Draw(t, "board")].Select(mig.Plain)
		layouts := b.Layouts()
		l := layouts[rapid.IntRange(0, len(layouts)-1).Draw(t, "layout")]
		gpus[i] = place.GPU{Model: b, Offerable: everything(b)}
		for p := range l.Indices() {
			switch rapid.IntRange(0, 3).Draw(t, "state") {
			case 0:
				gpus[i].Idle = gpus[i].Idle.With(p)
			case 1:
				gpus[i].Blocked |= b.Units(p)
			default:
				gpus[i].Busy = gpus[i].Busy.With(p)
			}
		}
		if rapid.IntRange(0, 4).Draw(t, "narrow") == 0 {
			gpus[i].Offerable = b.OfProfile(0)
		}
	}
	return gpus
}

func drawDemands(t *rapid.T, gpus []place.GPU) []*Job {
	all := make([]*Job, rapid.IntRange(0, 12).Draw(t, "jobs"))
	for i := range all {
		all[i] = &Job{ID: uint32(i + 1), RunTime: math.Inf(1), TimeLimit: math.Inf(1)}
		for range rapid.IntRange(1, 2).Draw(t, "kinds") {
			profiles := gpus[rapid.IntRange(0, len(gpus)-1).Draw(t, "of")].Model.Profiles
			p := profiles[rapid.IntRange(0, len(profiles)-1).Draw(t, "profile")]
			all[i].Wants = append(all[i].Wants, Want{Profile: p.Name, Count: rapid.IntRange(1, 3).Draw(t, "count")})
		}
		if w := &all[i].Wants[0]; len(all[i].Wants) == 1 && rapid.Bool().Draw(t, "sized") {
			for _, g := range gpus {
				if name, ok := g.Model.EquivalentProfile(w.Profile, g.Offerable); ok && name != w.Profile {
					w.Alternatives = append(w.Alternatives, name)
				}
			}
		}
	}
	return all
}

// TestSound checks every plan against a plain implementation of the rules: units as booleans, one placement after the
// other.
func TestSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := drawNode(t)
		jobs := drawDemands(t, gpus)
		plan := Make(NewCluster(place.Reach, gpus), jobs, false)
		for i, g := range gpus {
			var taken [64]bool
			of := map[int]int{}
			put := func(p int) {
				pl := g.Model.Placements[p]
				for u := pl.Start; u < pl.Start+pl.Size; u++ {
					if taken[u] {
						t.Fatalf(
							"GPU %d: unit %d twice: busy %s, offers %s",
							i,
							u,
							g.Model.List(g.Busy),
							g.Model.List(plan.Offers[i]),
						)
					}
					taken[u] = true
				}
				if of[pl.Profile]++; of[pl.Profile] > g.Model.Profiles[pl.Profile].Max {
					t.Fatalf("GPU %d: too many %s", i, g.Model.Profiles[pl.Profile].Name)
				}
			}
			for u := range 64 {
				taken[u] = g.Blocked&(1<<u) != 0
			}
			for p := range g.Model.Placements {
				if g.Busy.Has(p) {
					put(p)
				}
			}
			for p := range g.Model.Placements {
				if plan.Offers[i].Has(p) {
					put(p)
					if !g.Offerable.Has(p) {
						t.Fatalf("GPU %d: %s is offered but not offerable", i, g.Model.Label(p))
					}
				}
			}
		}
		if err := plan.Check(gpus); err != nil {
			t.Fatal(err)
		}
		// The slices that the served jobs need together are on offer.
		need := map[string]int{}
		for _, d := range jobs {
			for _, id := range served(jobs, plan) {
				if id == d.ID {
					for _, w := range d.Wants {
						need[w.Profile] += w.Count
					}
				}
			}
		}
		on := plan.Counts(gpus)
		for p, n := range need {
			if on[p] < n {
				t.Fatalf("the served jobs need %d of %s, %d are on offer", n, p, on[p])
			}
		}
	})
}

// TestCheckFinds checks that Check rejects each kind of plan that cannot be carved.
func TestCheckFinds(t *testing.T) {
	b := plain(t, "A100-40GB")
	at := func(profile string, start int) mig.Layout {
		p, ok := b.Placement(profile, start)
		if !ok {
			t.Fatalf("no %s@%d", profile, start)
		}
		return mig.Layout(0).With(p)
	}
	for _, c := range []struct {
		why   string
		gpu   place.GPU
		offer mig.Layout
		want  string
	}{
		{"twice", place.GPU{Model: b, Busy: at("2g.10gb", 0), Offerable: everything(b)}, at("2g.10gb", 0),
			"both busy and on offer"},
		{"overlap", place.GPU{Model: b, Busy: at("3g.20gb", 0), Offerable: everything(b)}, at("1g.5gb", 2),
			"do not form a legal layout"},
		{"blocked", place.GPU{Model: b, Blocked: 1, Offerable: everything(b)}, at("1g.5gb", 0), "blocked units"},
		{"not offerable", place.GPU{Model: b, Offerable: at("1g.5gb", 0)}, at("1g.5gb", 1), "not among the offerable"},
		{"unmanaged", place.GPU{}, 1, "not managed"},
	} {
		err := Plan{Offers: []mig.Layout{c.offer}}.Check([]place.GPU{c.gpu})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.why, err, c.want)
		}
	}
}

// TestPackFindsEarlierLayout checks that Pack finds room for all slices that were on the node before a restart, in any
// order.
func TestPackFindsEarlierLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := mig.Models()[1].Select(mig.Plain)
		layouts := b.Layouts()
		gpus := make([]place.GPU, rapid.IntRange(1, 3).Draw(t, "gpus"))
		var jobs []*Job
		for i := range gpus {
			gpus[i] = place.GPU{Model: b, Offerable: everything(b)}
			for p := range layouts[rapid.IntRange(0, len(layouts)-1).Draw(t, "layout")].Indices() {
				if rapid.Bool().Draw(t, "busy") {
					gpus[i].Busy = gpus[i].Busy.With(p)
				} else {
					want := Want{Profile: b.ProfileOf(p), Count: 1}
					jobs = append(jobs, &Job{ID: uint32(len(jobs) + 1), Wants: []Want{want}})
				}
			}
		}
		jobs = rapid.Permutation(jobs).Draw(t, "order")
		spots, ok := Pack(gpus, jobs)
		if !ok {
			t.Fatal("not found")
		}
		for _, d := range jobs {
			for _, s := range spots[d.ID] {
				if !b.Fits(gpus[s.GPU].Busy, s.Placement) {
					t.Fatalf("job %d: %s overlaps", d.ID, b.Label(s.Placement))
				}
				gpus[s.GPU].Busy = gpus[s.GPU].Busy.With(s.Placement)
			}
		}
	})
}

// TestServeInOrder checks that jobs that cannot run on one another's nodes do not wait for one another, and that other
// jobs are served in the order of the nodes.
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
	// If a job that may run on both nodes were planned on the second, slurmctld would give it the offer on the first.
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

// TestFewerThanTheFirstWants checks that a job that needs several slices on a node, and has to wait for an unknown
// time, does not keep fewer slices from other jobs: slurmctld could not start it with these.
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

// TestKeptForOne checks that room is kept and offered for the first job that can start nowhere now because it lacks
// something other than slices. For the next such job no room is kept, and jobs that can start get the rest.
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

// TestComponents checks that either all components of a het job are on offer, each on nodes of its own, or none is.
func TestComponents(t *testing.T) {
	b := plain(t, "A100-40GB")
	free := func() []place.GPU { return []place.GPU{{Model: b, Offerable: everything(b)}} }
	full := func() []place.GPU { return []place.GPU{{Model: b, Offerable: everything(b), Blocked: 1<<b.Grid - 1}} }
	idle := func() []place.GPU {
		g := place.GPU{Model: b, Offerable: everything(b)}
		small, _ := b.Placement("1g.5gb", 0)
		g.Idle = g.Idle.With(small)
		return []place.GPU{g}
	}
	until := func(end float64) []place.GPU {
		g := place.GPU{Model: b, Offerable: everything(b)}
		whole, _ := b.Placement("7g.40gb", 0)
		g.Hold(whole, end)
		return []place.GPU{g}
	}
	job := func(id, het uint32, profile string, on ...int) *Job {
		return &Job{
			ID:            id,
			Het:           het,
			Wants:         []Want{{Profile: profile, Count: 1}},
			EligibleNodes: on,
			RunTime:       50,
			TimeLimit:     50,
		}
	}
	two := func(j *Job) *Job {
		j.Wants[0].Count = 2
		return j
	}
	for _, c := range []struct {
		what   string
		nodes  [][]place.GPU
		jobs   []*Job
		served []uint32
		at     float64 // of the reservation; 0: none
	}{
		{"one node has room for both", [][]place.GPU{free(), free()},
			[]*Job{job(1, 1, "1g.5gb"), job(2, 1, "2g.10gb")}, []uint32{1, 2}, 0},
		{"the second is limited to the node that the first would get", [][]place.GPU{free(), free()},
			[]*Job{job(1, 1, "1g.5gb"), job(2, 1, "2g.10gb", 0)}, []uint32{1, 2}, 0},
		{"the policy would give the first an idle instance on the second node", [][]place.GPU{free(), idle()},
			[]*Job{job(1, 1, "1g.5gb"), two(job(2, 1, "1g.5gb"))}, []uint32{1, 2}, 0},
		{"one node for two", [][]place.GPU{free(), full()},
			[]*Job{job(1, 1, "1g.5gb"), job(2, 1, "2g.10gb")}, []uint32{}, math.Inf(1)},
		{"one node for two until 100", [][]place.GPU{free(), until(100)},
			[]*Job{job(1, 1, "1g.5gb"), job(2, 1, "2g.10gb")}, []uint32{}, 100},
		{"a job that ends before", [][]place.GPU{free(), until(100)},
			[]*Job{job(1, 1, "1g.5gb"), job(2, 1, "2g.10gb"), job(3, 0, "3g.20gb")}, []uint32{3}, 100},
		{"two het jobs that need the same nodes", [][]place.GPU{free(), free(), until(100)},
			[]*Job{job(1, 1, "7g.40gb"), job(2, 1, "7g.40gb"), job(3, 3, "4g.20gb"), job(4, 3, "4g.20gb")},
			[]uint32{1, 2}, 50},
		{"slurmctld would give the first component the second's node", [][]place.GPU{free(), free()},
			[]*Job{job(1, 1, "1g.5gb"), job(2, 1, "1g.5gb", 0)}, []uint32{}, math.Inf(1)},
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

func drawNodes(t *rapid.T) (nodes [][]place.GPU) {
	for range rapid.IntRange(1, 4).Draw(t, "nodes") {
		nodes = append(nodes, drawNode(t))
	}
	return nodes
}

// TestComponentsStart checks that slurmctld starts the components that are on offer.
func TestComponentsStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		var jobs []*Job
		for het := range uint32(rapid.IntRange(1, 4).Draw(t, "jobs")) {
			for range rapid.IntRange(1, 3).Draw(t, "components") {
				g := rapid.SampledFrom(slices.Concat(nodes...)).Draw(t, "of")
				profile := g.Model.Profiles[rapid.IntRange(0, len(g.Model.Profiles)-1).Draw(t, "profile")].Name
				j := &Job{
					ID:        uint32(len(jobs) + 1),
					Het:       het + 1,
					Wants:     []Want{{Profile: profile, Count: rapid.IntRange(1, 2).Draw(t, "count")}},
					Nodes:     rapid.IntRange(1, 2).Draw(t, "nodes"),
					RunTime:   50,
					TimeLimit: 50,
				}
				for n := range nodes {
					if rapid.IntRange(0, 3).Draw(t, "on") > 0 {
						j.EligibleNodes = append(j.EligibleNodes, n)
					}
				}
				if len(j.EligibleNodes) == 0 {
					j.EligibleNodes = nil
				}
				jobs = append(jobs, j)
			}
		}
		cl := NewCluster(place.Reach, nodes...)
		p := Make(cl, jobs, false)
		nodeOf := cl.nodeOf()
		free := make([]map[string]int, len(nodes)) // the counts that slurmctld has
		for n := range nodes {
			free[n] = map[string]int{}
			for _, k := range cl.Nodes[n] {
				for i := range p.Offers[k].Indices() {
					free[n][p.Name(cl.Pool.GPU(k).Model, Spot{GPU: k, Placement: i})]++
				}
			}
		}
		for k, group := range byStart(jobs) {
			used := map[int]uint32{}
			got := 0
			for i, spots := range p.Spots[k : k+len(group)] {
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
			if got == 0 {
				continue
			}
			// Backfill takes the components in their order, and for each the first nodes that have its slices and that
			// no earlier component has (backfill.c, 22.05.8).
			taken := map[int]bool{}
			for _, j := range group {
				need, w := j.Nodes, j.Wants[0]
				for n := range nodes {
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
	})
}

// TestComponentsFindNodes checks that a het job that is alone in the queue is served if there is a choice of a node for
// each component with which slurmctld would start it.
func TestComponentsFindNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		var jobs []*Job
		for range rapid.IntRange(2, 3).Draw(t, "components") {
			g := rapid.SampledFrom(slices.Concat(nodes...)).Draw(t, "of")
			j := &Job{
				ID:  uint32(len(jobs) + 1),
				Het: 1,
				Wants: []Want{
					{
						Profile: g.Model.Profiles[rapid.IntRange(0, len(g.Model.Profiles)-1).Draw(t, "profile")].Name,
						Count:   rapid.IntRange(1, 2).Draw(t, "count"),
					},
				},
				RunTime:   50,
				TimeLimit: 50,
			}
			if rapid.Bool().Draw(t, "named") {
				j.EligibleNodes = []int{rapid.IntRange(0, len(nodes)-1).Draw(t, "on")}
			}
			jobs = append(jobs, j)
		}
		named := map[int]bool{} // slurmctld keeps a node that one component names from the others (proc_req.c, 22.05.8)
		for _, j := range jobs {
			if len(j.EligibleNodes) == 1 {
				named[j.EligibleNodes[0]] = true
			}
		}
		for _, j := range jobs {
			if len(j.EligibleNodes) != 1 && len(named) > 0 {
				j.EligibleNodes = []int{}
				for n := range nodes {
					if !named[n] {
						j.EligibleNodes = append(j.EligibleNodes, n)
					}
				}
			}
		}
		cl := NewCluster(place.Reach, nodes...)
		all := make([][]Spot, len(jobs))
		var could func(k int, used map[int]bool) bool
		could = func(k int, used map[int]bool) bool {
			if k == len(jobs) {
				return cl.starts(jobs, all)
			}
			for n := range nodes {
				if used[n] || !jobs[k].CanStartOn(n) {
					continue
				}
				j := *jobs[k]
				j.EligibleNodes = []int{n}
				if all[k], _ = cl.Find(&j, nil); all[k] == nil {
					continue
				}
				used[n] = true
				if could(k+1, used) {
					return true
				}
				delete(used, n)
			}
			return false
		}
		want := could(0, map[int]bool{})
		p := Make(cl, jobs, false)
		if got := p.Spots[0] != nil; got != want {
			t.Fatalf("served: %v, possible: %v", got, want)
		}
	})
}

// TestAnotherModel checks that the equivalent profile of another GPU model is offered under the requested name if there
// is no room for the requested profile, and that an earlier job that wants the requested name gets it first.
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
		as     int // of the H100, how many are on offer as 2g.10gb
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
	// After a restart the agent finds room for the equivalent profiles that the jobs were given.
	spots, ok := Pack([]place.GPU{free}, []*Job{job(1, "2g.20gb"), job(2, "2g.20gb"), job(3, "2g.20gb")})
	if !ok || len(spots) != 3 {
		t.Errorf("three slices on an empty H100: %v", spots)
	}
	wants := []Want{{Profile: "2g.10gb", Alternatives: []string{"2g.20gb"}}, {Profile: "2g.20gb"}}
	if got := RequestedAs(wants, "2g.20gb"); got != "2g.20gb" {
		t.Errorf("requested as %s", got)
	}
}
