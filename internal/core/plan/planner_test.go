package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// TestPlannerAfterEvents makes many random events and, after each, compares a Planner's view and plan with the view
// that New returns for the same snapshot, and with its plan.
func TestPlannerAfterEvents(t *testing.T) {
	placed, reserved := 0, 0
	for seed := range uint64(10) {
		w := newWorld(t, seed+100, 8)
		policy := []string{"lifetime", "lifetime", "best-fit", "mecc", "reach"}[seed%5]
		settings, err := ParseSettings(policy, []string{SizingAdaptive, SizingTightest}[seed%2], float64(seed%3)/2)
		if err != nil {
			t.Fatal(err)
		}
		without := func(n slurm.Node) bool { return w.left[n.Name] }
		planner := NewPlanner(settings)
		for event := range 100 {
			v, fresh := planner.View(w.snapshot, without), New(w.snapshot, settings, without)
			before := viewText(v)
			p := v.Plan()
			for _, c := range []struct{ what, got, want string }{
				{"view", before, viewText(fresh)},
				{"plan", planText(p), planText(fresh.Plan())},
				{"view after the plan", viewText(v), before},
			} {
				if c.got != c.want {
					got, want := firstDifference(c.got, c.want)
					t.Fatalf("seed %d, event %d: the %s differs:\n got %s\nwant %s", seed, event, c.what, got, want)
				}
			}
			for _, spots := range p.Spots {
				placed += len(spots)
			}
			if p.Reserved != nil {
				reserved++
			}
			w.event(v, firstSpots(v, p))
		}
	}
	if placed == 0 || reserved == 0 {
		t.Errorf("the plans contain %d spots and %d reservations", placed, reserved)
	}
	t.Logf("the plans contain %d spots and %d reservations", placed, reserved)
}

// firstDifference returns the first lines that differ.
func firstDifference(a, b string) (string, string) {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for k := range min(len(x), len(y)) {
		if x[k] != y[k] {
			return x[k], y[k]
		}
	}
	return fmt.Sprint(len(x), " lines"), fmt.Sprint(len(y), " lines")
}

// viewText returns everything in a view on which a plan depends.
func viewText(v *View) string {
	s := &strings.Builder{}
	fmt.Fprint(s, v.Nodes, v.Now, v.Making, v.WholeShare, v.Speculative, v.MeanDuration, v.Arrivals, v.kinds)
	for _, g := range v.kinds {
		fmt.Fprint(s, v.WeightsOn(g.Model))
	}
	for k, n := range v.Members {
		fmt.Fprint(s, "\n", n, v.known[k].parsed.Since)
		for _, g := range v.Nodes[k] {
			fmt.Fprintf(s, "\n\t%+v", v.Pool.GPU(g))
			for i := range v.Pool.GPU(g).Busy.Indices() {
				fmt.Fprint(s, " ", v.Pool.FreeAt(g, i))
			}
		}
	}
	for k, j := range v.Jobs {
		fmt.Fprintf(s, "\n%+v %+v", *j, v.Waiting[k])
	}
	return s.String()
}

// planText formats a plan.
func planText(p offer.Plan) string {
	text := fmt.Sprint(p.Offers, p.AdvertisedAs, p.Spots, p.OverQuota, p.Price)
	for _, r := range []*offer.Reservation{p.Reserved, p.Kept} {
		if r != nil {
			text += fmt.Sprintf("%+v", *r)
		}
	}
	return text
}

// firstSpots returns the first spot of each job, as the member, the index of the GPU on the member and the placement.
func firstSpots(v *View, p offer.Plan) (all [][]int) {
	for _, spots := range p.Spots {
		if len(spots) == 0 {
			all = append(all, nil)
			continue
		}
		m := v.Pool.GPU(spots[0].GPU).Node
		all = append(all, []int{m, spots[0].GPU - v.Nodes[m][0], spots[0].Placement})
	}
	return all
}

// TestPlannerAfterOtherRecords changes records on which the state of a node depends although the node's own record does
// not change, and records on which the jobs depend although their own records do not change.
func TestPlannerAfterOtherRecords(t *testing.T) {
	settings, err := ParseSettings("lifetime", SizingAdaptive, 0)
	if err != nil {
		t.Fatal(err)
	}
	private := node(t, "n1")
	gpus := []place.GPU{a100(t, "3g.20gb@0")}
	private.Extra = WithState("", Text(State{GPUs: gpus, Since: time.Unix(1e9-60, 0), Private: true}))
	small := a100(t)
	small.Offerable = small.Model.OfProfile(0)
	sized := waits(9, "1g.5gb", 1, 1)
	sized.AdminComment = tags.Size + "1g.5gb"
	ended, unsized := snapshotOf([]slurm.Node{private}), snapshotOf([]slurm.Node{node(t, "n1", small)}, sized)
	busy, large := ended, unsized
	busy.Queue.All = []slurm.Job{runs(1, "n1", "3g.20gb", 900)}
	large.Nodes = []slurm.Node{node(t, "n1", a100(t))}
	full := node(t, "n1", a100(t))
	full.CPUs, full.CPUsFree = 64, 0
	one, two := waits(1, "1g.5gb", 1, 1), waits(2, "1g.5gb", 1, 1)
	one.CPUs, one.UID, one.Reason, two.CPUs, two.UID, two.Reason = 1, 1, "Priority", 1, 2, "Priority"
	resumed := snapshotOf([]slurm.Node{full}, one, two)
	resumed.Queue.All = []slurm.Job{runs(3, "n1", "1g.5gb", 60)}
	resumed.Queue.All[0].CPUs = 64
	paused := resumed
	paused.paused = map[uint32]bool{2: true}
	one = one.Clone()
	one.AdminComment = tags.RunTime + "60"
	learned := snapshotOf([]slurm.Node{full}, one, two)
	learned.Queue.All = resumed.Queue.All
	pair := snapshotOf([]slurm.Node{node(t, "n1", a100(t), a100(t))}, two)
	single := snapshotOf([]slurm.Node{node(t, "n1", a100(t))}, two)
	for _, c := range []struct {
		what        string
		first, then Snapshot
	}{
		{"the job on a node with private ends has ended", busy, ended},
		{"a job runs on a node with private ends", ended, busy},
		{"a node no longer offers large profiles", large, unsized},
		{"a node offers larger profiles", unsized, large},
		{"reservations for one of two equal requests are suspended", resumed, paused},
		{"the run time of a job has been learned", resumed, learned},
		{"a node has lost a GPU", pair, single},
		{"a node has got a GPU", single, pair},
	} {
		planner := NewPlanner(settings)
		before := viewText(planner.View(c.first, nil))
		got, want := firstDifference(viewText(planner.View(c.then, nil)), viewText(New(c.then, settings, nil)))
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", c.what, got, want)
		}
		if before == viewText(New(c.then, settings, nil)) {
			t.Errorf("%s: the views do not differ", c.what)
		}
	}
}
