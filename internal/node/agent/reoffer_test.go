package agent

import (
	"testing"
)

// full fills one GPU: it starts jobs on all of its smallest slices, and submits the waiting jobs.
func (w *world) full(waiting ...string) (running []uint32) {
	w.t.Helper()
	for range 7 {
		running = append(running, w.startNow("1g.5gb:1"))
	}
	for _, slices := range waiting {
		w.submit(job(1, slices))
	}
	w.publish()
	for _, id := range running {
		w.lease(id)
	}
	return running
}

// TestOfferedAgain checks that the agent offers a released slice before the epilog ends, without calling slurmctld,
// if the first waiting job requests a slice of the same profile.
func TestOfferedAgain(t *testing.T) {
	w := newWorld(t, 1)
	running := w.full("1g.5gb:1", "1g.5gb:1")
	for k := range 2 {
		calls := len(w.fake.Calls())
		w.fake.Finish(running[k])
		if asked := len(w.fake.Calls()) - calls; asked != 0 {
			t.Errorf("the epilog called slurmctld %d times", asked)
		}
		started := w.fake.Tick()
		if len(started) != 1 {
			t.Fatalf("%d jobs started on the slice", len(started))
		}
		if l := w.lease(started[0]); len(l.Slices) != 1 || !l.Slices[0].Reused {
			t.Errorf("%+v", l)
		}
	}
	// No other job waits, so the slice of the next job that ends may be offered only by a pass.
	calls := len(w.fake.Calls())
	w.fake.Finish(running[2])
	if len(w.fake.Calls()) == calls {
		t.Error("no pass after the release of a slice that no waiting job requests")
	}
}

// TestNotOfferedAgain checks that the agent does not offer a released slice before the next pass if the first waiting
// job requests a different slice.
func TestNotOfferedAgain(t *testing.T) {
	for name, waiting := range map[string][]string{
		"larger":  {"2g.10gb:1", "1g.5gb:1"},
		"several": {"1g.5gb:2"},
		"none":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			running := w.full(waiting...)
			calls := len(w.fake.Calls())
			w.fake.Finish(running[0])
			if len(w.fake.Calls()) == calls {
				t.Error("the epilog did not publish")
			}
		})
	}
}

// TestUncountedNotOfferedAgain checks that the agent does not offer a released slice before the next pass if slurmctld
// does not count the slices of running jobs.
func TestUncountedNotOfferedAgain(t *testing.T) {
	w := newWorld(t, 1)
	running := w.full("1g.5gb:1")
	w.fake.Restart()
	w.publish()
	calls := len(w.fake.Calls())
	w.fake.Finish(running[0])
	if len(w.fake.Calls()) == calls {
		t.Error("the epilog did not publish")
	}
}

// TestStuckNotOfferedAgain checks that the agent does not reoffer a slice that it has set aside.
func TestStuckNotOfferedAgain(t *testing.T) {
	h := newHeld(t, 1)
	running := h.full("1g.5gb:1")
	file := h.file(h.lease(running[0]).Slices[0])
	h.process(madeUp, 20002, [2]string{file})
	h.fake.Finish(running[0])
	if started := h.fake.Tick(); len(started) != 0 {
		t.Errorf("%d jobs started on a slice that a process holds open", len(started))
	}
}
