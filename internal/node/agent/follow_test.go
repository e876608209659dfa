package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"caelum/internal/controller/watch"
	"caelum/internal/core/part"
	"caelum/internal/core/place"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// newPlanned returns a fleet whose agents follow a planner.
func newPlanned(t testing.TB, nodes int) (*fleet, *watch.Watcher) {
	f := newFleet(t, nodes)
	w := f.planner(f.fake, place.Reach)
	f.publish() // the state of the GPUs
	f.round(w)
	f.publish()
	if n := f.following(); n != nodes {
		t.Fatalf("%d of %d agents follow the planner", n, nodes)
	}
	return f, w
}

// TestFollow checks that agents publish their parts, and list neither the nodes nor the jobs.
func TestFollow(t *testing.T) {
	f, w := newPlanned(t, 3)
	id := f.submit("7g.40gb:1")
	f.round(w)
	before := len(f.fake.Calls())
	f.publish()
	if !f.runs(id) {
		t.Error("the job did not start")
	}
	f.publish()
	for _, c := range f.fake.Calls()[before:] {
		if slices.Contains([]string{"Nodes", "Queue", "Jobs"}, c.Op) {
			t.Errorf("an agent called %v", c)
		}
	}
	f.round(w)
	f.publish()
	if err := f.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	again := []uint32{f.submit("7g.40gb:1"), f.submit("7g.40gb:1"), f.submit("7g.40gb:1"), f.submit("7g.40gb:1")}
	for range 3 {
		f.round(w)
		f.publish()
		f.runs(id)
	}
	for k, id := range again {
		if f.runs(id) != (k < 3) {
			t.Errorf("job %d of %d: started %v", k, len(again), k >= 3)
		}
	}
}

// written returns the writes since a call, in the form "SetNodeExtra n00".
func (f *fleet) written(since int) (all []string) {
	for _, c := range f.fake.Writes()[since:] {
		all = append(all, c.Op+" "+c.Node)
	}
	slices.Sort(all)
	return all
}

// TestDeferredParts checks which parts the planner writes between heartbeats, what the agents write, and when an agent
// notifies the watcher.
func TestDeferredParts(t *testing.T) {
	f := newFleet(t, 4)
	f.stopClock()
	w := f.planner(f.fake, place.Reach)
	for range 2 {
		f.publish()
		f.round(w)
	}
	f.publish()
	var notified atomic.Int64
	for _, a := range f.agents {
		a.publisher.Raised = func() { notified.Add(1) }
	}
	check := func(step string, want []string, do func()) {
		t.Helper()
		before := len(f.fake.Writes())
		do()
		if got := f.written(before); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", step, got, want)
		}
	}
	id := f.submit("7g.40gb:1")
	check("a job whose slice is offered waits", nil, func() { f.round(w) })
	if !f.runs(id) {
		t.Fatal("the job does not start")
	}
	j, _ := f.fake.Job(t.Context(), id)
	check("the agent publishes the start", []string{"SetNodeExtra " + j.Nodes[0]}, f.publish)
	if notified.Load() != 1 {
		t.Errorf("%d notifications after the start", notified.Load())
	}
	before := len(f.fake.Writes())
	f.round(w)
	all := f.written(before)
	if !slices.Contains(all, "SetNodeComment n03") || slices.Contains(all, "SetNodeComment "+j.Nodes[0]) {
		t.Errorf("no node offers the profile: %v", all)
	}
	f.publish()
	check("nothing changes", nil, func() { f.round(w); f.publish() })
	f.advance(part.Every)
	before = len(f.fake.Writes())
	f.round(w)
	if all := f.written(before); !slices.Contains(all, "SetNodeComment "+j.Nodes[0]) {
		t.Errorf("heartbeat: %v", all)
	}
	f.publish()
	if err := f.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	if notified.Load() != 2 {
		t.Errorf("%d notifications after the end", notified.Load())
	}
	check("the end moves an offer", nil, func() { f.round(w) })
}

// TestPlannerEnds checks that agents plan for themselves once the planner has ended or can no longer write, and that
// they follow the next planner.
func TestPlannerEnds(t *testing.T) {
	f, w := newPlanned(t, 2)
	fails := errors.New("permission denied")
	for name, stop := range map[string]func(){
		"killed": func() {},
		"cannot write": func() {
			f.fake.Before(func(c slurmtest.Call) error {
				if c.Op == "SetNodeComment" {
					return fails
				}
				return nil
			})
			for range 10 {
				f.advance(part.Every)
				if _, err := w.Round(context.Background()); !errors.Is(err, fails) {
					t.Errorf("the planner returned %v", err)
				}
			}
		},
	} {
		stop()
		f.advance(part.Expiry)
		id := f.submit("7g.40gb:1")
		f.publish()
		if f.following() != 0 || !f.runs(id) {
			t.Errorf("%s: %d agents follow the planner, and the job has started: %v", name, f.following(), f.runs(id))
		}
		if err := f.fake.Finish(id); err != nil {
			t.Fatal(err)
		}
		f.fake.Before(nil)
		w = f.planner(f.fake, place.Reach)
		f.round(w) // it waits: the last heartbeat may belong to an active planner
		f.advance(part.Expiry)
		f.round(w)
		f.publish()
		if f.following() != 2 {
			t.Errorf("%s: %d agents follow the next planner", name, f.following())
		}
	}
}

// TestPlannerRestarts checks that a watcher takes over immediately from its host's earlier watcher, and that the
// latter yields if it is still running.
func TestPlannerRestarts(t *testing.T) {
	f, first := newPlanned(t, 2)
	second := f.plannerOn(fmt.Sprint("ctl", f.hosts), f.fake, place.Reach)
	id := f.submit("7g.40gb:1")
	f.round(second)
	f.publish()
	if f.following() != 2 || !f.runs(id) {
		t.Errorf("%d agents follow the second watcher, and the job has started: %v", f.following(), f.runs(id))
	}
	before := len(f.fake.Writes())
	f.submit("7g.40gb:1")
	f.round(first)
	if n := len(f.fake.Writes()) - before; n != 0 {
		t.Errorf("the first watcher wrote %d times after the second watcher had started", n)
	}
	f.round(second)
	if n := len(f.fake.Writes()) - before; n == 0 {
		t.Error("the second watcher wrote nothing")
	}
}

// TestTwoPlanners checks that a planner yields to another one, and takes over once that has ended.
func TestTwoPlanners(t *testing.T) {
	f, first := newPlanned(t, 2)
	second := f.planner(f.fake, place.Lifetime{})
	for range 10 {
		f.advance(part.Every)
		f.round(first)
		before := len(f.fake.Writes())
		f.round(second)
		if n := len(f.fake.Writes()) - before; n != 0 {
			t.Fatalf("the second planner wrote %d times", n)
		}
	}
	f.advance(part.Expiry)
	f.round(second)
	id := f.submit("7g.40gb:1")
	f.round(second)
	before := len(f.fake.Writes())
	f.round(first) // it hung, and continues
	if n := len(f.fake.Writes()) - before; n != 0 {
		t.Errorf("the first planner wrote %d times after the second planner had taken its place", n)
	}
	f.publish()
	if f.following() != 2 || !f.runs(id) {
		t.Errorf("%d agents follow the second planner, and the job has started: %v", f.following(), f.runs(id))
	}
}

// TestRestartForgetsAnUnseenJob checks that an agent that follows a part does not offer the slices of a job that
// slurmctld started, and then forgot to count when it restarted, while the agent could not reach slurmctld.
func TestRestartForgetsAnUnseenJob(t *testing.T) {
	f, w := newPlanned(t, 1)
	id := f.submit("7g.40gb:1")
	f.round(w)
	f.publish()
	f.fake.Prolog(nil)
	f.fake.Tick()
	if j, err := f.fake.Job(t.Context(), id); err != nil || !j.Holds() {
		t.Fatalf("%+v, %v", j, err)
	}
	f.fake.Restart()
	f.publish()
	n, err := f.fake.Node(t.Context(), "n00")
	if err != nil {
		t.Fatal(err)
	}
	if f.following() != 1 {
		t.Error("the agent makes its own plan")
	}
	for profile, free := range n.Free("mig") {
		if profile != slurm.ClosedType && free > 0 {
			t.Errorf("%d of %s are free", free, profile)
		}
	}
}

// TestFailureAfterLowering checks that an agent whose pass failed between its two writes lists the jobs in the next
// pass, even though the totals are the ones that it wrote last: a job may have started before the first write, and
// slurmctld may then have restarted and forgotten it.
func TestFailureAfterLowering(t *testing.T) {
	f, w := newPlanned(t, 1)
	f.submit("7g.40gb:1")
	f.round(w)
	f.publish()
	fails := true
	f.fake.Before(func(c slurmtest.Call) error {
		if c.Op == "Node" && fails && f.fake.Writes()[len(f.fake.Writes())-1].Op == "UpdateNode" {
			return errors.New("slurmctld cannot be reached")
		}
		return nil
	})
	f.fake.Prolog(nil)
	empty := part.WithBeat(part.With("", "1;beat/n00"), "a", 1)
	if err := f.fake.SetNodeComment(t.Context(), "n00", empty); err != nil {
		t.Fatal(err)
	}
	before := len(f.fake.Writes())
	if err := f.agents["n00"].Publish(t.Context()); err == nil || len(f.fake.Writes()) != before+1 {
		t.Fatalf("%v, %v", err, f.fake.Writes()[before:])
	}
	fails = false
	calls := len(f.fake.Calls())
	f.publish()
	if !slices.ContainsFunc(f.fake.Calls()[calls:], func(c slurmtest.Call) bool { return c.Op == "Jobs" }) {
		t.Errorf("the agent does not list the jobs: %v", f.fake.Calls()[calls:])
	}
}

// TestUnknownJob checks that a pass finds a job that has started on a slice that the next part no longer offers.
func TestUnknownJob(t *testing.T) {
	w := newWorld(t, 1, tightest)
	w.fake.Prolog(nil)
	w.publish()
	beat := func(n int, p part.Part) {
		p.Beat = "n1"
		w.fake.SetNodeComment(t.Context(), "n1", part.WithBeat(part.With("", p.Text()), "a", n))
	}
	small := part.Part{Offers: []part.Offer{{Spot: part.Spot{Profile: "3g.20gb", Start: 0}}}}
	beat(1, small)
	w.publish()
	if !w.agent.publisher.Follows() || w.offers()["3g.20gb"] != 1 {
		t.Fatalf("offers %v", w.offers())
	}
	id := w.submit(job(1, "3g.20gb:1"))
	w.fake.Tick()
	beat(2, part.Part{Offers: []part.Offer{{Spot: part.Spot{Profile: "7g.40gb", Start: 0}}}})
	w.publish()
	if n := w.offers()["7g.40gb"]; n != 0 || w.state(id) != "RUNNING" {
		t.Errorf("%d of 7g.40gb are on offer beside job %d, which is %s", n, id, w.state(id))
	}
}

// TestLeaseDuringListing checks the jobs on the node after two jobs got their leases while the agent was waiting for a
// list of the jobs. One of these jobs has already ended when the agent gets the list.
func TestLeaseDuringListing(t *testing.T) {
	w := newWorld(t, 1, tightest)
	w.publish()
	p := part.Part{Beat: "n1", Offers: []part.Offer{{Spot: part.Spot{Profile: "3g.20gb", Start: 0}},
		{Spot: part.Spot{Profile: "1g.5gb", Start: 5}}, {Spot: part.Spot{Profile: "1g.5gb", Start: 6}}}}
	w.fake.SetNodeComment(t.Context(), "n1", part.WithBeat(part.With("", p.Text()), "a", 1))
	w.publish()
	if !w.agent.publisher.Follows() || w.offers()["1g.5gb"] != 2 {
		t.Fatalf("offers %v", w.offers())
	}
	w.fake.Prolog(nil)
	w.submit(job(1, "3g.20gb:1")) // its prolog has not run, so the next pass lists the jobs
	w.fake.Tick()
	w.fake.Prolog(func(j slurm.Job, _ string) { w.prolog(j) })
	var late []uint32
	var ended sync.WaitGroup
	w.fake.After(func(c slurmtest.Call) {
		if c.Op != "Jobs" || late != nil {
			return
		}
		late = []uint32{w.submit(job(1, "1g.5gb:1")), w.submit(job(1, "1g.5gb:1"))}
		w.fake.Tick()
		w.fake.End(late[1])
		ended.Go(w.fake.RunEpilogs) // the epilog waits for the next pass
		for has := true; has; time.Sleep(time.Millisecond) {
			w.agent.node.Lock()
			has = w.agent.node.Leases[late[1]] != nil
			w.agent.node.Unlock()
		}
	})
	w.publish()
	ended.Wait()
	if len(late) != 2 || len(w.lease(late[0]).Slices) != 1 {
		t.Fatalf("jobs %v, lease %+v", late, w.leases)
	}
	w.agent.node.Lock()
	defer w.agent.node.Unlock()
	if _, known := w.agent.node.Here[late[0]]; !known {
		t.Errorf("the agent does not know the running job %d", late[0])
	}
	if _, known := w.agent.node.Here[late[1]]; known {
		t.Errorf("the agent takes job %d, which has ended, for a job on the node", late[1])
	}
}

// TestSmallSliceUnderLargeName checks that a part cannot make the agent offer a slice that is smaller than the profile
// that slurmctld counts.
func TestSmallSliceUnderLargeName(t *testing.T) {
	w := newWorld(t, 1, tightest)
	w.publish()
	for k, c := range []struct {
		profile, as string
		offers      int
	}{
		{"1g.5gb", "3g.20gb", 0}, {"3g.20gb", "4g.20gb", 0}, {"3g.20gb", "1g.5gb", 1}, {"2g.10gb", "1g.6gb", 1},
		{"1g.5gb", "2g.12gb", 0}, {"1g.5gb", "closed", 0},
	} {
		p := part.Part{Beat: "n1", Offers: []part.Offer{{Spot: part.Spot{Profile: c.profile}, As: c.as}}}
		w.fake.SetNodeComment(t.Context(), "n1", part.WithBeat(part.With("", p.Text()), "a", k))
		w.publish()
		if n := w.offers()[c.as]; n != c.offers || len(w.offers()) != c.offers {
			t.Errorf("%s as %s: offers %v", c.profile, c.as, w.offers())
		}
	}
}

// TestAnyPart changes the parts arbitrarily while jobs start and end. Each started job must get a slice that is at
// least as large as its profile, and no prolog may fail or requeue its job.
func TestAnyPart(t *testing.T) {
	f, _ := newPlanned(t, 2)
	profiles := []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
	var live []uint32
	beats := 100
	rapid.Check(t, func(t *rapid.T) {
		beats++
		for _, name := range f.names {
			p := part.Part{Beat: f.names[0]}
			for range rapid.IntRange(0, 9).Draw(t, "offers") {
				s := part.Spot{Profile: rapid.SampledFrom(profiles).Draw(t, "profile")}
				s.Start = rapid.IntRange(0, 7).Draw(t, "start")
				p.Offers = append(p.Offers, part.Offer{Spot: s})
			}
			comment := part.With("", p.Text())
			if name == p.Beat {
				comment = part.WithBeat(comment, "a", beats)
			}
			f.fake.SetNodeComment(context.Background(), name, comment)
		}
		if rapid.Bool().Draw(t, "submit") {
			live = append(live, f.submit(rapid.SampledFrom(profiles).Draw(t, "job")+":1"))
		}
		f.publish()
		f.fake.Tick()
		if rapid.Bool().Draw(t, "publish during the prologs") {
			f.publish()
		}
		f.prologs.Wait()
		live = slices.DeleteFunc(live, func(id uint32) bool {
			j, err := f.fake.Job(context.Background(), id)
			if err != nil || j.State == "RUNNING" && len(f.leases[id].Slices) != 1 || j.Restarts > 0 {
				t.Fatalf("job %d: %s, %d restarts, lease %+v, %v", id, j.State, j.Restarts, f.leases[id], err)
			}
			ends := j.State == "RUNNING" && rapid.Bool().Draw(t, "end")
			if ends {
				if err := f.fake.Finish(id); err != nil {
					t.Fatal(err)
				}
			}
			return ends
		})
	})
}

// TestHeldJobOfAPart checks that an agent that follows a planner releases a held job.
func TestHeldJobOfAPart(t *testing.T) {
	f, w := newPlanned(t, 2)
	j := job(1, "7g.40gb:1")
	j.AdminComment = "caelum:held"
	id := f.fake.SubmitHeld(j)
	for range 3 {
		f.fake.Advance(time.Minute)
		f.round(w)
		f.publish()
	}
	if !f.runs(id) {
		held, err := f.fake.Job(context.Background(), id)
		t.Errorf("the held job did not start: %s %s %v", held.State, held.Reason, err)
	}
}
