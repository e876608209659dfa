// Package clustertest starts a devcluster for an end-to-end test. Its functions run commands as a user, wait for
// conditions, and check the cluster at the end of the test.
//
// Three environment variables configure the tests. FAULTS_KEEP names a directory for the daemon logs of failed tests,
// and FAULTS_BUILD names the directory with the binaries (default: build/ in the repository). FAULTS_POLL sets the
// agents' poll_interval (default: 1s, as in the devcluster, whereas the agent's own default is 15s).
package clustertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/node/api"
	"caelum/internal/slurm"
)

// User is the user who submits the jobs in most tests. Stranger is another user without privileges.
const User, Stranger = "user1", "user2"

// Limit is the time limit for every condition. It is generous, because it is reached only by tests that fail.
const Limit = 150 * time.Second

// hold is the source of a shell script. `hold NAME` uses its device until the end.NAME file exists, and fails if its
// process on the device ends early.
const hold = `#!/bin/bash
cuda-process --exclusive --seconds 3600 &
device=$!
until [[ -e $HOME/end.$1 ]]; do
    kill -0 $device || { echo "lost the device"; exit 1; }
    sleep 0.2
done
kill $device
`

// conf configures the scheduler so that slurmctld starts a job at most one second after the job's resources have become
// free.
var conf = []string{
	"SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_continue,bf_hetjob_prio=min,bf_interval=1",
}

// QueueOrder is a line for Options.Conf that selects priority/basic, Slurm's default up to 23.02: each job has a lower
// priority than all earlier ones, and a nice value lowers it further. The later default, priority/multifactor, gives
// all jobs priority 1 if the site sets no weights.
const QueueOrder = "PriorityType=priority/basic"

// Site is a running cluster. Its methods end the test if a command or a wait fails.
type Site struct {
	*cluster.Cluster
	Nodes []string

	t *testing.T
}

// Start starts a cluster and stops it at the end of the test. The test runs in parallel with other tests (t.Parallel).
func Start(t *testing.T, o cluster.Options) *Site {
	t.Helper()
	t.Parallel()
	script, err := cluster.Script()
	if err != nil {
		t.Fatal(err)
	}
	o.Conf, o.Build = append(slices.Clone(conf), o.Conf...), os.Getenv("FAULTS_BUILD")
	if o.AgentConfig == "" {
		o.AgentConfig = filepath.Join(filepath.Dir(script), "caelum.yaml")
	}
	if poll := os.Getenv("FAULTS_POLL"); poll != "" {
		text, err := os.ReadFile(o.AgentConfig)
		if err != nil {
			t.Fatal(err)
		}
		o.AgentConfig = filepath.Join(t.TempDir(), "caelum.yaml")
		text = regexp.MustCompile(`(?m)^poll_interval: .*$`).ReplaceAll(text, []byte("poll_interval: "+poll))
		if err := os.WriteFile(o.AgentConfig, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := cluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s := &Site{t: t, Cluster: c}
	for n := range o.Nodes {
		s.Nodes = append(s.Nodes, fmt.Sprint("n", n+1))
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.explain()
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.Write("hold", hold)
	return s
}

// explain logs the state of the cluster after a failure.
func (s *Site) explain() {
	s.t.Logf(
		"%s\n%s",
		s.Try("", "sinfo", "-N", "-p", "plain", "-O", "NodeList,StateLong,Reason,Gres:200,GresUsed:200"),
		s.Try("", "squeue", "-t", "all", "-o", "%i %j %T %r %N %V %S %e"),
	)
	if keep := os.Getenv("FAULTS_KEEP"); keep != "" {
		if err := os.CopyFS(filepath.Join(keep, s.t.Name()), os.DirFS(filepath.Join(s.Dir, "log"))); err != nil {
			s.t.Log(err)
		}
	}
	for _, node := range s.Nodes {
		log, _ := s.Log("agent-" + node)
		var lines []string
		for line := range strings.Lines(log) {
			if !strings.Contains(line, `"msg":"published"`) {
				lines = append(lines, line)
			}
		}
		s.t.Logf(
			"the agent of %s logged:\n%s%s",
			node,
			strings.Join(lines[max(0, len(lines)-30):], ""),
			s.Try(node, "caelum", "status"),
		)
	}
}

// TresPerNode returns a request in the spelling of Slurm 23.11 and later. Earlier releases print gres:NAME instead of
// gres/NAME.
func TresPerNode(text string) string { return strings.ReplaceAll(text, "gres:", "gres/") }

// Release returns slurmctld's release.
func (s *Site) Release() slurm.Release {
	s.t.Helper()
	release, err := slurm.ParseRelease(s.Must("", "root", "slurmctld", "-V"))
	if err != nil {
		s.t.Fatal(err)
	}
	return release
}

// Home is User's home directory.
func (s *Site) Home() string { return filepath.Join(s.Dir, "home", User) }

// Write creates an executable file in User's home directory.
func (s *Site) Write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.Home(), name), []byte(text), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// Try runs a command as root and returns its standard output and standard error even if it fails.
func (s *Site) Try(node string, args ...string) string {
	out, stderr, _ := s.ExecNode(context.Background(), node, "root", args...)
	return strings.TrimSpace(out + stderr)
}

// Must runs a command, ends the test if it fails, and returns its output without leading and trailing spaces.
func (s *Site) Must(node, who string, args ...string) string {
	s.t.Helper()
	out, stderr, err := s.ExecNode(s.t.Context(), node, who, args...)
	if err != nil {
		s.t.Fatalf("%q as %s: %v: %s", args, who, err, stderr)
	}
	return strings.TrimSpace(out)
}

// Submit submits a batch job that runs one command as User and returns the job's id.
func (s *Site) Submit(command string, options ...string) string {
	s.t.Helper()
	return s.Must("", User, append(append([]string{"sbatch", "--parsable"}, options...), "--wrap", command)...)
}

// End creates the end.NAME file, which ends the runs of `hold NAME`.
func (s *Site) End(name string) { s.t.Helper(); s.Write("end."+name, "") }

// Within waits until a condition is true and ends the test if this takes longer than Limit.
func (s *Site) Within(what string, holds func() bool) {
	s.t.Helper()
	pause := 100 * time.Millisecond
	for end := time.Now().Add(Limit); !holds(); time.Sleep(pause) {
		if time.Now().After(end) {
			s.t.Fatalf("timeout: %s", what)
		}
		if time.Until(end) < Limit-2*time.Second {
			pause = 300 * time.Millisecond // conditions often run a command, which slows down the cluster
		}
	}
}

// State returns a job's state according to squeue. If slurmctld does not answer, it returns squeue's error.
func (s *Site) State(id string) string {
	return s.Try("", "squeue", "-h", "-t", "all", "-j", id, "-o", "%T")
}

// Lives is like State, but ends the test if the job has failed.
func (s *Site) Lives(id string) string {
	s.t.Helper()
	state := s.State(id)
	switch state {
	case "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL":
		out, _ := os.ReadFile(filepath.Join(s.Home(), "slurm-"+id+".out"))
		s.t.Fatalf("job %s ended as %s; its output is:\n%s", id, state, out)
	}
	return state
}

// Running waits until all jobs are running.
func (s *Site) Running(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		s.Within("job "+id+" runs", func() bool { return s.Lives(id) == "RUNNING" })
	}
}

// Completed waits until all jobs have completed. Each job must have completed in its first run.
func (s *Site) Completed(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		s.Within("job "+id+" ends", func() bool {
			return s.Lives(id) == "COMPLETED"
		})
		if job := s.Must("", "root", "scontrol", "show", "job", id); !strings.Contains(job, " Restarts=0 ") {
			s.t.Errorf("slurmctld started job %s more than once:\n%s", id, job)
		}
	}
}

// Status returns the result of `caelum status` on a node.
func (s *Site) Status(node string) (status api.Status, err error) {
	out, stderr, err := s.ExecNode(context.Background(), node, "root", "caelum", "status", "--json")
	if err != nil {
		return status, fmt.Errorf("%w: %s", err, stderr)
	}
	return status, json.Unmarshal([]byte(out), &status)
}

// Slice returns a job's slice. The job must hold exactly one slice.
func (s *Site) Slice(node, id string) (slice api.Slice) {
	s.t.Helper()
	s.Within("caelum job "+id, func() bool {
		var lease api.Lease
		out, _, err := s.ExecNode(s.t.Context(), node, "root", "caelum", "job", id, "--json")
		if err != nil || json.Unmarshal([]byte(out), &lease) != nil {
			return false // the agent may not be running
		}
		if len(lease.Slices) != 1 {
			s.t.Fatalf("job %s holds %+v", id, lease)
		}
		slice = lease.Slices[0]
		slice.Use = nil // the usage changes between readings
		return true
	})
	return slice
}

// NoneDrained fails the test if slurmctld has recorded a reason for a node.
func (s *Site) NoneDrained() {
	s.t.Helper()
	for _, node := range s.Nodes {
		if why := s.Must("", "root", "sinfo", "-h", "-p", "plain", "-n", node, "-o", "%E"); why != "none" {
			s.t.Errorf("%s: %s", node, why)
		}
	}
}

// NothingLeft waits until the queue is empty, no agent has a lease, and every instance is idle.
func (s *Site) NothingLeft() {
	s.t.Helper()
	var left string
	for range 150 {
		if left = s.leftovers(); left == "" {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	s.t.Errorf("the test's jobs left traces:\n%s", left)
}

func (s *Site) leftovers() string {
	var left []string
	if jobs := s.Try("", "squeue", "-h"); jobs != "" {
		left = append(left, jobs)
	}
	for _, node := range s.Nodes {
		if files := s.Try(node, "ls", "-A", "/run/caelum/jobs"); files != "" {
			left = append(left, node+": lease files "+files)
		}
		if _, _, err := s.ExecNode(context.Background(), node, "root", "nvml-emulator", "check"); err != nil {
			left = append(left, node+": "+s.Try(node, "nvml-emulator", "check"))
		}
		status, err := s.Status(node)
		if err != nil || len(status.Leases) > 0 || status.PublishError != "" {
			left = append(left, fmt.Sprint(node, ": ", err, status.Leases, status.PublishError))
		}
		for _, g := range status.GPUs {
			for _, in := range g.Instances {
				if in.State != api.StateIdle {
					left = append(left, fmt.Sprintf("%s: %+v", node, in))
				}
			}
		}
	}
	return strings.Join(left, "\n")
}
