package slurm

import "testing"

// TestPerGPU checks the forms in which slurmctld stores --cpus-per-gpu and --mem-per-gpu.
func TestPerGPU(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "N/A": 0, "(null)": 0, "gpu:16": 16, "gres:gpu:16": 16, "gres/gpu:60000": 60000, "nvme:4,gpu:2": 2,
		"gpu:": 0, "gpu:x": 0, "gpu:-1": 0, "nvme:gpu:3": 0,
	} {
		if got := perGPU(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
