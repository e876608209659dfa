//go:build e2e

package e2eattacks

import (
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/clustertest"
)

// unmanaged lists the lines of slurm.conf for a node without Caelum. The attacker may use only the partition whole.
var unmanaged = []string{
	"NodeName=whole1 NodeAddr=127.0.1.100 Port=7100 CPUs=64 RealMemory=256000 Gres=gpu:whole:1",
	"PartitionName=whole Nodes=whole1 MaxTime=INFINITE State=UP",
	"PartitionName=accounts Nodes=whole1 MaxTime=INFINITE State=UP DenyAccounts=research",
	"PartitionName=groups Nodes=whole1 MaxTime=INFINITE State=UP AllowGroups=root",
}

// startUnmanaged starts the slurmd of whole1 on slurmctld's host, which has no agent.
func startUnmanaged(t *testing.T, s *clustertest.Site) {
	t.Helper()
	s.Must("ctl", "root", "sh", "-c", "echo NodeName=whole1 Name=gpu Type=whole File=/dev/null >>/etc/slurm/gres.conf")
	slurmd := s.Command(t.Context(), "ctl", "root", "slurmd", "-D", "-N", "whole1")
	if err := slurmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		slurmd.Process.Kill() // the cluster's end ends slurmd
		slurmd.Wait()
	})
	s.Within("whole1 is idle", func() bool {
		return s.Try("", "sinfo", "-h", "-n", "whole1", "-p", "whole", "-o", "%T") == "idle"
	})
}

// testBypass sends new jobs past Caelum and back, while one job runs and another waits. New jobs must start on the node
// without Caelum within a minute, without slurmctld being restarted, and no job may be lost. Users must neither reach a
// partition that they may not use, nor get new slices.
func testBypass(t *testing.T, s *clustertest.Site) {
	startUnmanaged(t, s)
	slice := []string{"--gres=gpu:1", "--mig=1g.5gb"}
	runs := s.Submit("./hold bypass", slice...)
	waits := s.Submit("true", append(slice, "--hold")...)
	s.Running(runs)
	pid := s.Must("ctl", "root", "pgrep", "-x", "slurmctld")
	decide := func(to string) { t.Helper(); s.Must("ctl", "root", "caelum", "decisions", "bypass", to) }

	for to, want := range map[string]string{
		"gpu": " in partition gpu has slices", "plain": "node n1 in partition plain has slices",
		"none": "slurmctld has no partition",
	} {
		_, stderr, err := s.ExecNode(t.Context(), "ctl", "root", "caelum", "decisions", "bypass", to)
		if err == nil || !strings.Contains(stderr, want) {
			t.Errorf("caelum decisions bypass %s: %v %s", to, err, stderr)
		}
	}

	began := time.Now()
	decide("whole")
	past := s.Must("", victim, "sbatch", "--parsable", "--gres=gpu:1", "--wrap", "true")
	s.Completed(past)
	took := time.Since(began)
	t.Logf("a new job ended on the node without Caelum %v after the decision", took)
	if got := s.Must("", "root", "squeue", "-h", "-t", "all", "-j", past, "-o", "%P %N"); got != "whole whole1" ||
		took > time.Minute {
		t.Errorf("job %s ended after %v in %q", past, took, got)
	}
	s.Within("caelum report says that job "+past+" got its GPU without Caelum", func() bool {
		return strings.Contains(s.Try("", "caelum", "report", past), "the job got GPUs without Caelum")
	})
	refused(t, s, "request GPUs without a profile", "sbatch", "--gres=gpu:1,mig:1g.5gb:1", "--wrap", "true")
	moves := s.Submit("true", append(slice, "--hold")...)
	refused(t, s, "", "scontrol", "update", "job="+moves, "partition=gpu")
	adds := s.Submit("true", "--hold")
	refused(t, s, "", "scontrol", "update", "job="+adds, "Gres=gpu:1")
	for _, to := range []string{"accounts", "groups"} {
		decide(to)
		notAdmitted(t, s, to)
	}
	s.Must("", "root", "scancel", moves, adds)

	decide("off")
	after := s.Submit("true", slice...)
	s.Must("", attacker, "scontrol", "release", waits)
	s.End("bypass")
	s.Completed(runs, waits, after)
	for _, id := range []string{runs, waits, after} {
		if job := s.Must("", "root", "scontrol", "show", "job", id); !strings.Contains(job, "mig:1g.5gb:1") ||
			!strings.Contains(job, "Partition=gpu ") {
			t.Errorf("job %s had no slice:\n%s", id, job)
		}
	}
	if now := s.Must("ctl", "root", "pgrep", "-x", "slurmctld"); now != pid {
		t.Errorf("slurmctld has restarted: pid %s, then %s", pid, now)
	}
}

// notAdmitted submits a job to a partition that the attacker may not use, as the attacker: once by name, and once past
// Caelum. slurmctld must treat both in the same way, and either refuse them or accept but not start them.
func notAdmitted(t *testing.T, s *clustertest.Site, partition string) {
	t.Helper()
	submit := func(options ...string) (id string, refused bool) {
		out, stderr, err := s.Exec(t.Context(), attacker, append([]string{"sbatch", "--parsable", "--gres=gpu:1"},
			append(options, "--wrap", "true")...)...)
		t.Logf("%s, %q: %v %s", partition, options, err, strings.TrimSpace(stderr))
		return strings.TrimSpace(out), err != nil
	}
	named, first := submit("-p", partition)
	past, second := submit()
	if first != second {
		t.Errorf("partition %s: refused %v by name, and %v past Caelum", partition, first, second)
	}
	if first || second {
		return
	}
	waits := func(id string) string { return s.Try("", "squeue", "-h", "-j", id, "-o", "%T %P %r") }
	s.Within("slurmctld has considered both jobs", func() bool {
		return waits(named) == waits(past) && !strings.HasSuffix(waits(past), " None")
	})
	if got := waits(past); !strings.HasPrefix(got, "PENDING "+partition+" ") {
		t.Errorf("partition %s: the job is %s", partition, got)
	}
	t.Logf("%s: %s", partition, waits(past))
	s.Must("", "root", "scancel", named, past)
}

// refused runs a command as the attacker, which must fail with the given message.
func refused(t *testing.T, s *clustertest.Site, message string, args ...string) {
	t.Helper()
	out, stderr, err := s.Exec(t.Context(), attacker, args...)
	t.Logf("%q: %v %s", args, err, strings.TrimSpace(stderr))
	if err == nil || !strings.Contains(stderr, message) {
		t.Errorf("%q: %v, want the error %q: %s%s", args, err, message, out, stderr)
	}
}
