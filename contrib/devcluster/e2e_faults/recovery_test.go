//go:build e2e

package e2efaults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/oracle"
)

// TestRecovery kills the agent with SIGKILL at random times under a load of short jobs. FAULTS_KILLS is the number of
// kills (default: 5). The test measures the time from the kill until the next agent has finished a pass and slurmctld
// has its offers.
func TestRecovery(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 1, GPUs: 2})
	keep := s.Submit("./hold keep", "--gres=mig:2g.10gb:1")
	s.Running(keep)
	slice := s.Slice("n1", keep)

	const each = 6
	profiles := []string{"1g.5gb", "2g.10gb", "3g.20gb"}
	arrays := []string{}
	load := func() {
		if strings.Count(s.Try("", "squeue", "-rh", "-t", "pending", "-o", "%i"), "\n") >= each {
			return
		}
		for _, profile := range profiles {
			arrays = append(
				arrays,
				s.Submit(
					"cuda-process --exclusive --seconds 0.5",
					"--gres=mig:"+profile+":1",
					fmt.Sprint("--array=1-", each),
				),
			)
		}
	}
	var took times
	random := rand.New(rand.NewPCG(1, 1))
	for range atLeastOne(t, "FAULTS_KILLS", 5) {
		load()
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		began := time.Now()
		if err := s.KillUnit("agent-n1", "KILL"); err != nil {
			t.Fatal(err)
		}
		s.Within("the offers are correct after a kill", func() bool { return s.published("n1") })
		took = append(took, time.Since(began))
	}
	took.print(t, "time from a kill of the agent under load to correct offers")

	if now := s.Slice("n1", keep); now != slice {
		t.Errorf("the running job held %+v before, and holds %+v now", slice, now)
	}
	s.End("keep")
	s.Completed(keep)
	s.Within("every job has ended", func() bool { return s.Try("", "squeue", "-h") == "" })
	s.completedOnce(arrays, len(arrays)*each)
	s.NoneDrained()
	s.NothingLeft()
	log, err := s.Log("agent-n1")
	if err != nil {
		t.Fatal(err)
	}
	if kills := strings.Count(log, "ended with status 137"); kills != len(took) {
		t.Errorf("the test killed the agent %d times, but the log shows %d kills", len(took), kills)
	}
	t.Logf("%d jobs", len(arrays)*each+1)
}

// completedOnce waits until sacct shows the end of every job of the arrays, and checks that each of the n jobs ran once
// and completed.
func (s *site) completedOnce(arrays []string, n int) {
	s.t.Helper()
	ends := []string{}
	s.Within("sacct shows the end of every job", func() bool {
		// -D shows every run of a requeued job.
		ends = strings.Fields(s.Must("", "root", "sacct", "-nPXD", "-o", "state", "-j", strings.Join(arrays, ",")))
		return len(ends) >= n && !slices.Contains(ends, "RUNNING") && !slices.Contains(ends, "PENDING")
	})
	if len(ends) != n || slices.ContainsFunc(ends, func(state string) bool { return state != "COMPLETED" }) {
		s.t.Errorf("%d jobs ended %q", n, ends)
	}
}

// published reports whether the node's agent has finished a pass since its start and slurmctld has the offers that the
// agent published.
func (s *site) published(node string) bool {
	status, err := s.Status(node)
	if err != nil || status.PublishedAt == 0 || status.PublishError != "" {
		return false
	}
	snapshots, err := oracle.ReadSnapshots(
		strings.NewReader("look 0\n" + s.Try("", "scontrol", "-o", "-d", "show", "node", node) + "\ndone 0\n"),
	)
	return err == nil && len(snapshots) == 1 && maps.Equal(snapshots[0].Total, status.Published)
}
