package predict

import (
	"math"
	"testing"

	"caelum/internal/core/mig"
)

// TestBusyOn checks that BusyOn computes the busy share from the fraction of the run time that takes implies.
func TestBusyOn(t *testing.T) {
	for _, compute := range []int{1, 2, 3, 4, 7} {
		for _, busy := range []float64{0, 0.3, 0.8, 1} {
			util := 1 - (1-busy)/takes(busy, compute)
			if got := BusyOn(util, compute); math.Abs(got-busy) > 1e-12 {
				t.Errorf("%d compute slices: %v, want %v", compute, got, busy)
			}
		}
	}
}

// TestLargest checks the largest instances of two GPU models with seven compute slices, one with four, and an unknown
// one.
func TestLargest(t *testing.T) {
	for gpuType, want := range map[string]int{"a100": 7, "a30": 4, "h100": 7, "unknown": 7} {
		if got := largest(gpuType); got != want {
			t.Errorf("%s: %d compute slices, want %d", gpuType, got, want)
		}
	}
}

// TestResources compares the resources with the compute and memory slices of all plain profiles without additional
// memory: those that are the smallest with their number of compute slices. A memory slice has as many units as the
// smallest profile.
func TestResources(t *testing.T) {
	for _, b := range mig.Models() {
		smallest := map[int]int{} // size in units, by compute slices
		for _, p := range b.Profiles {
			if size, ok := smallest[p.Compute]; mig.Plain(p) && (!ok || p.Size < size) {
				smallest[p.Compute] = p.Size
			}
		}
		for compute, size := range smallest {
			memory := size / smallest[1]
			if got := resources(compute); got != float64(compute+memory) {
				t.Errorf("%s: resources %v of %d compute slices with %d memory slices", b.Name, got, compute, memory)
			}
		}
	}
}
