package agent

import (
	"testing"

	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// The write that raises adds to what slurmctld counted as used a moment before. Where that count drops in between with
// no epilog to publish anew, more is free than can be carved: seen at once, and taken back.

// TestJobComesAndGoesWithinARead: a job with a slice and no slot (srun --gres=mig:7g.40gb:1) has no epilog that asks
// the agent, and this one is over before the read that counts it has listed the jobs.
func TestJobComesAndGoesWithinARead(t *testing.T) {
	w := newWorld(t, 1)
	w.fake.Epilog(nil)
	first := w.submit(job(1, "7g.40gb"))
	w.publish()
	if err := w.fake.Cancel(first); err != nil {
		t.Fatal(err)
	}
	brief := w.submit(
		slurm.Job{Name: "brief", User: "user1", PerNode: []slurm.GRES{{Name: "mig", Type: "7g.40gb", Count: 1}}},
	)
	reads := 0
	w.fake.Before(func(c slurmtest.Call) error {
		if c.Op == "Nodes" {
			if reads++; reads == 1 {
				if started := w.fake.Tick(); len(started) != 1 {
					t.Errorf("started: %v", started)
				}
			}
		}
		return nil
	})
	w.fake.After(func(c slurmtest.Call) {
		if c.Op == "Nodes" && reads == 1 {
			if err := w.fake.Finish(brief); err != nil {
				t.Error(err)
			}
		}
	})
	w.publish()
	if got := w.offers(); got["7g.40gb"] != 1 || len(got) != 1 {
		t.Errorf("on offer on one empty GPU: %v", got)
	}
}

// TestReconfigureBeforeTheRaise: after `scontrol reconfigure` nothing counts as used (22.05), and everything is closed.
func TestReconfigureBeforeTheRaise(t *testing.T) {
	w := newWorld(t, 1)
	w.submit(job(1, "3g.20gb"))
	w.publish()
	w.fake.Tick()
	w.prologs.Wait()
	// The one that waits makes the plan, and with it the write that raises: 3g.20gb stands at 1 of 1, and 2 is wanted.
	for range 2 {
		w.submit(job(1, "3g.20gb"))
	}
	lists := 0
	w.fake.After(func(c slurmtest.Call) {
		if c.Op == "Queue" {
			if lists++; lists == 1 {
				w.fake.Restart()
			}
		}
	})
	w.publish()
	if got := w.offers(); got["3g.20gb"] > 1 {
		t.Errorf("on offer beside a 3g.20gb: %v", got)
	}
}
