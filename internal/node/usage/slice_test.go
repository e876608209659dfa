package usage

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
)

// TestUsageQuantiles checks that the peak is exact. A reported quantile must be at least as high as the exact one,
// and at most one bin higher.
func TestUsageQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		u := &sliceUsage{MemoryMiB: 100 + rng.Float64()*80000}
		most := u.MemoryMiB * (0.01 + rng.Float64()*1.05) // the driver may report slightly more than the slice's memory
		var all []float64
		for range 1 + rng.IntN(500) {
			mib := most * math.Pow(rng.Float64(), 1+3*rng.Float64())
			all = append(all, mib)
			u.add(gpu.Use{MemoryMiB: mib, Util: -1})
		}
		slices.Sort(all)
		if u.PeakMiB != all[len(all)-1] || u.Samples != len(all) {
			t.Fatalf("%d samples with the peak %v, want %d with %v", u.Samples, u.PeakMiB, len(all), all[len(all)-1])
		}
		for _, q := range []float64{0.01, 0.5, 0.95, 1} {
			want := all[max(int(math.Ceil(q*float64(len(all)))), 1)-1]
			bin := u.MemoryMiB / usageBins
			if want > u.MemoryMiB-bin { // quantile returns the peak for the last bin
				bin = u.PeakMiB - (u.MemoryMiB - bin)
			}
			if got := u.quantile(q); got < want || got > want+bin {
				t.Fatalf("quantile %v of %d samples is %v, want %v with bins of %v", q, len(all), got, want, bin)
			}
		}
	}
	if q := new(sliceUsage).quantile(0.5); q != 0 {
		t.Errorf("the median of no samples is %v", q)
	}
}

// TestUsageUtil checks that the mean ignores samples without a utilisation.
func TestUsageUtil(t *testing.T) {
	u := &sliceUsage{MemoryMiB: 1000}
	for _, util := range []float64{-1, 0.2, -1, 0.6} {
		u.add(gpu.Use{MemoryMiB: 10, Util: util})
	}
	if got := u.util(); math.Abs(got-0.4) > 1e-9 {
		t.Errorf("the mean of 0.2 and 0.6 is %v", got)
	}
	if got := new(sliceUsage).util(); got != -1 {
		t.Errorf("without samples: %v", got)
	}
}

// TestStoredGPUType checks that an observation keeps its GPU type, whose key in the repository is Board.
func TestStoredGPUType(t *testing.T) {
	o, err := parseObservation([]byte(`{"Run":{"Board":"a100"},"Slices":[{"MemoryMiB":1}]}`))
	if err != nil || o.Run.GPUType != "a100" {
		t.Errorf("%+v, %v", o, err)
	}
}

// FuzzParseObservation checks that parseObservation returns either an error or an observation that can be continued.
func FuzzParseObservation(f *testing.F) {
	u := &sliceUsage{MemoryMiB: 1000, UUID: "MIG-1", Profile: "1g.5gb"}
	u.add(gpu.Use{MemoryMiB: 10, Util: 0.5})
	text, err := json.Marshal(&observation{Slices: []*sliceUsage{u}})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := parseObservation(text); err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(text), "", "{}", "null", `{"Slices":[null]}`, `{"Slices":[{"MemoryMiB":1,"Samples":-1}]}`,
		`{"Slices":[{"MemoryMiB":1,"Samples":3,"Bins":[3],"BusySamples":3,"Busy":1e300}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := parseObservation(text)
		if err != nil {
			return
		}
		r := o.run(o.Seen)
		if !(r.Seconds >= 0 && r.MedianMiB <= r.HighMiB && r.HighMiB <= r.PeakMiB && r.Util <= 1 && r.Slices > 0) {
			t.Errorf("%+v", r)
		}
		o.Slices[0].add(gpu.Use{MemoryMiB: 5, Util: 0.1})
	})
}

// TestResize checks that a slice keeps its samples when its size changes, and that an observation from before the
// change continues.
func TestResize(t *testing.T) {
	m := NewMonitor(Options{Now: time.Now, Clock: Monotonic})
	lease := api.Lease{Job: 7, Slices: []api.Slice{{UUID: "GPU-1/0"}}}
	begin := func(profile string, mib float64) *observation {
		m.Begin(lease, "l40s", []Slice{{Instance: gpu.Instance{UUID: "GPU-1/0", Profile: profile}, MemoryMiB: mib}})
		return m.open[7]
	}
	earlier := begin("1f.11gb", 11389)
	for mib := range 101 {
		earlier.Slices[0].add(gpu.Use{MemoryMiB: float64(100 * mib), Util: -1})
	}
	check := func(what string, u *sliceUsage, samples int) {
		t.Helper()
		q := u.quantile(0.5)
		if u.Profile != "2f.22gb" || u.MemoryMiB != 22778 || u.Samples != samples || !u.valid() ||
			q < 5000 || q > 5000+22778.0/usageBins || u.PeakMiB != 10000 {
			t.Errorf("%s: %s with %.0f MiB, %d samples, half of them up to %.0f MiB", what, u.Profile, u.MemoryMiB,
				u.Samples, q)
		}
	}
	later := begin("2f.22gb", 22778)
	later.continues(earlier)
	check("continued", later.Slices[0], 101)
	m.open[7] = begin("1f.11gb", 11389)
	for mib := range 101 {
		m.open[7].Slices[0].add(gpu.Use{MemoryMiB: float64(100 * mib), Util: -1})
	}
	m.Resize(7, "GPU-1/0", "2f.22gb", 22778)
	check("resized", m.open[7].Slices[0], 101)
	if run, _ := m.Run(7); run.Profile != "2f.22gb" {
		t.Errorf("%+v", run)
	}
}
