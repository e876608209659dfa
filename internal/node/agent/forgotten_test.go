package agent

import (
	"testing"

	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// The write that raises the counts adds the offers to the used counts that the pass has read. If a used count decreases
// between the read and the write, and no epilog publishes, slurmctld shows more free slices than the agent can carve.
// The pass must detect the surplus and withdraw it.

// TestJobComesAndGoesWithinARead checks a job that has a slice but no slot (srun --gres=mig:7g.40gb:1), so that its
// epilog does not call the agent. slurmctld counts the job when the pass reads the node, but it has ended by the time
// the pass reads the jobs.
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
		t.Errorf("offers of one empty GPU: %v", got)
	}
}

// TestReconfigureBeforeTheRaise runs `scontrol reconfigure`, which resets the used counts and closes all slices
// (22.05), before a pass raises the counts.
func TestReconfigureBeforeTheRaise(t *testing.T) {
	w := newWorld(t, 1)
	w.submit(job(1, "3g.20gb"))
	w.publish()
	w.fake.Tick()
	w.prologs.Wait()
	// Because these jobs wait, the pass raises 3g.20gb from 1 (1 used) to 2.
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
		t.Errorf("offers alongside a running 3g.20gb: %v", got)
	}
}
