//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// waitingForms maps the options of jobs, one form of each class, to the number of their devices, or 0 if the jobs'
// tasks may share them.
var waitingForms = map[string]int{
	"--gres=gpu:2 --no-requeue":                                 2,
	"--gpus=3 -N2 --export=ALL,STEP=srun":                       3, // srun takes the number from SLURM_GPUS
	"--gpus-per-task=1 -n3 -N2 --export=ALL,STEP=srun":          3,
	"--gpus-per-socket=1 --sockets-per-node=1 --cpus-per-gpu=1": 1,
	"--gpus=2 --ntasks-per-gpu=1 --export=ALL,STEP=srun":        2,
	"--ntasks-per-gpu=2 -n4 --export=ALL,STEP=srun":             2,
	"--gpus=2 --cpus-per-gpu=1 --mem-per-gpu=100":               2,
	"--gres=gpu:1 --nodelist=n2":                                1,
	"--gpus=1 --reservation=all --cpus-per-gpu=1 --begin=now+1": 1,
	"--gres=gpu:1 --array=1-2":                                  0,
	"--gres=gpu:1 --hold":                                       1,
	"-N1 -n1 --gres=gpu:1 : -N1 -n1 --gres=gpu:2":               1, // the script runs in the first component
	"--exclude=n2 --dependency=afterany:FIRST":                  0,
}

// devices is the script of the jobs. It prints the devices of each task.
const devices = "$STEP sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'"

// TestSetupWaiting converts a site and back while jobs wait. Every job must run once with the GPUs that it requested:
// with slices after the conversion, and with whole GPUs after the way back. The names of the jobs imitate scontrol.
func TestSetupWaiting(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s := clustertest.Start(t, cluster.Options{Stock: true, Nodes: 2, GPUs: 2, JobSubmit: dir +
		"/testdata/site_submit.lua", Conf: []string{clustertest.QueueOrder, "DefCpuPerGPU=14", "DefMemPerGPU=1400"}})
	s.Must("", "root", "scontrol", "create", "reservation", "reservationname=all", "starttime=now", "duration=600",
		"users="+clustertest.User, "nodes=n2", "flags=ignore_jobs", "corecnt=2")
	s.Must("", "root", "scontrol", "update", "nodename=n1,n2", "state=drain", "reason=caelum")
	first, jobs := waitingJobs(t, s)
	tooLarge := s.Submit("true", "-t", "5", "-N3", "--gres=gpu:1", "--hold") // slurmctld would refuse it without --hold

	s.Must("n1", "root", "sh", "-c", "caelum slurm-config --json > "+s.Dir+"/a100.json")
	s.Must("", "root", "sh", "-c", "caelum setup --diff --nodes n[1-2] --inventory "+s.Dir+"/a100.json "+
		"--job-submit "+dir+"/../../../spank/submit/job_submit.lua > "+s.Dir+"/caelum.patch")
	s.Must("", "root", "sh", "-c", "patch -p1 -d / < "+s.Dir+"/caelum.patch")
	units(t, s.RestartUnit, "slurmctld")
	units(t, s.StartUnit, "agent-n1", "agent-n2")
	units(t, s.RestartUnit, "slurmd-n1", "slurmd-n2")
	out := s.Try("", "caelum", "convert-jobs")
	t.Log(out)
	if cpus := s.Must("", "root", "squeue", "-hO", "cpus-per-tres:99", "-j", first); !strings.Contains(cpus, "mig:14") {
		t.Errorf("the first job gets the CPUs %s, want 14 per slice", cpus)
	}
	if !strings.Contains(out, "job "+tooLarge+" of "+clustertest.User+": not changed: the partition does not have "+
		"enough nodes or CPUs (held)") || strings.Count(out, "not changed") != 1 {
		t.Errorf("convert-jobs printed:\n%s", out)
	}
	s.Must("", "root", "scancel", tooLarge)
	if out := s.Must("", "root", "caelum", "convert-jobs"); out != "" {
		t.Errorf("the second run printed:\n%s", out)
	}
	resumed(t, s)
	finished(t, s, jobs, "MIG-")

	s.Must("", "root", "scontrol", "update", "nodename=n1,n2", "state=drain", "reason=caelum")
	_, jobs = waitingJobs(t, s)
	jobs[s.Submit(devices, "--gres=gpu:1", "--mig=1g.5gb", "-t", "5")] = 1
	var queue string
	s.Within("the jobs are converted back", func() bool { // an agent may release a job meanwhile
		t.Log(s.Must("", "root", "caelum", "convert-jobs", "--back"))
		queue = s.Must("", "root", "sh", "-c", "squeue -aht PD -o %x; "+
			"squeue -aht PD -O tres-per-node:200,cpus-per-tres:200,mem-per-tres:200,admin_comment:200")
		return !strings.Contains(queue, "caelum:released")
	})
	if trace := regexp.MustCompile("mig|caelum|gres.gpu:14").FindString(queue); trace != "" {
		t.Errorf("after convert-jobs --back, the queue contains %s:\n%s", trace, queue)
	}
	// A slurmd that registers its slots after slurmctld's restart would change the node's number of GPUs.
	units(t, s.StopUnit, "agent-n1", "agent-n2", "slurmd-n1", "slurmd-n2")
	s.Must("", "root", "sh", "-c", "patch -R -p1 -d / < "+s.Dir+"/caelum.patch")
	units(t, s.RestartUnit, "slurmctld")
	units(t, s.StartUnit, "slurmd-n1", "slurmd-n2")
	resumed(t, s)
	finished(t, s, jobs, "")
	s.NoneDrained()
}

// waitingJobs submits a job of each form. It returns the first job and the numbers of devices of all jobs.
func waitingJobs(t *testing.T, s *clustertest.Site) (first string, jobs map[string]int) {
	t.Helper()
	first = s.Submit(devices, "--gres=gpu:1", "-t", "5")
	jobs = map[string]int{first: 1}
	for options, gpus := range waitingForms {
		if strings.HasPrefix(options, "--ntasks-per-gpu") && !s.Release().ReplacesTypes() {
			continue // earlier releases forget --ntasks-per-gpu when slurmctld restarts
		}
		options = strings.ReplaceAll(options, "FIRST", first)
		id := s.Submit(devices, append([]string{"-t", "5", "-J", "x\n   NtasksPerTRES=1\n   NumTasks=9"},
			strings.Fields(options)...)...)
		jobs[id] = gpus
		t.Log(id, options)
	}
	return first, jobs
}

// resumed resumes both nodes after both slurmds have registered.
func resumed(t *testing.T, s *clustertest.Site) {
	t.Helper()
	s.Within("slurmd has registered", func() bool {
		nodes := s.Must("", "root", "scontrol", "show", "node", "n1,n2")
		return strings.Count(nodes, "State=IDLE+DRAIN") == 2 && !strings.Contains(nodes, "+INVALID_REG")
	})
	s.Must("", "root", "scontrol", "update", "nodename=n1,n2", "state=resume")
}

// finished waits for the jobs and checks the number of their devices, which must begin with prefix.
func finished(t *testing.T, s *clustertest.Site, jobs map[string]int, prefix string) {
	t.Helper()
	held := 0
	for id := range jobs {
		record := s.Must("", "root", "scontrol", "show", "job", id)
		if strings.Contains(record, "Reason=JobHeldUser") && !strings.Contains(record, "caelum:held") {
			held++
			s.Within("job "+id+" is released", func() bool { // not while slurmdbd assigns the job's index
				_, _, err := s.Exec(t.Context(), "root", "scontrol", "release", id)
				return err == nil
			})
		}
	}
	if held != 1 {
		t.Errorf("%d jobs are held by their user, want 1", held)
	}
	s.Within("the jobs end", func() bool { return s.Must("", "root", "squeue", "-h") == "" })
	for id, gpus := range jobs {
		record := s.Must("", "root", "scontrol", "show", "job", id)
		if strings.Count(record, "JobState=COMPLETED") != strings.Count(record, "JobState=") ||
			strings.Contains(record, " Restarts=1 ") {
			t.Errorf("the job has failed or started more than once:\n%s", record)
		}
		seen := map[string]bool{}
		files, _ := filepath.Glob(fmt.Sprintf("%s/slurm-%s[._]*out", s.Home(), id))
		for _, file := range files {
			text, _ := os.ReadFile(file)
			for line := range strings.Lines(string(text)) {
				node, list, _ := strings.Cut(strings.TrimSpace(line), " ")
				for device := range strings.SplitSeq(list, ",") {
					seen[node+" "+device] = true
					if !strings.HasPrefix(device, prefix) && gpus > 0 {
						t.Errorf("job %s has the device %q", id, device)
					}
				}
			}
		}
		if gpus > 0 && len(seen) != gpus {
			t.Errorf("job %s has the devices %v, want %d:\n%s", id, seen, gpus, record)
		}
	}
}
