package eligible

import (
	"testing"
	"time"

	"caelum/internal/slurm"
)

// TestDeferReasonPerGPU checks jobs with CPUs and memory per GPU. slurmctld does not include them in the CPUs and the
// memory of a pending job.
func TestDeferReasonPerGPU(t *testing.T) {
	n := slurm.Node{CPUs: 64, CPUsFree: 8, Memory: 256000, MemoryFree: 100000}
	gpus := []slurm.GRES{{Name: "gpu", Count: 2}}
	for _, c := range []struct {
		job  slurm.Job
		want string
	}{
		{slurm.Job{PerNode: gpus, CPUs: 1, CPUsPerGPU: 8}, "has 8 CPUs free, but the job needs 16"},
		{slurm.Job{PerNode: gpus, CPUs: 16, CPUsPerGPU: 4}, "has 8 CPUs free, but the job needs 16"},
		{slurm.Job{PerNode: gpus, CPUs: 1, CPUsPerGPU: 4}, ""},
		{slurm.Job{PerNode: gpus, CPUs: 1, Memory: 256000, MemoryPerGPU: 60000},
			"has 100000 MiB of memory free, but the job needs 120000 MiB"},
		{slurm.Job{PerNode: gpus, CPUs: 1, Memory: 256000, MemoryPerGPU: 50000}, ""},
		{slurm.Job{PerJob: gpus, NumNodes: 2, CPUs: 2, CPUsPerGPU: 9}, "has 8 CPUs free, but the job needs 9"},
	} {
		if got := DeferReason(n, slurm.Waiting{Job: &c.job}, time.Time{}); got != c.want {
			t.Errorf("%+v: %q, want %q", c.job, got, c.want)
		}
	}
}
