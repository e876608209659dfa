package usage

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
	"caelum/internal/slurm"
)

var observedAt = time.Unix(1795339300, 0)

// observedSite is a node with an Observer and fake records of slurmctld.
type observedSite struct {
	Observer
	now       time.Time
	jobs      []slurm.Job
	jobOf     map[int]uint32 // the jobs in the cgroups of processes, by pid
	tracked   map[int]uint32 // the jobs of processes according to slurmstepd
	started   map[int]uint64 // the start times of processes, by pid
	cgroups   int            // the number of calls to Cgroups
	asking    time.Duration  // the duration of a call to Processes
	scripts   int            // the number of calls to Script
	asked     int            // the number of calls to Processes
	unlisted  error
	lines     []repo.Observed
	scriptErr error
}

const observedScript = "#!/bin/bash\n#SBATCH -t 5 -c4\ntrain"

func newObservedSite(t *testing.T, hw ObservedHardware) *observedSite {
	t.Helper()
	log := logrus.New()
	log.SetOutput(t.Output())
	s := &observedSite{now: observedAt, jobOf: map[int]uint32{}}
	s.Observer = Observer{
		Node: "n1", Hardware: hw, Slurm: s, Log: logrus.NewEntry(log),
		Started: func(pid int) (uint64, error) { return s.started[pid], nil },
		Cgroups: func(pid int) ([]string, error) {
			s.cgroups++
			if job := s.jobOf[pid]; job != 0 {
				return []string{"/", fmt.Sprintf("/system.slice/slurmstepd.scope/job_%d/step_0/task_0", job)}, nil
			}
			return []string{"/user.slice/job_1"}, nil
		},
		Record: func(n repo.Observed) error {
			s.lines = append(s.lines, n)
			return nil
		},
		Now:   func() time.Time { return s.now },
		Clock: func() time.Duration { return s.now.Sub(observedAt) + time.Hour },
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *observedSite) AllOn(context.Context, string) ([]slurm.Job, error) {
	return slices.Clone(s.jobs), s.unlisted
}

func (s *observedSite) Script(context.Context, uint32) (string, error) {
	s.scripts++
	return observedScript, s.scriptErr
}

func (s *observedSite) Processes(context.Context, string) (map[int]uint32, error) {
	s.asked++
	s.now = s.now.Add(s.asking)
	if s.tracked == nil {
		return nil, errors.New("not root")
	}
	return s.tracked, nil
}

// begin adds a running job with one GPU.
func (s *observedSite) begin(id uint32) {
	s.jobs = append(s.jobs, slurm.Job{
		ID: id, UID: 1001, User: "ada", Account: "phys", Name: "a\x1b[2J", Partition: "gpu", State: "RUNNING",
		Batch: true, Nodes: []string{"n1"}, NumNodes: 1, Tasks: 1, PerNode: slurm.GRESList{{Name: "gpu", Count: 1}},
		TimeLimit: time.Hour, Submit: s.now.Add(-time.Minute), Eligible: s.now.Add(-30 * time.Second), Start: s.now,
	})
}

func (s *observedSite) end(id uint32, state string) {
	for k := range s.jobs {
		if s.jobs[k].ID == id {
			s.jobs[k].State, s.jobs[k].End = state, s.now
		}
	}
}

// line polls once and returns the only new line.
func (s *observedSite) line(t *testing.T) repo.Observed {
	t.Helper()
	before := len(s.lines)
	s.Poll(t.Context())
	if len(s.lines) != before+1 {
		t.Fatalf("%d new lines, want 1", len(s.lines)-before)
	}
	return s.lines[before]
}

// cuda starts a process on a device of an emulated node and returns its id after it has allocated its memory.
func cuda(t *testing.T, node *gputest.Node, device, memory string) int {
	t.Helper()
	cmd := exec.Command(filepath.Join(node.Build(), "cuda-process"), "--seconds", "3600", "--print", "--memory", memory,
		"--util", "0.5")
	cmd.Env = append(cmd.Environ(), "CUDA_VISIBLE_DEVICES="+device)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("cuda-process: %v", err)
	}
	return cmd.Process.Pid
}

// uses returns the memory of a job's run so far, by device.
func (s *observedSite) uses(job uint32) map[string]float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]float64{}
	if r := s.open[job]; r != nil {
		for _, u := range r.Slices {
			all[fmt.Sprint(u.GPU, " ", u.Profile)] = u.PeakMiB
		}
	}
	return all
}

// sampleUntil takes samples until the peak of a job on a device is the given one.
func (s *observedSite) sampleUntil(t *testing.T, job uint32, device string, peak float64) {
	t.Helper()
	for range 3000 { // an emulated process allocates its memory shortly after opening its device
		if s.Sample(t.Context()); s.uses(job)[device] == peak {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("job %d used %v, want %v MiB on %s", job, s.uses(job), peak, device)
}

// TestObserveWholeGPUs observes three jobs on emulated GPUs whose MIG mode is off: one with two processes on two GPUs,
// two that share a GPU.
func TestObserveWholeGPUs(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 2, "--mig", "off")
	s := newObservedSite(t, node)
	s.now = s.now.Add(time.Second)
	s.begin(7)
	s.begin(8)
	for device, memory := range map[string]string{"0": "3000", "1": "500"} {
		s.jobOf[cuda(t, node, device, memory)] = 7
	}
	s.jobOf[cuda(t, node, "0", "2000")] = 7
	s.sampleUntil(t, 7, "0 7g.40gb", 5000)
	s.sampleUntil(t, 7, "1 7g.40gb", 500)
	s.now = s.now.Add(10 * time.Second)
	s.Poll(t.Context())
	s.jobOf[cuda(t, node, "1", "9000")] = 8
	s.sampleUntil(t, 8, "1 7g.40gb", 9000)
	s.end(7, "COMPLETED")
	n := s.line(t)
	if n.Job != 7 || n.PeakMiB != 5000 || n.Slices != 2 || n.Profile != "7g.40gb" || n.GPUType != "a100" ||
		n.State != "COMPLETED" || n.Seconds != 10 || n.Start-n.Submit != 30 || n.Limit != 3600 || n.Processes != 2 ||
		n.Samples == 0 || n.GPUUtil < 0.5 || n.Util != -1 || n.User != "ada" || n.Partition != "gpu" {
		t.Errorf("%+v", n)
	}
	if len(n.Devices) != 2 || n.Devices[1].PeakMiB != 500 || !strings.HasPrefix(n.Devices[1].UUID, "GPU-") {
		t.Errorf("devices %+v", n.Devices)
	}
	in := predict.KeyInput{UID: 1001, Account: "phys", JobName: "a\x1b[2J", Script: observedScript, GPUs: 1, Nodes: 1,
		CPUsPerTask: 4}
	if n.Key != predict.Key(in) || n.Fingerprint != predict.Fingerprint(in) {
		t.Errorf("key %s, fingerprint %s", n.Key, n.Fingerprint)
	}
	s.Poll(t.Context()) // slurmctld still lists job 7
	s.end(8, "FAILED")
	if n := s.line(t); n.Job != 8 || n.PeakMiB != 9000 || n.GPUUtil != -1 { // it was never the only user
		t.Errorf("%+v", n)
	}
}

// TestObserveStaticMIG observes a job on a static MIG device that is created later.
func TestObserveStaticMIG(t *testing.T) {
	node := gputest.New(t, "H100-80GB", 1)
	s := newObservedSite(t, node)
	in, err := node.Create(0, "2g.20gb", 0)
	if err != nil {
		t.Fatal(err)
	}
	s.now = s.now.Add(lookInterval)
	s.begin(7)
	s.jobOf[cuda(t, node, in.UUID, "3000")] = 7
	s.sampleUntil(t, 7, "0 2g.20gb", 3000)
	s.now = s.now.Add(10 * time.Second)
	s.Sample(t.Context())
	s.end(7, "TIMEOUT")
	if n := s.line(t); n.Profile != "2g.20gb" || n.PeakMiB != 3000 || n.Util != 0.5 || n.Devices[0].UUID != in.UUID {
		t.Errorf("%+v", n)
	}
}

// fakeGPU is a GPU with the given processes.
type fakeGPU struct{ use gpu.Use }

func (f *fakeGPU) GPUs() ([]gpu.GPU, error) {
	return []gpu.GPU{{Name: "NVIDIA A100-SXM4-40GB", UUID: "GPU-1"}}, nil
}
func (f *fakeGPU) Instances(int) ([]gpu.Instance, error)      { return nil, errors.New("no MIG") }
func (f *fakeGPU) Meter(int, gpu.Instance) (gpu.Meter, error) { return f, nil }
func (f *fakeGPU) Busy(int) float64                           { return -1 }
func (f *fakeGPU) Read() (gpu.Use, error)                     { return f.use, nil }
func (f *fakeGPU) Close()                                     {}

func (f *fakeGPU) processes(pids ...int) {
	f.use = gpu.Use{Util: -1, PIDs: pids, ProcessMiB: slices.Repeat([]float64{100}, len(pids))}
}

// TestObserveWithoutCgroups checks that an Observer asks slurmstepd about processes without a cgroup of a job, but
// neither in each sample nor again about a process that it knows or has asked about often enough.
func TestObserveWithoutCgroups(t *testing.T) {
	hw := &fakeGPU{}
	s := newObservedSite(t, hw)
	s.now = s.now.Add(time.Hour)
	s.begin(7)
	hw.processes(41, 42)
	s.Sample(t.Context()) // slurmstepd does not answer
	s.Sample(t.Context())
	if s.asked != 1 || len(s.uses(7)) != 0 {
		t.Errorf("asked %d times, used %v", s.asked, s.uses(7))
	}
	s.now, s.tracked = s.now.Add(askInterval), map[int]uint32{41: 7}
	for range 2 * maxAsks {
		s.Sample(t.Context())
		s.now = s.now.Add(askInterval)
	}
	if s.asked != maxAsks || s.uses(7)["0 full"] != 100 {
		t.Errorf("asked %d times, used %v", s.asked, s.uses(7))
	}
}

// TestObserveSlowSlurmstepd checks that a sample asks slurmstepd at most once, and a limited number of times about the
// same processes, if the call fails after more than askInterval.
func TestObserveSlowSlurmstepd(t *testing.T) {
	hw := &fakeGPU{}
	s := newObservedSite(t, hw)
	s.now, s.asking = s.now.Add(time.Hour), 2*askInterval
	hw.processes(41, 42, 43)
	if s.Sample(t.Context()); s.asked != 1 {
		t.Errorf("asked %d times in a sample", s.asked)
	}
	if s.Sample(t.Context()); s.asked != 1 {
		t.Errorf("asked again at once")
	}
	for range 2 * maxAsks {
		s.now = s.now.Add(askInterval)
		s.Sample(t.Context())
	}
	if s.asked != maxAsks {
		t.Errorf("asked %d times, want %d", s.asked, maxAsks)
	}
}

// TestObserveReusedPID checks that a process does not count for the job of an earlier one with its pid.
func TestObserveReusedPID(t *testing.T) {
	for name, cgroups := range map[string]bool{"cgroups": true, "slurmstepd": false} {
		t.Run(name, func(t *testing.T) {
			hw := &fakeGPU{}
			s := newObservedSite(t, hw)
			s.now = s.now.Add(time.Hour)
			hw.processes(5)
			for k, job := range []uint32{7, 8} {
				s.started = map[int]uint64{5: uint64(k)}
				if cgroups {
					s.jobOf[5] = job
				} else {
					s.tracked = map[int]uint32{5: job}
				}
				s.Sample(t.Context())
				s.now = s.now.Add(askInterval)
			}
			if s.uses(8)["0 full"] != 100 {
				t.Errorf("job 7 used %v, job 8 used %v", s.uses(7), s.uses(8))
			}
		})
	}
}

// TestObserveAbsurdJob checks that a job with absurd limits does not make the file unusable.
func TestObserveAbsurdJob(t *testing.T) {
	s := newObservedSite(t, &fakeGPU{})
	s.now = s.now.Add(time.Minute)
	s.begin(7)
	s.jobs[0].TimeLimit, s.jobs[0].NumNodes, s.jobs[0].PerNode[0].Count = -time.Hour, 1<<31, 1<<31
	s.Poll(t.Context())
	s.end(7, "CANCELLED")
	text, err := json.Marshal(s.line(t))
	if err != nil {
		t.Fatal(err)
	}
	var read repo.Observed
	err = repo.EachRun(bytes.NewReader(text), func(n repo.Observed) error {
		read = n
		return nil
	})
	if err != nil || read.Job != 7 || read.Limit != 0 || read.Nodes != repo.MaxCount || read.GPUs != repo.MaxCount {
		t.Errorf("%+v, %v", read, err)
	}
}

// TestObserveBounds checks that a user's processes and jobs cause a limited number of calls.
func TestObserveBounds(t *testing.T) {
	hw := &fakeGPU{}
	s := newObservedSite(t, hw)
	s.now = s.now.Add(time.Hour)
	pids := make([]int, maxObservedProcesses+1)
	for k := range pids {
		pids[k] = k + 1
		s.jobOf[k+1] = 7
	}
	hw.processes(pids...)
	if s.Sample(t.Context()); s.cgroups != 0 || len(s.uses(7)) != 0 {
		t.Errorf("the cgroups of %d processes were read", s.cgroups)
	}
	hw.processes(pids[:maxObservedProcesses]...)
	if s.Sample(t.Context()); s.uses(7)["0 full"] != 100*maxObservedProcesses {
		t.Errorf("used %v", s.uses(7))
	}
	for id := range uint32(2 * maxScripts) {
		s.begin(100 + id)
	}
	if s.Poll(t.Context()); s.scripts != maxScripts {
		t.Errorf("%d scripts were read in one poll", s.scripts)
	}
	for range 2 {
		s.Poll(t.Context())
	}
	if s.scripts != 2*maxScripts {
		t.Errorf("%d scripts were read", s.scripts)
	}
	for range maxMissed { // job 7 is unknown to slurmctld
		s.Poll(t.Context())
	}
	if s.open[7] != nil || len(s.lines) != 0 {
		t.Errorf("job 7 is still open, %d lines", len(s.lines))
	}
}

// TestObserveEnds tests runs whose end slurmctld does not report, jobs that started or ended before the Observer, and
// jobs without a GPU.
func TestObserveEnds(t *testing.T) {
	hw := &fakeGPU{}
	s := newObservedSite(t, hw)
	s.begin(1)
	s.end(1, "COMPLETED")
	s.jobs[0].End = observedAt.Add(-time.Second)
	s.begin(2)
	s.jobs[1].Start = observedAt.Add(-time.Hour)
	s.begin(3)
	s.jobs[2].PerNode = nil
	s.jobOf[5] = 2
	hw.processes(5)
	s.Poll(t.Context())
	s.Sample(t.Context())
	s.now = s.now.Add(time.Minute)
	s.end(2, "COMPLETED")
	s.end(3, "COMPLETED")
	if n := s.line(t); n.Job != 2 || n.Samples != 0 || n.PeakMiB != 0 || n.Seconds != 3660 || len(n.Devices) != 0 {
		t.Errorf("%+v", n)
	}

	s.begin(4) // requeued and started again
	hw.processes(5)
	s.jobOf[5] = 4
	s.Sample(t.Context())
	s.Poll(t.Context())
	s.now = s.now.Add(time.Minute)
	s.unlisted = errors.New("slurmctld does not answer")
	s.Poll(t.Context())
	s.unlisted = nil
	s.jobs[3].Restarts, s.jobs[3].Start = 1, s.now
	if n := s.line(t); n.Job != 4 || n.Restart != 0 || n.State != "" || n.Seconds != 0 || n.PeakMiB != 100 {
		t.Errorf("%+v", n)
	}
	s.Sample(t.Context())
	s.now = s.now.Add(time.Minute)
	s.Poll(t.Context())
	s.jobs = s.jobs[:3]
	for range maxMissed - 1 {
		s.Poll(t.Context())
	}
	if n := s.line(t); n.Job != 4 || n.Restart != 1 || n.State != "" || n.Seconds != 60 || n.PeakMiB != 100 {
		t.Errorf("%+v", n)
	}
}

// TestObservePause checks that samples without a process of the job count between its processes, but not after them.
func TestObservePause(t *testing.T) {
	hw := &fakeGPU{}
	s := newObservedSite(t, hw)
	s.now = s.now.Add(time.Second)
	s.begin(7)
	s.jobOf[5] = 7
	for _, pids := range [][]int{{5}, {5}, nil, nil, nil, {5}, nil, nil, nil, nil} {
		hw.processes(pids...)
		s.Sample(t.Context())
	}
	s.Poll(t.Context())
	s.now = s.now.Add(time.Minute)
	s.end(7, "COMPLETED")
	if n := s.line(t); n.Samples != 6 || n.PeakMiB != 100 {
		t.Errorf("%+v", n)
	}
}

// TestObserveKeys tests the options that a record does not show.
func TestObserveKeys(t *testing.T) {
	for script, want := range map[string][2]int{
		"#!/bin/sh\nsrun -n 1 x":                                                 {0, 0},
		"#!/bin/sh\n#SBATCH -n 1\n#SBATCH -c 8":                                  {1, 8},
		"#!/bin/sh\n#SBATCH -N1 --ntasks=1 --cpus-per-task=2\nx":                 {1, 2},
		"#!/bin/sh\n#SBATCH -N1 --nodelist=a-n1":                                 {0, 0},
		"#!/bin/sh\n##SBATCH -n 1":                                               {0, 0},
		"#!/bin/sh\n" + strings.Repeat("#\n", maxScript/2) + "#SBATCH -n 1 -c 8": {0, 0}, // beyond the bound
	} {
		in := keyInput(slurm.Job{Tasks: 1, NumNodes: 1}, script)
		if in.Tasks != want[0] || in.CPUsPerTask != want[1] {
			t.Errorf("%.80q: tasks %d, CPUs %d, want %v", script, in.Tasks, in.CPUsPerTask, want)
		}
	}
	if in := keyInput(slurm.Job{Tasks: 4, NumNodes: 2}, "x"); in.Tasks != 4 || in.Nodes != 2 {
		t.Errorf("%+v", in)
	}
}

// TestObserveNoGPU tests the error on a node without GPUs.
func TestObserveNoGPU(t *testing.T) {
	if err := errNoDevice([]gpu.GPU{{Problem: gpu.Lost}}); !strings.Contains(err.Error(), gpu.Lost) {
		t.Error(err)
	}
	if err := errNoDevice(nil); !strings.Contains(err.Error(), "on a GPU node") {
		t.Error(err)
	}
}

// TestObserveFirstSecond tests a job that starts in the same second as the Observer.
func TestObserveFirstSecond(t *testing.T) {
	hw := &fakeGPU{}
	s := newObservedSite(t, hw)
	s.now = observedAt.Add(700 * time.Millisecond)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.begin(1)
	s.jobs[0].Start = observedAt
	s.jobOf[5] = 1
	hw.processes(5)
	s.Poll(t.Context())
	s.Sample(t.Context())
	s.now = s.now.Add(time.Minute)
	s.end(1, "COMPLETED")
	if n := s.line(t); n.Samples == 0 || n.PeakMiB != 100 {
		t.Errorf("%+v", n)
	}
}
