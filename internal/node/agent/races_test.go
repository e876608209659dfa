package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"caelum/internal/node/api"
	"caelum/internal/slurm/slurmtest"
)

// Each test in this file checks one row of the "Races" table in docs/internals/publication.md. TestSoak combines all
// races.

// once makes slurmctld call do after it has answered the first call of the given kind.
func (w *world) once(op string, do func()) {
	done := false
	w.fake.After(func(c slurmtest.Call) {
		if c.Op == op && !done {
			done = true
			do()
		}
	})
}

// TestJobTakesWithdrawnOffer starts a job on an offer that a pass is about to withdraw. The job must get its slice, and
// the pass must not publish the offers that would replace the withdrawn offer.
func TestJobTakesWithdrawnOffer(t *testing.T) {
	w := newWorld(t, 1)
	small := w.submit(job(1, "1g.5gb:1"))
	if err := w.fake.Hold(context.Background(), small); err != nil {
		t.Fatal(err)
	}
	w.publish()
	if w.offers()["1g.5gb"] == 0 {
		t.Fatal("an idle GPU offers no 1g.5gb")
	}
	w.submit(job(1, "7g.40gb:1"))
	w.once("Queue", func() { // the pass has read the queue, and will offer only 7g.40gb
		if err := w.fake.Release(context.Background(), small); err != nil {
			t.Error(err)
		}
		if started := w.fake.Tick(); len(started) != 1 || started[0] != small {
			t.Errorf("started %v", started)
		}
	})
	w.publish()
	if l := w.lease(small); len(l.Slices) != 1 {
		t.Errorf("the small job: %+v", l)
	}
	if n := w.offers()["7g.40gb"]; n != 0 {
		t.Errorf("%d of 7g.40gb on offer alongside a 1g.5gb", n)
	}
}

// TestJobStartsWhileOffersRise starts a job while a pass only adds offers. The job must get a slice that is in both
// the old and the new plan, and the agent must be able to carve the remaining offers.
func TestJobStartsWhileOffersRise(t *testing.T) {
	w := newWorld(t, 1)
	w.submit(job(1, "3g.20gb:1"))
	w.publish()
	second := w.submit(job(1, "3g.20gb:1"))
	w.once("Queue", func() { w.fake.Tick() })
	w.publish()
	if free := w.offers(); free["3g.20gb"] > 1 {
		t.Errorf("on offer alongside the first 3g.20gb: %v", free)
	}
	w.prologs.Wait() // the pass may not have offered the second slice, because the prolog ran at the same time
	w.publish()
	w.fake.Tick()
	if l := w.lease(second); len(l.Slices) != 1 {
		t.Errorf("the second: %+v", l)
	}
	w.publish()
	if free := w.offers(); len(free) > 0 {
		t.Errorf("on offer alongside two 3g.20gb: %v", free)
	}
}

// TestReleasedSliceCountsOnce starts a job on a slice that was released after the pass had read the node and before it
// made the plan. If the job gets its lease before the pass raises the totals, the pass must count the slice either as
// offered or as used, but not as both.
func TestReleasedSliceCountsOnce(t *testing.T) {
	w := newWorld(t, 1)
	first := w.startNow("4g.20gb")
	second := w.submit(job(1, "4g.20gb"))
	w.publish()
	pauses := 0
	w.agent.publisher.Pause = func() { // called before the totals are lowered and before they are raised
		if pauses++; pauses != 2 {
			return
		}
		if started := w.fake.Tick(); len(started) != 1 || started[0] != second {
			t.Errorf("started %v, want job %d", started, second)
		}
		if l := w.lease(second); len(l.Slices) != 1 {
			t.Errorf("the second job: %+v", l)
		}
	}
	w.once("Queue", func() {
		if err := w.fake.Finish(first); err != nil {
			t.Error(err)
		}
	})
	w.publish()
	if node, err := w.fake.Node(t.Context(), "n1"); err != nil || node.Gres.Profiles()["4g.20gb"] > 1 {
		t.Errorf("alongside a job that uses the only 4g.20gb, the pass raised the totals to %v (%v)", node.Gres, err)
	}
	if pauses < 2 {
		t.Errorf("the pass paused %d times", pauses)
	}
}

// TestAllStartInOneCycle starts jobs on all offers in one scheduling cycle.
func TestAllStartInOneCycle(t *testing.T) {
	w := newWorld(t, 1)
	var ids []uint32
	for range 3 {
		ids = append(ids, w.submit(job(1, "2g.10gb:1")))
	}
	ids = append(ids, w.submit(job(1, "1g.5gb:1")))
	w.publish()
	if started := w.fake.Tick(); len(started) != len(ids) {
		t.Fatalf("started %v of %v", started, ids)
	}
	for _, id := range ids {
		if l := w.lease(id); len(l.Slices) != 1 {
			t.Errorf("job %d: %+v", id, l)
		}
	}
}

// startedOnly starts a job without its prolog.
func (w *world) startedOnly(slices string) (id uint32, req api.LeaseRequest) {
	w.t.Helper()
	w.fake.Prolog(nil)
	id = w.startNow(slices)
	if s := w.state(id); s != "RUNNING" && s != "CONFIGURING" {
		w.t.Fatalf("the job is %s", s)
	}
	return id, api.LeaseRequest{UID: 20001, Slots: []int{0}}
}

// nothingHeld checks that a job holds no slice after its epilog, and that the agent offers the whole GPU to a job
// that requests it.
func (w *world) nothingHeld() {
	w.t.Helper()
	w.fake.RunEpilogs()
	w.submit(job(1, "7g.40gb:1"))
	w.publish()
	if n := w.offers()["7g.40gb"]; n != 1 {
		w.t.Errorf("%d of 7g.40gb on offer on an idle GPU", n)
	}
	status, _ := w.agent.Status(context.Background())
	if len(status.Leases) > 0 {
		w.t.Errorf("leases %+v", status.Leases)
	}
}

// TestCancelledDuringProlog cancels a job after its prolog has read its record. The epilog must release the lease.
func TestCancelledDuringProlog(t *testing.T) {
	w := newWorld(t, 1)
	id, req := w.startedOnly("2g.10gb:1")
	w.once("Job", func() {
		if err := w.fake.Cancel(id); err != nil {
			t.Error(err)
		}
	})
	if l, err := w.agent.Lease(context.Background(), id, req); err != nil || len(l.Slices) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	w.nothingHeld()
}

// TestCancelledBeforeProlog cancels a job before its prolog has read its record. The agent must refuse the job, and
// slurmctld must not drain the node.
func TestCancelledBeforeProlog(t *testing.T) {
	w := newWorld(t, 1)
	id, req := w.startedOnly("2g.10gb:1")
	if err := w.fake.Cancel(id); err != nil {
		t.Fatal(err)
	}
	if l, err := w.agent.Lease(context.Background(), id, req); err != nil || l.Error == "" || len(l.Slices) > 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	w.nothingHeld()
}

// TestRequeuedDuringProlog requeues a job while the agent carves its slice. The epilog, which already sends the next
// restart count, must release the slice. The next run must get its own slice, which a late epilog of the first run must
// not release.
func TestRequeuedDuringProlog(t *testing.T) {
	w := newWorld(t, 1)
	id, req := w.startedOnly("2g.10gb:1")
	w.once("Job", func() {
		if err := w.fake.RequeueHold(context.Background(), id); err != nil {
			t.Error(err)
		}
	})
	if l, err := w.agent.Lease(context.Background(), id, req); err != nil || len(l.Slices) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	w.fake.RunEpilogs()
	w.fake.Advance(5 * time.Minute) // slurmctld delays a requeued job by two minutes
	if err := w.fake.Release(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	w.publish()
	w.fake.Tick()
	j, err := w.fake.Job(context.Background(), id)
	if err != nil || !j.Holds() || j.Restarts != 1 {
		t.Fatalf("%s after %d restarts, %v", j.State, j.Restarts, err)
	}
	req.Restart = 1
	l, err := w.agent.Lease(context.Background(), id, req)
	if err != nil || len(l.Slices) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	if err := w.agent.Release(context.Background(), id, 0); err != nil {
		t.Fatal(err)
	}
	if now, err := w.agent.Job(context.Background(), id); err != nil || now.Restart != 1 {
		t.Errorf("after a late epilog of the first run: %+v, %v", now, err)
	}
	if err := w.fake.End(id); err != nil {
		t.Fatal(err)
	}
	w.nothingHeld()
}

// TestDrainingNodeOffersNothing checks that a draining node offers no slices, and that running jobs keep their slices.
func TestDrainingNodeOffersNothing(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startNow("2g.10gb:1")
	w.lease(id)
	if err := w.fake.Drain("n1", "maintenance"); err != nil {
		t.Fatal(err)
	}
	w.submit(job(1, "3g.20gb:1"))
	w.publish()
	if free := w.offers(); len(free) > 0 {
		t.Errorf("on offer: %v", free)
	}
	if s, _ := w.agent.Status(context.Background()); !strings.Contains(s.Closed, "DRAIN") {
		t.Errorf("the status says that it is closed as %q", s.Closed)
	}
	if _, err := w.agent.Job(context.Background(), id); err != nil {
		t.Error(err)
	}
}
