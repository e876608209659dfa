//go:build e2e

package e2ewhole

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// startFractions starts a cluster with an A100 on n1 and an L40S with four fractions on n2. A requeued job may restart
// after 6 s.
func startFractions(t *testing.T) *site {
	t.Helper()
	return start(t, cluster.Options{
		Nodes: 2, GPUs: 1, Model: "A100-40GB,L40S-48GB", Cgroup: "v2", MemoryLimits: "misc",
		AgentConfig: "testdata/fractions.yaml",
		Conf: []string{"AuthInfo=cred_expire=5",
			"SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_continue,bf_interval=1,sched_interval=2"},
	})
}

// theirs submits a job of another user.
func (s *site) theirs(command string, options ...string) string {
	s.t.Helper()
	return s.Must("", stranger, append(append([]string{"sbatch", "--parsable"}, options...), "--wrap", command)...)
}

// cgroups returns the cgroups that agents have made for jobs on a node.
func (s *site) cgroups(node string) string {
	const list = "ls -d /sys/fs/cgroup/system.slice/*slurmstepd.scope/*/caelum 2>/dev/null; true"
	return s.Must(node, "root", "sh", "-c", list)
}

// TestFractions runs unchanged scripts of two users on fractions of one GPU beside slices of another.
func TestFractions(t *testing.T) {
	s := startFractions(t)
	s.neighbours()
	s.grows()
	s.growsInPlace()
	s.Within("no cgroup of a job is left", func() bool { return s.cgroups("n2") == "" })
	s.NoneDrained()
	s.NothingLeft()
}

// neighbours runs jobs of two users on one GPU. Each gets all of its own memory and no more, also after a restart of
// the agent, and what a job does is shown for this job only.
func (s *site) neighbours() {
	t := s.t
	mine := s.Submit("cuda-process --memory 9000 --seconds 3600 & until [ -e end.mine ]; do sleep 0.2; done; kill $!",
		"--gres=gpu:1", "--mig=1f.11gb")
	s.Running(mine)
	other := s.theirs("sleep 1; cuda-process --memory 22000 --seconds 3600", "--gres=gpu:1", "--mig=2f.22gb")
	s.Running(other)
	s.Within("both jobs' memory is shown", func() bool {
		return strings.Contains(s.Try("n2", "caelum", "job", mine), "9000 MiB in use") &&
			strings.Contains(s.Try("n2", "caelum", "job", other), "22000 MiB in use")
	})
	greedy := "cuda-process --memory 12000 --seconds 1; echo $? >greedy.out"
	for _, restarted := range []bool{false, true} {
		if restarted {
			if err := s.RestartUnit("agent-n2"); err != nil {
				t.Fatal(err)
			}
		}
		s.Completed(s.Submit(greedy, "--gres=gpu:1", "--mig=1f.11gb"))
		if text, _ := os.ReadFile(filepath.Join(s.Home(), "greedy.out")); strings.TrimSpace(string(text)) == "0" {
			t.Errorf("restarted %v: a job could use 12000 MiB of a fraction of 11389 MiB", restarted)
		}
	}
	if got := s.Must("n2", "root", "caelum", "status"); !strings.Contains(got, "2f.22gb") {
		t.Errorf("caelum status:\n%s", got)
	}
	s.End("mine")
	s.Completed(mine)
	s.Must("", stranger, "scancel", other)
}

// grows runs a job that needs more memory than its fraction has. It continues in the next size.
func (s *site) grows() {
	id := s.Submit("cuda-process --curve 0:9000,2:11000,2.1:15000,4:15000", "--gres=gpu:l40s:1", "--mig-mem=9G",
		"--mig-grow=oom", "--requeue")
	s.Within("the job has the larger fraction", func() bool {
		status, err := s.Status("n2")
		return err == nil && len(status.Leases) == 1 && status.Leases[0].Restart == 1 &&
			status.Leases[0].Slices[0].Profile == "2f.22gb"
	})
	s.Within("the job is complete", func() bool { return s.State(id) == "COMPLETED" })
}

// growsInPlace runs a job whose memory would exceed that of its fraction after 80 s, and whose run time is known. It
// gets a larger fraction while it runs, and ends with more memory than it began with, beside a neighbour.
func (s *site) growsInPlace() {
	s.Write("ramp", "#!/bin/bash\n#SBATCH --gres=gpu:l40s:1 --requeue\n"+
		"nvidia-smi --query-gpu=memory.total\ncuda-process --curve 0:5000,100:13000\n")
	held := s.Must("", clustertest.User, "sbatch", "--parsable", "--hold", "ramp")
	record := s.Must("", "root", "scontrol", "-o", "show", "job", held)
	_, work, ok := strings.Cut(record, "caelum:work=")
	if !ok {
		s.t.Fatal(record)
	}
	s.Must("", "root", "scancel", held)
	s.Must("", "root", "sed", "-i", "-e", "$a site "+strings.Fields(work)[0]+" 1f.11gb 150", "/etc/caelum/decisions")
	id := s.Must("", clustertest.User, "sbatch", "--parsable", "--mig-grow=forecast", "ramp")
	s.Running(id)
	if got := s.Slice("n2", id).Profile; got != "1f.11gb" {
		s.t.Fatalf("the job has %s", got)
	}
	neighbour := s.Submit("cuda-process --memory 11000 --seconds 3600", "--gres=gpu:1", "--mig=1f.11gb")
	s.Running(neighbour)
	s.Within("the job has the larger fraction", func() bool { return s.Slice("n2", id).Profile == "2f.22gb" })
	if record := s.Must("", "root", "scontrol", "-o", "show", "job", id); !strings.Contains(record, "Restarts=0") ||
		!strings.Contains(record, "gres/mig:1f.11gb=1") {
		s.t.Errorf("slurmctld shows %s", record)
	}
	s.Completed(id)
	if state := s.State(neighbour); state != "RUNNING" {
		s.t.Errorf("the neighbour is %s", state)
	}
	s.Must("", clustertest.User, "scancel", neighbour)
}

// TestFractionAttacks tries to use more memory than a fraction has. Each attempt either fails like any program that
// runs out of memory, or ends the job within a few samples. The neighbour keeps its memory and runs on.
func TestFractionAttacks(t *testing.T) {
	s := startFractions(t)
	victim := s.theirs("cuda-process --memory 11000 --seconds 3600", "--gres=gpu:1", "--mig=1f.11gb")
	s.Running(victim)
	const greedy, half = "cuda-process --memory 12000 --seconds 3600", "cuda-process --memory 6000 --seconds 3600"
	for _, c := range []struct{ name, command string }{
		{"environment", "env -i PATH=$PATH LD_LIBRARY_PATH=$LD_LIBRARY_PATH " +
			"CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES NVML_EMULATOR_STATE=$NVML_EMULATOR_STATE " + greedy},
		{"job id", "SLURM_JOB_ID=1 " + greedy},
		{"namespaces", "unshare -rm " + greedy},
		{"step", "srun -n1 " + greedy},
		{"two programs", half + " & sleep 1; " + half},
	} {
		id := s.Submit(c.command+"; echo $? >attack.out; kill %1; true", "--gres=gpu:1", "--mig=1f.11gb")
		s.Completed(id)
		if text, _ := os.ReadFile(filepath.Join(s.Home(), "attack.out")); strings.TrimSpace(string(text)) == "0" {
			t.Errorf("%s: the program used more memory than its fraction has", c.name)
		}
	}
	for name, option := range map[string]string{"uncharged": "--uncharged", "managed": "--managed"} {
		id := s.Submit("cuda-process "+option+" --memory 20000 --seconds 3600", "--gres=gpu:1", "--mig=1f.11gb",
			"--output="+name+".out")
		s.Within("the job "+name+" is ended", func() bool {
			return strings.Contains(s.Must("", "root", "sacct", "-X", "-n", "-P", "-j", id, "-o", "State"), "CANCELLED")
		})
		text, _ := os.ReadFile(filepath.Join(s.Home(), name+".out"))
		if !strings.Contains(string(text), "its fraction 1f.11gb has 11389 MiB") {
			t.Errorf("%s: the job's output does not contain the reason:\n%s", name, text)
		}
	}
	if state := s.State(victim); state != "RUNNING" {
		t.Errorf("the neighbour is %s", state)
	}
	s.Must("", stranger, "scancel", victim)
	s.NoneDrained()
	s.NothingLeft()
}
