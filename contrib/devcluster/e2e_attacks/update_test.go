//go:build e2e

package e2eattacks

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// limited starts a cluster whose slurmctld enforces limits, which do not allow the attacker any whole-GPU slices.
func limited(t *testing.T) *clustertest.Site {
	t.Helper()
	conf := append([]string{"AccountingStorageEnforce=limits"}, unmanaged...)
	s := clustertest.Start(t, cluster.Options{Nodes: 2, GPUs: 2, Conf: conf})
	s.Must("", "root", "sacctmgr", "-i", "modify", "user", attacker, "set", "GrpTRES=gres/mig:7g.40gb=0")
	return s
}

// TestUpdatedJobKeepsItsSlices checks jobs that a user holds, updates and releases. The updates remove a job's slices
// or move it between partitions. If the job then runs, slurmctld must count its slices, and the limit on whole-GPU
// slices must apply.
func TestUpdatedJobKeepsItsSlices(t *testing.T) {
	s := limited(t)
	client := buildClient(t, s)
	for _, c := range []struct {
		name    string
		submit  string
		updates []string // arguments of scontrol update; %s is the job id
	}{
		{"slices emptied", "--gpus=1", []string{"job=%s TresPerNode="}},
		{"slices emptied, profile by option", "--gpus=1 --mig=1g.5gb", []string{"job=%s TresPerNode="}},
		{"slices emptied, counts per task", "--gpus-per-task=1 -n1", []string{"job=%s TresPerNode="}},
		{"zero slices", "--gres=gpu:1", []string{"job=%s Gres=gpu:1,mig:2g.10gb:0"}},
		{"GPUs per job behind slices", "--gres=gpu:1", []string{"job=%s TresPerJob=gres:gpu:1", "job=%s TresPerNode="}},
		{"GPUs per job, as 23.11 writes them", "--gres=gpu:1",
			[]string{"job=%s TresPerJob=gres/gpu:1", "job=%s TresPerNode="}},
		{"moved in", "-p plain --gres=gpu:1", []string{"job=%s partition=gpu"}},
		{"moved in, profile by option", "-p plain --gres=gpu:1 --mig=1g.5gb", []string{"job=%s partition=gpu"}},
		{"moved into a list", "-p plain --gres=gpu:1", []string{"job=%s partition=plain,gpu", "job=%s partition=gpu"}},
		{"moved in, counts per job", "-p plain --gpus=1", []string{"job=%s partition=gpu"}},
		{"moved in, tasks per GPU", "-p plain --ntasks-per-gpu=1 -n1", []string{"job=%s partition=gpu"}},
		{"moved in with a hidden GPU", "-p plain --gres=gpu:1",
			[]string{"job=%s TresPerNode=gres:mig:2g.10gb:0", "job=%s partition=gpu"}},
		{"moved in with a hidden GPU, as 23.11 writes it", "-p plain --gres=gpu:1",
			[]string{"job=%s TresPerNode=gres/mig:2g.10gb:0", "job=%s partition=gpu"}},
		{"moved out, emptied, moved in", "--gpus=1", []string{"job=%s partition=plain TresPerNode=",
			"job=%s partition=gpu"}},
		{"tasks per GPU, by the protocol", "-n1", []string{"tasks %s"}},
		{"the same, moved in", "-p plain -n1", []string{"tasks %s", "job=%s partition=gpu"}},
		{"an element of an array", "-p plain --gres=gpu:1 --array=7", []string{"job=%s_7 partition=gpu"}},
	} {
		id := s.Submit("./hold", strings.Fields("--hold -t 10 --job-name=attack "+c.submit)...)
		for _, update := range c.updates {
			args := strings.Fields(fmt.Sprintf(update, id))
			if args[0] == "tasks" {
				args = append([]string{client}, args...)
			} else {
				args = append([]string{"scontrol", "update"}, args...)
			}
			_, stderr, err := s.Exec(t.Context(), attacker, args...)
			t.Logf("%s: %s: %v %s", c.name, update, err, strings.TrimSpace(stderr))
		}
		if s.Try("", "squeue", "-h", "-j", id, "-o", "%P") == "plain" { // slurmctld rejected the attack
			s.Must("", attacker, "scancel", id)
			continue
		}
		s.Exec(t.Context(), attacker, "scontrol", "release", id)
		settle(t, s, c.name, id)
		s.Must("", attacker, "scancel", id)
		s.Within(c.name+" ended", func() bool { return s.Try("", "squeue", "-h", "-j", id) == "" })
	}
	t.Run("bypass", func(t *testing.T) { testBypass(t, s) })
	s.NoneDrained()
}

// buildClient compiles testdata/client.c in a directory from which the cluster's users can run it.
func buildClient(t *testing.T, s *clustertest.Site) string {
	t.Helper()
	path := filepath.Join(s.Home(), "client")
	if out, err := exec.Command("gcc", "-O1", "-Wall", "-Werror", "-o", path, "testdata/client.c",
		"-lslurm").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// settle waits until a released job has started or waits because of the limit. If the job is running, slurmctld must
// count its slice. A job without a GPU may already have failed, because its script finds no device.
func settle(t *testing.T, s *clustertest.Site, name, id string) {
	t.Helper()
	end := time.Now().Add(clustertest.Limit)
	for {
		state := s.Try("", "squeue", "-h", "-t", "all", "-j", id, "-o", "%T %r")
		if strings.HasPrefix(state, "RUNNING") || strings.HasPrefix(state, "FAILED") {
			break
		}
		if strings.HasSuffix(state, " AssocGrpGRES") { // the limit applies to the job
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %s", name, state)
		}
		time.Sleep(100 * time.Millisecond)
	}
	counted := ""
	s.Within("accounting of "+name, func() bool {
		counted = s.Must("", "root", "sacct", "-j", id, "-X", "-n", "-P", "-o", "AllocTRES")
		return counted != ""
	})
	if !strings.Contains(counted, "gres/") {
		if asked := s.Must("", "root", "scontrol", "-d", "show", "job", id); strings.Contains(asked, "GRES=gpu") {
			t.Errorf("%s: slurmctld counts %s for the job\n%s", name, counted, asked)
		}
		return // the job has no GPU
	}
	node := s.Must("", "root", "squeue", "-h", "-j", id, "-o", "%N")
	number := s.Must("", "root", "squeue", "-h", "-j", id, "-o", "%A")
	slice := s.Slice(node, number)
	if want := "gres/mig:" + slice.Profile + "=1"; !strings.Contains(counted, want) || slice.Profile == "7g.40gb" {
		t.Errorf("%s: the job has a %s slice, but slurmctld counts %s", name, slice.Profile, counted)
	}
}
