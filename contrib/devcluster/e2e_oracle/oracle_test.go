//go:build e2e

package e2eoracle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/oracle"
)

// pause is the delay between the agent's reads and writes in the test cases with a delay.
const pause = 100 * time.Millisecond

// TestOffersCanBeCarved checks the central guarantee of Caelum: an agent can create all slices that it offers. The 4 s
// prolog extends the time between a job's start in slurmctld and its lease, and the pause makes sure that what the
// agent has read is outdated by the time it is used.
func TestOffersCanBeCarved(t *testing.T) {
	for _, v := range []struct {
		name    string
		prolog  time.Duration
		pause   time.Duration
		jobs    int
		seconds float64       // the time over which the jobs are submitted
		away    time.Duration // the time for which slurmctld is stopped during the submissions
		models  string
		full    bool
	}{
		{"plain", 0, 0, 150, 40, 0, "A100-40GB", false},
		{"slow prolog", 4 * time.Second, 0, 70, 40, 0, "A100-40GB", false},
		{"pause", 0, pause, 130, 40, 0, "A100-40GB", false},
		{"slow prolog and pause", 4 * time.Second, pause, 60, 35, 0, "A100-40GB", false},
		{"slurmctld away", 0, 0, 100, 40, away(t), "A100-40GB", false},
		{"different GPU models", 0, pause, 100, 40, 0, "A100-40GB,H100-80GB", false},
		{"full GPUs", 0, pause, 110, 45, 0, "H100-80GB", true},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			o := cluster.Options{PrologDelay: v.prolog, Model: v.models}
			unlike := strings.Contains(v.models, ",")
			if v.pause > 0 {
				o.AgentEnv = []string{"CAELUM_FAILPOINT_PAUSE=" + v.pause.String()}
			}
			if v.full {
				o.GPUs, o.AgentConfig = 4, "e2e_whole/testdata/caelum.yaml"
			}
			s := start(t, o)
			s.full = v.full
			l := mix(seed(t), max(v.jobs, atLeast), v.seconds, kinds{unlike: unlike, batch: v.away > 0, full: v.full})
			s.prepare(l)
			stop := s.watch()
			began := time.Now()
			if v.away > 0 {
				s.stopController(time.Duration(v.seconds/3*float64(time.Second)), v.away)
			}
			s.submit(l, 12*time.Minute) // only a failing test, or a very slow machine, needs the whole time
			took := time.Since(began).Round(time.Second)
			snapshots := stop()
			run := s.run(v.name, snapshots)

			report, err := oracle.Check(run)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d jobs submitted, ended after %v\n%v", l.jobs, took, report)
			logDelays(t, run)
			if len(report.Findings) > 0 {
				t.Errorf("%d findings: %s", len(report.Findings), strings.Join(report.Rules(), ", "))
			}
			least := l.jobs * 3 / 4
			if v.away > 0 { // some submissions have failed, because slurmctld was stopped
				least = l.jobs / 4
			}
			if report.Writes == 0 || report.Snapshots == 0 || report.Seen == 0 || report.Starts < least {
				t.Errorf("the run contains too few events for a check; the load submitted %d jobs", l.jobs)
			}
			if !unlike && v.away == 0 && report.Larger == 0 {
				t.Error("no job got a larger slice than slurmctld allocated")
			}
			if v.full && (report.Switches == 0 || report.Files == 0) {
				t.Error("no MIG mode was switched, or no device file was checked")
			}
			if v.prolog > 0 && report.Waits == 0 {
				t.Error("no agent wrote while a job waited for its prolog, so the delay had no effect")
			}
			onH100 := func(st oracle.Start) bool { return st.Node == "n2" && st.Profiles["2g.10gb"] > 0 }
			if unlike && !slices.ContainsFunc(run.Starts, onH100) {
				t.Error("no job that requested 2g.10gb ran on the H100 node")
			}
			s.endedWell(run)
		})
	}
}

// logDelays logs slurmctld's delays in a run.
func logDelays(t *testing.T, run oracle.Run) {
	starts, longest := oracle.Delays(run)
	if len(starts) == 0 {
		return
	}
	t.Logf(
		"time from an offer, or a later submission, to the start of %d batch jobs: "+
			"median %v, p99 %v, longest %v; longest waits %v",
		len(starts),
		starts[len(starts)/2].Round(time.Millisecond),
		starts[len(starts)*99/100].Round(time.Millisecond),
		starts[len(starts)-1].Round(time.Millisecond),
		longest,
	)
}

func seed(t *testing.T) uint64 {
	text := os.Getenv("ORACLE_SEED")
	if text == "" {
		return 1
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("ORACLE_SEED: %v", err)
	}
	return n
}

// away returns for how long slurmctld is stopped. The default, which ORACLE_AWAY overrides, is 10 s, long enough for
// requests of agents and prologs to fail.
func away(t *testing.T) time.Duration {
	text := os.Getenv("ORACLE_AWAY")
	if text == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("ORACLE_AWAY: %v", err)
	}
	return d
}

// run collects and reads the record of the run. Job records may reach slurmdbd a few seconds late.
func (s *site) run(name, snapshots string) oracle.Run {
	s.t.Helper()
	dir := s.t.TempDir()
	if keep := os.Getenv("ORACLE_KEEP"); keep != "" {
		dir = filepath.Join(keep, strings.ReplaceAll(name, " ", "-"))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
		s.collect(dir, snapshots)
		run, err := oracle.Read(os.DirFS(dir))
		if err == nil &&
			!slices.ContainsFunc(run.Starts, func(st oracle.Start) bool { return st.End == oracle.Never }) {
			break
		}
		if time.Now().After(end) {
			s.t.Fatalf("the logs of the run contradict each other: %v", err)
		}
	}
	for n := 1; n <= nodes; n++ {
		if err := s.StopUnit(fmt.Sprintf("agent-n%d", n)); err != nil {
			s.t.Fatal(err)
		}
	}
	s.logs(dir)
	run, err := oracle.Read(os.DirFS(dir))
	if err != nil {
		s.t.Fatal(err)
	}
	return run
}

// endedWell checks that no node is drained, and that every job completed or was cancelled by the load.
func (s *site) endedWell(run oracle.Run) {
	s.t.Helper()
	for _, state := range strings.Fields(s.must("", "root", "sinfo", "-h", "-N", "-p", "plain", "-o", "%T")) {
		// The PLANNED state can persist after a job that backfill has planned has started.
		if state != "idle" && state != "planned" {
			s.t.Errorf("the state of a node is %s at the end", state)
		}
	}
	text, err := os.ReadFile(filepath.Join(s.Dir, "home", user, "cancelled"))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	cancelled := strings.Fields(string(text))
	for _, st := range run.Starts {
		id := strconv.FormatUint(uint64(st.Job), 10)
		if st.State != "COMPLETED" && st.State != "REQUEUED" && !slices.Contains(cancelled, id) {
			out, _ := os.ReadFile(filepath.Join(s.Dir, "home", user, "slurm-"+id+".out"))
			s.t.Errorf("job %s on %s ended as %s: %s", id, st.Node, st.State, out)
		}
	}
}
