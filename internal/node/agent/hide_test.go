package agent

import (
	"fmt"
	"testing"
)

// TestHiddenProfiles checks that a node that offers slices publishes a total of 0 for a profile in use of which it
// offers none, unless slurmctld preempts jobs, and that a node that offers nothing publishes the used count. Once the
// job in use has ended, the waiting job must get its slices.
func TestHiddenProfiles(t *testing.T) {
	for _, c := range []struct {
		what, preempts string
		gpus, total    int
	}{
		{"another GPU is free", "preempt/none", 2, 0},
		{"another GPU is free, and slurmctld preempts", "preempt/qos", 2, 1},
		{"no other GPU", "preempt/none", 1, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t, c.gpus)
			w.fake.SetConfig("PreemptType", c.preempts)
			w.fake.SetConfig("PreemptMode", "REQUEUE")
			step := func() {
				w.publish()
				w.fake.Tick()
				w.prologs.Wait()
			}
			first := w.submit(job(1, "7g.40gb"))
			step()
			waiting := w.submit(job(c.gpus, fmt.Sprint("7g.40gb:", c.gpus)))
			small := w.submit(job(1, "1g.5gb"))
			w.publish()
			n, err := w.fake.Node(t.Context(), "n1")
			if err != nil {
				t.Fatal(err)
			}
			total, used := n.Gres.Profiles()["7g.40gb"], n.GresUsed.Profiles()["7g.40gb"]
			if total != c.total || used != 1 || w.total() != 28*c.gpus {
				t.Errorf("the total is %d of %d, want %d of %d; %d used", total, w.total(), c.total, 28*c.gpus, used)
			}
			if c.gpus == 2 {
				step()
				if l := w.lease(small); len(l.Slices) != 1 {
					t.Errorf("the small job has %+v", l)
				}
				if err := w.fake.Finish(small); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.fake.Finish(first); err != nil {
				t.Fatal(err)
			}
			step()
			if l := w.lease(waiting); len(l.Slices) != c.gpus {
				t.Errorf("the waiting job has %+v", l)
			}
		})
	}
}
