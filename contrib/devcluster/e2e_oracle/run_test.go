//go:build e2e

package e2eoracle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/oracle"
)

// nodes is the number of nodes in a cluster, gpus the number of GPUs per node, and atLeast the minimum number of jobs.
// ORACLE_CLUSTER=4x4x300 sets all three.
var nodes, gpus, atLeast = size()

func size() (nodes, gpus, jobs int) {
	if _, err := fmt.Sscanf(os.Getenv("ORACLE_CLUSTER"), "%dx%dx%d", &nodes, &gpus, &jobs); err != nil {
		return 2, 2, 0
	}
	return nodes, gpus, jobs
}

// site is a running cluster under load.
type site struct {
	t *testing.T
	*cluster.Cluster
	models []string // the GPU models of the nodes; the last model applies to all further nodes
	gpus   int      // per node
	full   bool     // the GPUs may be full
}

// start starts a cluster. o.GPUs is the minimum number of GPUs per node, and o.AgentConfig is relative to
// contrib/devcluster.
func start(t *testing.T, o cluster.Options) *site {
	t.Helper()
	script, err := cluster.Script()
	if err != nil {
		t.Fatal(err)
	}
	o.Nodes, o.GPUs = nodes, max(gpus, o.GPUs)
	o.AgentConfig = filepath.Join(filepath.Dir(script), cmp.Or(o.AgentConfig, "caelum.yaml"))
	// In Slurm 22.05, a requeued job waits until its first run's credential has expired, by default two minutes.
	o.Conf = append(o.Conf, fmt.Sprintf("AuthInfo=cred_expire=%d", credSeconds))
	c, err := cluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &site{t, c, strings.Split(o.Model, ","), o.GPUs, false}
}

// must runs a command in the cluster, which must succeed, and returns its output.
func (s *site) must(node, as string, args ...string) string {
	s.t.Helper()
	out, stderr, err := s.ExecNode(s.t.Context(), node, as, args...)
	if err != nil {
		s.t.Fatalf("%v: %v: %s", args, err, stderr)
	}
	return out
}

// prepare writes the users' scripts and the decision table.
func (s *site) prepare(l *load) {
	s.t.Helper()
	home := filepath.Join(s.Dir, "home", user)
	s.write(filepath.Join(home, "worker"), worker)
	for _, p := range l.profiles {
		s.write(filepath.Join(home, "known-"+p), known(p))
	}
	_, rest, _ := strings.Cut(s.must("", "root", "cat", "/etc/caelum/decisions"), "\n")
	cmd := s.Command(
		s.t.Context(),
		"",
		"root",
		"sh",
		"-c",
		"cat >/etc/caelum/decisions.new && mv /etc/caelum/decisions.new /etc/caelum/decisions",
	)
	cmd.Stdin = strings.NewReader("caelum-decisions 1 2\n" + rest + strings.Join(l.keys, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("couldn't write the decision table: %v: %s", err, out)
	}
}

func (s *site) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// watch takes snapshots of slurmctld until stop is called, which returns them as text.
func (s *site) watch() (stop func() string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	var out, errs strings.Builder
	cmd := s.Command(ctx, "", "root", "bash", "-c", oracle.SnapshotScript)
	cmd.Stdout, cmd.Stderr = &out, &errs
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return func() string {
		in.Close() // the script ends when its stdin is closed
		if err := cmd.Wait(); err != nil {
			s.t.Errorf("the snapshots: %v: %s", err, errs.String())
		}
		cancel()
		return out.String()
	}
}

// submit runs the load's script, and waits until all jobs have ended.
func (s *site) submit(l *load, limit time.Duration) {
	s.t.Helper()
	end := time.Now().Add(limit)
	ctx, cancel := context.WithDeadline(s.t.Context(), end)
	defer cancel()
	cmd := s.Command(ctx, "", user, "bash", "-s")
	cmd.Stdin = strings.NewReader(l.script.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Errorf("the load: %v: %.500s", err, out)
	}
	for {
		left, _, err := s.ExecNode(s.t.Context(), "", "root", "squeue", "-h", "-a", "-o", "%i %T %r %b %q")
		if err == nil && left == "" {
			return
		}
		if time.Now().After(end) {
			for n := 1; n <= nodes; n++ {
				node := fmt.Sprint("n", n)
				left += s.must(
					"", "root", "scontrol", "-d", "show", "node", node,
				) + s.must(
					node,
					"root",
					"caelum",
					"status",
				)
			}
			s.t.Errorf("some jobs have not ended after %v:\n%s", limit, left)
			s.must("", "root", "scancel", "--user="+user)
			end = end.Add(time.Minute)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// stopController stops slurmctld after the given time, and restarts it after the time away. It does not use SIGKILL
// because, with or without Caelum, a killed slurmctld 22.05.8 loses the state of its last seconds, reuses job ids, and
// drains nodes for "Duplicate jobid".
func (s *site) stopController(after, away time.Duration) {
	s.t.Helper()
	done := make(chan error, 1)
	go func() {
		time.Sleep(after)
		err := s.StopUnit("slurmctld")
		time.Sleep(away)
		done <- errors.Join(err, s.StartUnit("slurmctld"))
	}()
	s.t.Cleanup(func() {
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

// collect writes the record of the run to a directory for oracle.Read.
func (s *site) collect(dir, snapshots string) {
	s.t.Helper()
	run := ""
	for n := 1; n <= nodes; n++ {
		node := fmt.Sprint("n", n)
		run += fmt.Sprintf("node %s %s %d", node, s.models[min(n, len(s.models))-1], s.gpus)
		if s.full {
			run += " full"
		}
		run += "\n"
		s.write(filepath.Join(dir, node+".emulator"), s.must(node, "root", "cat", "/run/nvml-emulator/state.log"))
		s.write(filepath.Join(dir, node+".final"), s.final(node))
	}
	s.logs(dir)
	s.write(filepath.Join(dir, "run"), run)
	s.write(filepath.Join(dir, "looks"), snapshots)
	s.write(
		filepath.Join(dir, "seen"),
		s.must("", "root", "bash", "-c", "cat "+filepath.Join(s.Dir, "home", user)+"/*.out | grep -E '^(ran|file) '"),
	)
	s.write(
		filepath.Join(dir, "sacct"),
		s.must(
			"", "root", "env", "SLURM_TIME_FORMAT=%s", "sacct", "-a", "-D", "-X", "-n", "-P", "-S", "now-1days", "-o",
			oracle.SacctFields,
		),
	)
}

// logs copies the logs of the agents and slurmctld to a directory. The agents must have ended before the call: if a
// running agent wrote to slurmctld between the copies, the logs would disagree.
func (s *site) logs(dir string) {
	s.t.Helper()
	names := map[string]string{"slurmctld": "slurmctld"}
	for n := 1; n <= nodes; n++ {
		names[fmt.Sprintf("n%d.agent", n)] = fmt.Sprintf("agent-n%d", n)
	}
	for name, unit := range names {
		log, err := s.Log(unit)
		if err != nil {
			s.t.Fatal(err)
		}
		s.write(filepath.Join(dir, name), log)
	}
}

// final lists the instances in the status that the node's agent reports.
func (s *site) final(node string) string {
	s.t.Helper()
	var status struct {
		GPUs []struct {
			Index     int
			Instances []struct {
				Profile, State string
				Start          int
			}
		}
	}
	if err := json.Unmarshal([]byte(s.must(node, "root", "caelum", "status", "--json")), &status); err != nil {
		s.t.Fatal(err)
	}
	var b strings.Builder
	for _, g := range status.GPUs {
		for _, in := range g.Instances {
			fmt.Fprintln(&b, g.Index, in.Profile, in.Start, in.State)
		}
	}
	return b.String()
}
