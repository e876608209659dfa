package trace

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"caelum/internal/core/mig"
)

// TestChurn checks that the offered load, the mix and the durations match the configuration.
func TestChurn(t *testing.T) {
	for _, m := range Mixes {
		c := Churn{Mix: m.Mix, Jobs: 100000, GPUs: 16, Load: 0.85, Seed: 1}
		jobs := slices.Collect(c.All())
		if again := slices.Collect(c.All()); len(jobs) != c.Jobs || !reflect.DeepEqual(jobs, again) {
			t.Fatalf("%s: %d jobs, or other jobs for the same seed", m.Name, len(jobs))
		}
		count, units, time, work := map[string]float64{}, 0.0, 0.0, 0.0
		for _, j := range jobs {
			count[j.Profile]++
			size := ChurnUnits[slices.Index(ChurnProfiles[:], j.Profile)]
			units += size
			work += size * j.Duration
			time += j.Duration
		}
		span := jobs[len(jobs)-1].Submit
		if load := work / (span * 16 * 8); math.Abs(load-0.85) > 0.02 {
			t.Errorf("%s: load %v", m.Name, load)
		}
		if mean := time / float64(len(jobs)); math.Abs(mean-3600) > 50 {
			t.Errorf("%s: jobs run for %v s on average", m.Name, mean)
		}
		sum := 0.0
		for _, w := range m.Mix {
			sum += w
		}
		for k, p := range ChurnProfiles {
			if want := m.Mix[k] / sum; math.Abs(count[p]/float64(len(jobs))-want) > 0.01 {
				t.Errorf("%s: %v of the jobs need %s, want %v", m.Name, count[p]/float64(len(jobs)), p, want)
			}
		}
	}
	other := Churn{Mix: Mixes[0].Mix, Jobs: 10, GPUs: 16, Load: 0.85, Seed: 2}
	first := Churn{Mix: Mixes[0].Mix, Jobs: 10, GPUs: 16, Load: 0.85, Seed: 1}
	if reflect.DeepEqual(slices.Collect(other.All()), slices.Collect(first.All())) {
		t.Error("two seeds give the same jobs")
	}
}

// TestChurnMultiGPU checks the load and the numbers of GPUs of a workload with jobs that need several GPUs.
func TestChurnMultiGPU(t *testing.T) {
	c := Churn{Mix: Mixes[0].Mix, Jobs: 100000, GPUs: 64, Load: 0.85, MultiGPU: 0.15, Seed: 1}
	count, work, last := map[int]float64{}, 0.0, 0.0
	for j := range c.All() {
		size := 8.0
		if (j.Slices > 0) != (j.Profile == mig.Full) {
			t.Fatalf("%+v", j)
		}
		if j.Slices == 0 {
			size = ChurnUnits[slices.Index(ChurnProfiles[:], j.Profile)]
		}
		count[j.Slices]++
		work += size * float64(max(j.Slices, 1)) * j.Duration
		last = j.Submit
	}
	if load := work / (last * 64 * 8); math.Abs(load-0.85) > 0.02 {
		t.Errorf("load %v", load)
	}
	for n, want := range map[int]float64{0: .85, 2: .05, 4: .05, 8: .05} {
		if got := count[n] / float64(c.Jobs); math.Abs(got-want) > 0.005 {
			t.Errorf("%v of the jobs need %d GPUs, want %v", got, n, want)
		}
	}
}
