//go:build e2e

package e2efaults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/oracle"
)

// TestRestarts stops Slurm's daemons while a job runs on each node, shortly after another job for n1 has been
// submitted. The test measures times on n2, where no job starts. n2's offers count as correct as soon as n2 permanently
// has offers and the constant total. At the end of the test, slurmctld and the agent must agree on the offers.
func TestRestarts(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 2, GPUs: 2})
	w := s.watch()
	keep := map[string]string{}
	slice := map[string]any{}
	for _, node := range s.Nodes {
		keep[node] = s.Submit("./hold keep", "-w", node, "--gres=mig:2g.10gb:1")
	}
	for _, node := range s.Nodes {
		s.Running(keep[node])
		slice[node] = s.Slice(node, keep[node])
	}
	w.settled(s, "n2")
	snapshots := w.since("n2", time.Unix(0, 0))
	total := sum(snapshots[len(snapshots)-1].Total)
	faults := s.restarts()
	took, disturbed, ids := map[string]times{}, map[string]int{}, []string{}
	defer func() { // prints the times even if a later round fails
		for _, fault := range faults {
			took[fault.name].print(t, fmt.Sprintf("%s: time to correct offers (wrong offers seen %d times)",
				fault.name, disturbed[fault.name]))
		}
	}()
	for round := range atLeastOne(t, "FAULTS_ROUNDS", 3) {
		for _, fault := range faults {
			name := fmt.Sprintf("%d-%s", round, strings.ReplaceAll(fault.name, " ", "-"))
			w.settled(s, "n2")
			id := s.Submit("./hold "+name, "-w", "n1", "--gres=mig:1g.5gb:1")
			time.Sleep(time.Duration(round%3) * 700 * time.Millisecond) // pending, in its prolog, or running

			after, seen := s.offersAfter(w, fault, total)
			took[fault.name] = append(took[fault.name], after)
			if seen {
				disturbed[fault.name]++
			}
			s.Running(id)
			s.End(name)
			s.Completed(id)
			s.NoneDrained()
			ids = append(ids, id)
		}
	}
	for _, node := range s.Nodes {
		if now := s.Slice(node, keep[node]); now != slice[node] {
			t.Errorf("the job on %s held %+v before, and holds %+v now", node, slice[node], now)
		}
	}
	s.End("keep")
	// Each round has checked its own job, because slurmctld purges a job 300 s after its end.
	s.Completed(keep["n1"], keep["n2"])
	ids = append(ids, keep["n1"], keep["n2"])
	s.Within("sacct shows the end of every job", func() bool { return s.accounted(ids) })
	s.NoneDrained()
	s.NothingLeft()
	// At least one snapshot must show the effect of scontrol reconfigure, which proves that the snapshots detect a
	// change. A restart of slurmctld would prove nothing, because the agents often publish before the first snapshot.
	if disturbed["scontrol reconfigure"] == 0 {
		t.Error("no snapshot shows a change of the offers by scontrol reconfigure")
	}
}

// accounted reports whether all jobs are COMPLETED according to sacct.
func (s *site) accounted(ids []string) bool {
	s.t.Helper()
	states := strings.Fields(s.Must("", "root", "sacct", "-nPX", "-o", "state", "-j", strings.Join(ids, ",")))
	return len(states) == len(ids) &&
		!slices.ContainsFunc(states, func(state string) bool { return state != "COMPLETED" })
}

// fault is something that disturbs Slurm's daemons.
type fault struct {
	name string
	do   func() error
}

func (s *site) restarts() []fault {
	return []fault{
		{"restart of slurmd", func() error {
			if err := s.RestartUnit("slurmd-n1"); err != nil {
				return err
			}
			return s.RestartUnit("slurmd-n2")
		}},
		{"restart of slurmctld", func() error { return s.RestartUnit("slurmctld") }},
		{"scontrol reconfigure", func() error {
			_, _, err := s.Exec(s.t.Context(), "root", "scontrol", "reconfigure")
			return err
		}},
		{"stop of slurmdbd for 3 s", func() error {
			if err := s.StopUnit("slurmdbd"); err != nil {
				return err
			}
			time.Sleep(3 * time.Second)
			return s.StartUnit("slurmdbd")
		}},
	}
}

// offersAfter causes a fault, and waits until n2 has offers and the given total. after is the time from the end of the
// fault to the end of the wait. seen reports whether a snapshot showed wrong offers.
func (s *site) offersAfter(w *watch, fault fault, total int) (after time.Duration, seen bool) {
	s.t.Helper()
	began := time.Now()
	if err := fault.do(); err != nil {
		s.t.Fatal(err)
	}
	back := time.Now()
	right := func(l oracle.Snapshot) bool { return len(offers(l)) > 0 && sum(l.Total) == total }
	s.Within("the offers of n2 are correct after "+fault.name, func() bool {
		snapshots := w.since("n2", began)
		if len(snapshots) == 0 {
			return false
		}
		// slurmd registers shortly after its start, so the offers must be correct in all snapshots for two seconds.
		end := snapshots[len(snapshots)-1].To
		from := end
		for _, l := range slices.Backward(snapshots) {
			if !right(l) {
				break
			}
			from = l.To
		}
		after = max(0, time.Unix(0, from).Sub(back))
		return end-max(from, back.UnixNano()) > (2*time.Second).Nanoseconds() &&
			maps.Equal(offers(snapshots[len(snapshots)-1]), s.planned("n2"))
	})
	return after, slices.ContainsFunc(w.since("n2", began), func(l oracle.Snapshot) bool { return !right(l) })
}

// planned returns the offers in the plan of the node's agent.
func (s *site) planned(node string) map[string]int {
	status, err := s.Status(node)
	if err != nil {
		return nil
	}
	n := map[string]int{}
	for _, g := range status.GPUs {
		for _, p := range g.Offers {
			n[p.Profile]++
		}
	}
	return n
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}
