//go:build e2e

package e2egrow

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
	"caelum/internal/failpoint"
)

// The step script's memory jumps above that of a 1g.5gb slice, which it has nearly filled before. The three script
// needs to grow three times from 1g.5gb. The broken script fails for another reason.
const (
	step   = "cuda-process --curve 0:4200,2:4600,2.1:8000,4:8000"
	three  = "cuda-process --curve 0:4200,1.5:4700,1.6:9000,3:9300,3.1:17000,5:19500,5.1:30000"
	broken = "cuda-process --curve 0:900,2:900; exit 3"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "4")
	os.Exit(m.Run())
}

// site is a running cluster in which every job without a profile gets 1g.5gb.
type site struct {
	*clustertest.Site
	t *testing.T
}

func start(t *testing.T, o cluster.Options) site {
	t.Helper()
	o.AgentConfig = "testdata/caelum.yaml"
	// A requeued job may restart after 6 s. slurmctld looks at the queue every 2 s, even if nothing has changed.
	o.Conf = append(o.Conf, "AuthInfo=cred_expire=5",
		"SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_continue,bf_interval=1,sched_interval=2")
	s := site{clustertest.Start(t, o), t}
	s.Must("", "root", "sed", "-i", "-e", "1s/.*/caelum-decisions 1 99/", "-e", "s/^default .*/default 1g.5gb/",
		"/etc/caelum/decisions")
	return s
}

// comment returns the admin_comment of a job.
func (s site) comment(id string) string {
	s.t.Helper()
	for line := range strings.Lines(s.Must("", "root", "scontrol", "show", "job", id)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "AdminComment="); ok {
			return text
		}
	}
	return ""
}

// patience is the time limit for conditions that include several runs of a job.
const patience = 3 * time.Minute

// wait is like Within, but with patience as the time limit.
func (s site) wait(what string, holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("timeout: %s", what)
		}
	}
}

// ended waits until the job has the state, with the restart count. All components of a het job must have the state.
func (s site) ended(id, state string, restarts int) {
	s.t.Helper()
	s.wait(fmt.Sprintf("job %s is %s", id, state), func() bool {
		return slices.Equal(slices.Compact(strings.Fields(s.State(id))), []string{state})
	})
	show := s.Must("", "root", "scontrol", "show", "job", id)
	if !strings.Contains(show, fmt.Sprintf(" Restarts=%d ", restarts)) {
		s.t.Errorf("want %d restarts:\n%s", restarts, show)
	}
}

// grew waits until the job has completed after one growth to 1g.10gb for the given cause.
func (s site) grew(id, cause string) {
	s.t.Helper()
	s.ended(id, "COMPLETED", 1)
	if text := s.comment(id); !strings.Contains(text, "caelum:sized=1g.10gb") ||
		!strings.Contains(text, "caelum:grown=1g.5gb:"+cause+":") || strings.Contains(text, ",") {
		s.t.Errorf("job %s has the tags %q", id, text)
	}
}

// TestGrowAfterFailure runs jobs with too little memory. Each of them, including a task of an array and a job on two
// nodes, must complete on the next larger profile. Jobs that depend on one of them must wait for its second run.
func TestGrowAfterFailure(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 2, GPUs: 2})
	one := s.Submit(step, "--gres=gpu:1")
	after := s.Submit("true", "--dependency=afterok:"+one)
	otherwise := s.Submit("true", "--dependency=afternotok:"+one)
	always := s.Submit("true", "--dependency=afterany:"+one)
	array := s.Submit(step, "--gres=gpu:1", "--array=3,7")
	wide := s.Submit("srun "+step, "--gres=gpu:1", "-N2")
	often := s.Submit(three, "--gres=gpu:1")
	bad := s.Submit(broken, "--gres=gpu:1")
	s.wait("job "+one+" has grown and is pending", func() bool {
		return strings.Contains(s.comment(one), "caelum:grown=") && s.State(one) == "PENDING"
	})
	// Before the second run ends, slurmctld shows the growth. slurmdbd may already have the summary of the first run.
	report := s.Must("", "root", "caelum", "report", one)
	if state := s.State(one); state != "COMPLETED" &&
		!(strings.Contains(report, "1g.5gb was too small") && strings.Contains(report, "GPU memory ran out")) {
		t.Errorf("caelum report on a job that has grown and is %s:\n%s", state, report)
	}
	for _, id := range []string{one, array + "_3", array + "_7", wide} {
		s.grew(id, "oom")
	}
	s.Completed(after, always)
	if reason := s.Must("", "root", "squeue", "-h", "-j", otherwise, "-o", "%r"); reason != "DependencyNeverSatisfied" {
		t.Errorf("the job with the dependency afternotok has the reason %s", reason)
	}
	s.Must("", "root", "scancel", otherwise)
	s.ended(bad, "FAILED", 0)
	s.ended(often, "FAILED", 2)
	if text := s.comment(often); !strings.Contains(text, "caelum:sized=3g.20gb") {
		t.Errorf("the job with two growths has the tags %q", text)
	}
	s.recorded(one)
	s.NoneDrained()
	s.NothingLeft()
}

// recorded checks the accounting record of a job that has grown once. From 23.11 on, the record must show the larger
// profile; up to 23.02, it shows the requested one.
func (s site) recorded(id string) {
	s.t.Helper()
	tres := "gres/mig:1g.5gb=1"
	if s.Release().ReplacesTypes() {
		tres = "gres/mig:1g.10gb=1"
	}
	record := ""
	s.Within("sacct shows the growth of job "+id, func() bool {
		record = s.Must("", "root", "sacct", "-X", "-n", "-P", "-j", id, "-o", "State,AllocTRES,AdminComment")
		return strings.Contains(record, "caelum:grown=1g.5gb:oom:") && strings.Contains(record, "end=oom") &&
			strings.Contains(record, tres)
	})
	if !strings.HasPrefix(record, "COMPLETED|") {
		s.t.Errorf("sacct shows %q", record)
	}
}

// In ramp's first run, the memory increases by 30 MiB per second, and would exceed that of a 1g.5gb slice after 79 s.
// At SIGTERM, the script writes a checkpoint. The run is longer than those of the other scripts, because an agent
// requeues no job in the first minute of a run.
const ramp = `#!/bin/bash
#SBATCH --gres=gpu:1 --open-mode=append
if [[ -n $SLURM_RESTART_COUNT ]]; then
    cuda-process --curve 0:500,1:6000,2:6000
    exit
fi
trap 'echo checkpoint after $SECONDS s; exit 1' TERM
cuda-process --curve 0:2500,100:5500 &
wait $!
`

// TestGrowBeforeFailure runs a job whose memory increases slowly and whose run time is known. It must be requeued
// before its memory exceeds the slice, and must be able to write a checkpoint.
func TestGrowBeforeFailure(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 1, GPUs: 1})
	s.Write("ramp", ramp)
	first := s.Must("", clustertest.User, "sbatch", "--parsable", "--hold", "ramp")
	_, work, ok := strings.Cut(s.comment(first), "caelum:work=")
	if !ok {
		t.Fatal(s.comment(first))
	}
	s.Must("", "root", "scancel", first)
	s.Must("", "root", "sed", "-i", "-e", "1s/.*/caelum-decisions 1 100/", "-e", "$a site "+strings.Fields(work)[0]+
		" 1g.5gb 150", "/etc/caelum/decisions")
	id := s.Must("", clustertest.User, "sbatch", "--parsable", "--mig-grow=forecast", "ramp")
	s.Running(id)
	s.grew(id, "forecast")
	text, err := os.ReadFile(filepath.Join(s.Home(), "slurm-"+id+".out"))
	if out := string(text); err != nil || !strings.Contains(out, "checkpoint after ") ||
		strings.Contains(out, "out of memory") {
		t.Errorf("the output of the job is %q, %v", out, err)
	}
	s.NoneDrained()
	s.NothingLeft()
}

// TestStaysFailed runs jobs that must not grow, although they have too little memory.
func TestStaysFailed(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 2, GPUs: 1})
	jobs := []string{
		s.Submit(step, "--gres=gpu:1", "--no-requeue"),
		s.Submit(step, "--gres=gpu:1", "--mig-grow=off"),
		s.Submit(step, "--gres=gpu:1", "--mig=1g.5gb"),
		s.Submit(step, "--gres=mig:1g.5gb:1"),
	}
	het := s.Must("", clustertest.User, "sbatch", "--parsable", "--gres=gpu:1", ":", "--gres=gpu:1", "--wrap", step)
	jobs = append(jobs, het)
	for _, client := range []string{"srun", "salloc"} {
		args := append([]string{client, "--gres=gpu:1", "-J", client}, strings.Fields(step)...)
		if client == "salloc" {
			args = slices.Insert(args, 4, "srun")
		}
		if out, stderr, err := s.Exec(t.Context(), clustertest.User, args...); err == nil ||
			!strings.Contains(stderr, "out of memory") {
			t.Errorf("%s: %v: %s%s", client, err, out, stderr)
		}
		jobs = append(jobs, s.Must("", "root", "squeue", "-h", "-t", "all", "-n", client, "-o", "%i"))
	}
	for _, id := range jobs {
		s.ended(id, "FAILED", 0)
	}
	for _, node := range s.Nodes {
		if log, err := s.Log("agent-" + node); err != nil || strings.Contains(log, "larger profile") {
			t.Errorf("the agent of %s logged a growth: %v\n%s", node, err, log)
		}
	}
	s.NoneDrained()
	s.NothingLeft()
}

// TestAgentKilled kills the agent after a growth but before the job is held. Another agent must start the job on the
// larger profile.
func TestAgentKilled(t *testing.T) {
	s := start(t, cluster.Options{
		Nodes: 1, GPUs: 1, AgentEnv: []string{"CAELUM_FAILPOINT=" + failpoint.GrowTagged},
	})
	id := s.Submit(step, "--gres=gpu:1")
	s.grew(id, "oom")
	if log, err := s.Log("agent-n1"); err != nil || strings.Count(log, "ended with status 137") != 1 {
		t.Errorf("the agent was not killed once: %v", err)
	}
	s.NoneDrained()
	s.NothingLeft()
}
