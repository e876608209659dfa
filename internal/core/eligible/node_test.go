package eligible

import (
	"strings"
	"testing"

	"caelum/internal/slurm"
)

// TestTooSmall checks each hardware property that a job can request.
func TestTooSmall(t *testing.T) {
	node := slurm.Node{Name: "n1", States: []string{"IDLE"}, Partitions: []string{"gpu"}, CPUs: 64,
		Sockets: 2, CoresPerSocket: 16, ThreadsPerCore: 2, TmpDisk: 1000}
	for want, ask := range map[string]func(*slurm.Job){
		"": func(j *slurm.Job) {
			j.MinCPUs, j.Sockets, j.CoresPerSocket, j.ThreadsPerCore, j.TmpDisk = 64, 2, 16, 2, 1000
		},
		"has 64 CPUs":                    func(j *slurm.Job) { j.MinCPUs = 65 },
		"has 2 sockets":                  func(j *slurm.Job) { j.Sockets = 3 },
		"has 16 cores per socket":        func(j *slurm.Job) { j.CoresPerSocket = 17 },
		"has 2 threads per core":         func(j *slurm.Job) { j.ThreadsPerCore = 3 },
		"has 1000 MiB of temporary disk": func(j *slurm.Job) { j.TmpDisk = 1001 },
		"does not have the features a&b": func(j *slurm.Job) { j.Features = slurm.ParseConstraint("a&b") },
		"has no GPU of type h100": func(j *slurm.Job) {
			j.PerJob = slurm.GRESList{{Name: "gpu", Type: "h100", Count: 1}}
		},
		"cannot be chosen for the constraint": func(j *slurm.Job) { j.Features = slurm.ParseConstraint("a&") },
	} {
		w := slurm.Waiting{Job: &slurm.Job{Partition: "gpu", NumNodes: 1}}
		ask(w.Job)
		if got := RejectReason(node, w); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%+v: %q, want %q", w.Job, got, want)
		}
	}
	// The hardware of a node that has never been up is unknown.
	w := slurm.Waiting{Job: &slurm.Job{Partition: "gpu", MinCPUs: 9, Sockets: 9, CoresPerSocket: 9, ThreadsPerCore: 9}}
	if got := RejectReason((slurm.Node{States: []string{"IDLE"}, Partitions: []string{"gpu"}}), w); got != "" {
		t.Errorf("a node of unknown size: %s", got)
	}
}

// TestPoweredDown checks the states of power saving: slurmctld starts jobs on a node that is powered down and that no
// job has.
func TestPoweredDown(t *testing.T) {
	for states, want := range map[string]struct{ schedulable, off bool }{
		"IDLE":                             {true, false},
		"IDLE+POWERED_DOWN":                {true, true},
		"IDLE+CLOUD+POWERED_DOWN":          {true, true},
		"IDLE+POWERING_DOWN":               {false, false},
		"ALLOCATED+POWERED_DOWN":           {false, false},
		"DOWN+POWERED_DOWN":                {false, false},
		"IDLE+DRAIN+POWERED_DOWN":          {false, false},
		"MIXED+NOT_RESPONDING+POWERING_UP": {false, false},
	} {
		n := slurm.Node{States: strings.Split(states, "+")}
		if Schedulable(n) != want.schedulable || PoweredDown(n) != want.off {
			t.Errorf("%s: schedulable %v, powered down %v", states, Schedulable(n), PoweredDown(n))
		}
	}
}
