//go:build e2e

package e2efaults

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/api"
)

// user is who submits; stranger is another one.
const user, stranger = "user1", "user2"

// limit is how long anything may take. It only keeps a broken test from hanging.
const limit = 60 * time.Second

// hold NAME: keeps its device until end.NAME is there; fails when the device is taken from it.
const hold = `#!/bin/bash
cuda-process --exclusive --seconds 3600 &
device=$!
until [[ -e $HOME/end.$1 ]]; do
    kill -0 $device || { echo "lost the device"; exit 1; }
    sleep 0.2
done
kill $device
`

// conf makes slurmctld start what can start within a second.
var conf = []string{"SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_continue,bf_interval=1"}

// parallel is how many clusters there are at once.
const parallel = "3"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(asStranger) != "" {
		os.Exit(beStranger())
	}
	flag.Set("test.parallel", parallel)
	os.Exit(m.Run())
}

// atLeastOne is a number from the environment.
func atLeastOne(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s is no number above 0", name, text)
	}
	return n
}

// site is a running cluster.
type site struct {
	t *testing.T
	*cluster.Cluster
	nodes []string
}

func start(t *testing.T, o cluster.Options) *site {
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
		o.AgentConfig = filepath.Join(t.TempDir(), "caelum.yaml")
		if err := os.WriteFile(o.AgentConfig, []byte("log_format: json\npoll_interval: "+poll+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := cluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, Cluster: c}
	for n := range o.Nodes {
		s.nodes = append(s.nodes, fmt.Sprint("n", n+1))
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.explain()
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.write("hold", hold)
	return s
}

// explain logs what a failure can be understood by.
func (s *site) explain() {
	s.t.Logf("%s\n%s", s.try("", "sinfo", "-N", "-p", "plain", "-O", "NodeList,StateLong,Reason,Gres:200,GresUsed:200"), s.try("", "squeue", "-t", "all", "-o", "%i %j %T %r %N %V %S %e"))
	if keep := os.Getenv("FAULTS_KEEP"); keep != "" {
		if err := os.CopyFS(filepath.Join(keep, s.t.Name()), os.DirFS(filepath.Join(s.Dir, "log"))); err != nil {
			s.t.Log(err)
		}
	}
	for _, node := range s.nodes {
		log, _ := s.Log("agent-" + node)
		var lines []string
		for line := range strings.Lines(log) {
			if !strings.Contains(line, `"msg":"published"`) {
				lines = append(lines, line)
			}
		}
		s.t.Logf("the agent of %s said:\n%s%s", node, strings.Join(lines[max(0, len(lines)-30):], ""), s.try(node, "caelum", "status"))
	}
}

func (s *site) home() string { return filepath.Join(s.Dir, "home", user) }

func (s *site) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.home(), name), []byte(text), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// try runs a command as root and answers whatever it prints, also when it fails.
func (s *site) try(node string, args ...string) string {
	out, stderr, _ := s.ExecNode(context.Background(), node, "root", args...)
	return strings.TrimSpace(out + stderr)
}

// must runs a command and answers its output without blanks around it.
func (s *site) must(node, who string, args ...string) string {
	s.t.Helper()
	out, stderr, err := s.ExecNode(s.t.Context(), node, who, args...)
	if err != nil {
		s.t.Fatalf("%q as %s: %v: %s", args, who, err, stderr)
	}
	return strings.TrimSpace(out)
}

// submit answers the id of a batch job of the user's that runs one command.
func (s *site) submit(command string, options ...string) string {
	s.t.Helper()
	return s.must("", user, append(append([]string{"sbatch", "--parsable"}, options...), "--wrap", command)...)
}

// end lets the runs of `hold NAME` end.
func (s *site) end(name string) { s.t.Helper(); s.write("end."+name, "") }

func (s *site) within(what string, holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not in time: %s", what)
		}
	}
}

// state is a job's state in squeue, which may be away.
func (s *site) state(id string) string {
	return s.try("", "squeue", "-h", "-t", "all", "-j", id, "-o", "%T")
}

// lives is state, and ends the test when the job has failed.
func (s *site) lives(id string) string {
	s.t.Helper()
	state := s.state(id)
	switch state {
	case "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL":
		out, _ := os.ReadFile(filepath.Join(s.home(), "slurm-"+id+".out"))
		s.t.Fatalf("job %s is %s; its output:\n%s", id, state, out)
	}
	return state
}

func (s *site) running(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		s.within("job "+id+" runs", func() bool { return s.lives(id) == "RUNNING" })
	}
}

// completed waits until jobs have ended well, in their first run.
func (s *site) completed(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		s.within("job "+id+" ends", func() bool {
			return s.lives(id) == "COMPLETED"
		})
		if job := s.must("", "root", "scontrol", "show", "job", id); !strings.Contains(job, " Restarts=0 ") {
			s.t.Errorf("job %s was started more than once:\n%s", id, job)
		}
	}
}

func (s *site) status(node string) (status api.Status, err error) {
	out, stderr, err := s.ExecNode(context.Background(), node, "root", "caelum", "status", "--json")
	if err != nil {
		return status, fmt.Errorf("%w: %s", err, stderr)
	}
	return status, json.Unmarshal([]byte(out), &status)
}

// slice is the one slice of a job.
func (s *site) slice(node, id string) (slice api.Slice) {
	s.t.Helper()
	s.within("caelum job "+id, func() bool {
		var lease api.Lease
		out, _, err := s.ExecNode(s.t.Context(), node, "root", "caelum", "job", id, "--json")
		if err != nil || json.Unmarshal([]byte(out), &lease) != nil {
			return false // the agent may be away
		}
		if len(lease.Slices) != 1 {
			s.t.Fatalf("job %s holds %+v", id, lease)
		}
		slice = lease.Slices[0]
		slice.Use = nil // another at every look
		return true
	})
	return slice
}

// noneDrained fails when slurmctld has a reason against a node.
func (s *site) noneDrained() {
	s.t.Helper()
	for _, node := range s.nodes {
		if why := s.must("", "root", "sinfo", "-h", "-p", "plain", "-n", node, "-o", "%E"); why != "none" {
			s.t.Errorf("%s: %s", node, why)
		}
	}
}

// nothingLeft waits until no job holds anything, and no instance is anybody's but the agent's.
func (s *site) nothingLeft() {
	s.t.Helper()
	var left string
	for range 150 {
		if left = s.leftovers(); left == "" {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	s.t.Errorf("this is left:\n%s", left)
}

func (s *site) leftovers() string {
	var left []string
	if jobs := s.try("", "squeue", "-h"); jobs != "" {
		left = append(left, jobs)
	}
	for _, node := range s.nodes {
		if files := s.try(node, "ls", "-A", "/run/caelum/jobs"); files != "" {
			left = append(left, node+": lease files "+files)
		}
		if _, _, err := s.ExecNode(context.Background(), node, "root", "nvml-emulator", "check"); err != nil {
			left = append(left, node+": "+s.try(node, "nvml-emulator", "check"))
		}
		status, err := s.status(node)
		if err != nil || len(status.Leases) > 0 || status.PublishError != "" {
			left = append(left, fmt.Sprint(node, ": ", err, status.Leases, status.PublishError))
		}
		for _, g := range status.GPUs {
			for _, in := range g.Instances {
				if in.State != "idle" {
					left = append(left, fmt.Sprintf("%s: %+v", node, in))
				}
			}
		}
	}
	return strings.Join(left, "\n")
}
