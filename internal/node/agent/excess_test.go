package agent

import (
	"context"
	"maps"
	"testing"

	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// excess returns the excess in the agent's status, and the part of the excess that does not fit into the totals.
func (w *world) excess() (excess, short map[string]int) {
	w.t.Helper()
	s, err := w.agent.Status(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Excess, s.ExcessShort
}

// offersAre checks the number of free slices of a profile in slurmctld, and the total of the node.
func (w *world) offersAre(when, profile string, n, total int) {
	w.t.Helper()
	if got := w.offers()[profile]; got != n {
		w.t.Errorf("%s: %d of %s offered, want %d", when, got, profile, n)
	}
	if w.total() != total {
		w.t.Errorf("%s: the total is %d, want %d", when, w.total(), total)
	}
}

// TestExcess checks a job on two nodes that slurmctld counts twice while it runs, and once after it has ended. The
// agent must offer the empty GPUs, and no others.
func TestExcess(t *testing.T) {
	w := newWorld(t, 4)
	id := w.submit(job(2, "7g.40gb:2"))
	w.publish()
	w.fake.Tick()
	w.prologs.Wait()
	w.fake.Recount(2)
	for range 4 { // because these jobs wait, the plan offers 7g.40gb
		w.submit(job(1, "7g.40gb"))
	}
	w.publish()
	w.offersAre("while the job runs", "7g.40gb", 2, 112)
	if excess, _ := w.excess(); !maps.Equal(excess, map[string]int{"7g.40gb": 2}) {
		t.Errorf("while the job runs: the excess is %v", excess)
	}
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	w.offersAre("after the job's epilog", "7g.40gb", 4, 112)
	w.stop()
	w.start()
	w.publish()
	w.offersAre("with a new agent", "7g.40gb", 4, 112)
	if excess, _ := w.excess(); !maps.Equal(excess, map[string]int{"7g.40gb": 2}) {
		t.Errorf("after the job: the excess is %v", excess)
	}
	w.fake.Restart()
	w.publish()
	w.offersAre("after slurmctld has cleared it", "7g.40gb", 4, 112)
	if excess, _ := w.excess(); len(excess) != 0 {
		t.Errorf("after slurmctld has cleared it: the excess is %v", excess)
	}
	if started := w.fake.Tick(); len(started) != 4 {
		t.Errorf("started on four empty GPUs: %v", started)
	}
	w.prologs.Wait()
	for _, id := range []uint32{id + 1, id + 2, id + 3, id + 4} {
		if l := w.lease(id); len(l.Slices) != 1 {
			t.Errorf("job %d has %+v", id, l)
		}
	}
}

// TestExcessClearedBeforeTheRaise checks that the agent does not offer more slices than fit on the GPUs if slurmctld
// clears the excess after the pass has read it.
func TestExcessClearedBeforeTheRaise(t *testing.T) {
	for _, op := range []string{"Nodes", "Queue", "Node"} {
		t.Run(op, func(t *testing.T) {
			w := newWorld(t, 2)
			id := w.submit(job(1, "7g.40gb"))
			w.publish()
			w.fake.Tick()
			w.prologs.Wait()
			w.fake.Recount(2)
			w.publish()
			if err := w.fake.Finish(id); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				w.submit(job(1, "7g.40gb"))
			}
			calls := 0
			w.fake.After(func(c slurmtest.Call) {
				if c.Op == op {
					if calls++; calls == 1 {
						w.fake.Restart()
					}
				}
			})
			w.publish()
			if got := w.offers()["7g.40gb"]; got > 2 { // 0 if the pass wrote nothing
				t.Errorf("after the pass: %d of 7g.40gb offered on two GPUs", got)
			}
			w.publish()
			w.offersAre("after the next pass", "7g.40gb", 2, 56)
		})
	}
}

// TestNoRoomForAnExcess checks that the total N stays constant if the excess does not fit into it.
func TestNoRoomForAnExcess(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startNow("1g.5gb")
	w.prologs.Wait()
	w.fake.Recount(40)
	w.publish()
	excess, short := w.excess()
	if excess["1g.5gb"] != 39 || short["1g.5gb"] == 0 || short["1g.5gb"] >= 39 || w.total() != 28 {
		t.Errorf("excess %v, without room %v, total %d", excess, short, w.total())
	}
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	w.publish()
	if w.total() != 28 || w.offers()["1g.5gb"] != 0 {
		t.Errorf("after the job: offers %v, total %d", w.offers(), w.total())
	}
}

// TestNoExcess checks that the excess does not include the allocation of a job that holds no slice.
func TestNoExcess(t *testing.T) {
	exclusive := job(1, "2g.10gb")
	exclusive.Exclusive = true
	for name, j := range map[string]slurm.Job{
		"--exclusive": exclusive,
		"no GPU slots": {
			Name: "j", User: "user1", PerNode: []slurm.GRES{{Name: "mig", Type: "2g.10gb", Count: 1}},
		},
		"more slices than slots": job(1, "2g.10gb:2"),
	} {
		for _, unclear := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, 1)
				w.stop()
				o := odd{w.fake, map[uint32]bool{}, map[uint32]string{}}
				w.ctl = o
				w.start()
				w.fake.Prolog(func(slurm.Job, string) {})
				id := w.submit(j)
				w.publish()
				o.unclear[id] = unclear
				if started := w.fake.Tick(); len(started) != 1 {
					t.Fatalf("started: %v", started)
				}
				for range 2 {
					w.publish()
					if excess, _ := w.excess(); len(excess) != 0 {
						t.Errorf("the excess is %v", excess)
					}
				}
			})
		}
	}
}

// TestEndOfAJobIsNoExcess checks that the agent detects no excess if a job ends after the pass has read the node and
// before it reads the jobs.
func TestEndOfAJobIsNoExcess(t *testing.T) {
	w := newWorld(t, 1)
	w.fake.Epilog(nil)
	w.publish()
	id := w.submit(
		slurm.Job{Name: "brief", User: "user1", PerNode: []slurm.GRES{{Name: "mig", Type: "1g.5gb", Count: 1}}},
	)
	w.fake.Tick()
	w.publish()
	first := true
	w.fake.After(func(c slurmtest.Call) {
		if c.Op == "Nodes" && first {
			first = false
			if err := w.fake.Finish(id); err != nil {
				t.Error(err)
			}
		}
		if excess, _ := w.excess(); len(excess) != 0 {
			t.Errorf("%v: the excess is %v", c, excess)
		}
	})
	w.publish()
	if first {
		t.Error("the job did not end during the pass")
	}
}

// TestExchangeOfJobsIsNoExcess checks that the agent detects no excess if a job ends after the pass has read the node,
// and the next job gets the released slice before the pass rereads the node.
func TestExchangeOfJobsIsNoExcess(t *testing.T) {
	w := newWorld(t, 2)
	first := w.startNow("4g.20gb")
	w.startNow("7g.40gb")
	w.prologs.Wait()
	second := w.submit(job(1, "4g.20gb"))
	w.publish()
	w.fake.Prolog(nil) // the prolog of the second job calls the agent later
	ended, started := false, false
	w.fake.After(func(c slurmtest.Call) {
		switch {
		case c.Op == "Nodes" && !ended:
			ended = true
			if err := w.fake.End(first); err != nil {
				t.Error(err)
			}
		case c.Op == "Queue" && !started:
			started = true
			w.fake.RunEpilogs()
			if ids := w.fake.Tick(); len(ids) != 1 || ids[0] != second {
				t.Errorf("started %v, want job %d", ids, second)
			}
		case c.Op == "UpdateNode":
			if n := w.offers()["4g.20gb"]; n > 0 {
				t.Errorf("%v: %d of 4g.20gb offered alongside the second job", c, n)
			}
		}
	})
	w.publish()
	w.fake.After(nil)
	if excess, _ := w.excess(); len(excess) != 0 {
		t.Errorf("the excess is %v", excess)
	}
	w.offersAre("after the pass", "4g.20gb", 0, 56)
}
