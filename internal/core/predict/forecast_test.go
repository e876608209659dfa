package predict

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSeries checks a Series against all samples: each interval has the highest of its samples, and the number of
// intervals is limited.
func TestSeries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Series
		all := map[float64]float64{}
		at := 0.0
		for range rapid.IntRange(1, 300).Draw(t, "samples") {
			at += rapid.Float64Range(0, 50).Draw(t, "pause")
			mib := rapid.Float64Range(1, 80000).Draw(t, "mib")
			s.Add(at, mib)
			all[at] = max(all[at], mib)
		}
		want := make([]float64, len(s.MiB))
		for at, mib := range all {
			k := int(at / s.Width)
			want[k] = max(want[k], mib)
		}
		if !slices.Equal(s.MiB, want) || len(s.MiB) > seriesBuckets || !s.Valid() {
			t.Fatalf("width %v: %v, want %v", s.Width, s.MiB, want)
		}
		if s.Width > 1 && at < s.Width/2*seriesBuckets {
			t.Fatalf("%v s in intervals of %v s", at, s.Width)
		}
		var copied, joined Series
		if text, err := json.Marshal(s); err != nil || json.Unmarshal(text, &copied) != nil {
			t.Fatal(err)
		}
		joined.Merge(copied)
		if h, j := s.highest(at), joined.highest(at); h[len(h)-1].mib != j[len(j)-1].mib {
			t.Fatalf("after a restart of the agent the peak is %v, want %v", j[len(j)-1], h[len(h)-1])
		}
	})
}

// TestSeriesIgnoresImpossibleSamples checks values that neither a driver nor a report should give.
func TestSeriesIgnoresImpossibleSamples(t *testing.T) {
	var s Series
	for _, v := range [][2]float64{
		{-1, 5}, {math.NaN(), 5}, {math.Inf(1), 5}, {1e300, 5}, {1, math.NaN()}, {1, math.Inf(1)}, {1, -5}, {1, 0},
	} {
		s.Add(v[0], v[1])
	}
	if len(s.MiB) != 0 {
		t.Errorf("%+v", s)
	}
	s.Add(maxRan, 5)
	if !s.Valid() || slices.Max(s.MiB) != 5 {
		t.Errorf("%+v", s)
	}
	for _, bad := range []Series{
		{Width: 1, MiB: make([]float64, seriesBuckets+1)}, {Width: 0, MiB: []float64{1}},
		{Width: math.NaN(), MiB: []float64{1}},
		{Width: 1e300, MiB: []float64{1}}, {Width: 1, MiB: []float64{-1}}, {Width: 1, MiB: []float64{math.NaN()}},
	} {
		if bad.Valid() {
			t.Errorf("%+v is valid", bad)
		}
	}
}

// sampled returns a Series with one sample per second.
func sampled(seconds int, mib func(at float64) float64) (s Series) {
	for k := range seconds {
		s.Add(float64(k), mib(float64(k)))
	}
	return s
}

// known is the end of a run of 3000 s with a known number of iterations.
var known = End{Total: 3000}

// TestForecast checks the forecasts of noiseless curves after 600 s, for a slice of 10,000 MiB.
func TestForecast(t *testing.T) {
	ramp := func(at float64) float64 { return 2000 + 2*at }
	step := func(at float64) float64 {
		if at < 450 {
			return 3000
		}
		return 6000
	}
	for name, c := range map[string]struct {
		mib     func(at float64) float64
		end     End
		peak    float64
		exceeds bool
	}{
		"a ramp that fits": {ramp, known, 8000, false},
		"a ramp that does not fit": {func(at float64) float64 {
			return 2000 + 3.2*at
		}, known, 11600, true},
		"a ramp, with a learned end": {func(at float64) float64 {
			return 2000 + 9*at
		}, End{Learned: 3000}, 29000, true},
		"a ramp, shortly before": {func(at float64) float64 {
			return 1000 + 14.8*at
		}, End{Limit: 90000}, 18760, true},
		"a ramp, only the limit known": {func(at float64) float64 {
			return 2000 + 9*at
		}, End{Limit: 90000}, 12800, false},
		"a limit before the overflow": {func(at float64) float64 {
			return 2000 + 9*at
		}, End{Limit: 700}, 8300, false},
		"flat":   {func(float64) float64 { return 9900 }, known, 9900, false},
		"a step": {step, known, 6000, false},
		"two steps": {func(at float64) float64 {
			return step(at) + step(at-100) - 3000
		}, known, 0, false},
		"the growth has ended": {func(at float64) float64 {
			return min(2000+20*at, 8000)
		}, known, 8000, false},
		"the growth slows down": {func(at float64) float64 {
			return 9000 - 7000*math.Exp(-at/150)
		}, known, 9456, false},
		"a sawtooth": {func(at float64) float64 {
			return 5000 + 40*math.Mod(at, 100)
		}, known, 8960, false},
		"a leak that began late": {func(at float64) float64 {
			return 4000 + 8*max(at-300, 0)
		}, known, 19676, true},
		"a leak that has just begun": {func(at float64) float64 {
			return 4000 + 80*max(at-570, 0)
		}, known, 6320, false},
		"a short run, growing steadily": {ramp, End{Total: 600}, 3198, false},
	} {
		f := sampled(600, c.mib).Forecast(End{600, c.end.Total, c.end.Learned, c.end.Limit}, 10000)
		// The last sample is a second old, and the intervals are 8 s long.
		// If peak is 0, the peak does not matter.
		if c.peak > 0 && math.Abs(f.PeakMiB-c.peak) > 0.02*c.peak || f.Exceeds != c.exceeds {
			t.Errorf("%s: %+v, want %v MiB", name, f, c.peak)
		}
	}
}

// TestForecastTooEarly checks that a program that allocates its memory at its start causes no alarm.
func TestForecastTooEarly(t *testing.T) {
	ramp := func(at float64) float64 { return 100 + 100*at }
	for _, c := range []struct {
		seconds int
		end     End
	}{{59, End{Total: 100}}, {80, End{Total: 1000}}, {80, End{Learned: 1000}}} {
		c.end.Ran = float64(c.seconds)
		if f := sampled(c.seconds, ramp).Forecast(c.end, 8200); f.Exceeds {
			t.Errorf("after %d s: %+v", c.seconds, f)
		}
	}
	if f := (Series{}).Forecast(End{Ran: 100}, 1000); f.PeakMiB != 0 || f.Exceeds {
		t.Errorf("without samples: %+v", f)
	}
}

// TestForecastBounds checks that a forecast is a finite number that is at least the highest sample, for any memory and
// any knowledge of the end.
func TestForecastBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		ran := math.Exp(rapid.Float64Range(0, 14).Draw(t, "ran"))
		var s Series
		top := 0.0
		for range rapid.IntRange(1, 400).Draw(t, "samples") {
			mib := math.Exp(11 * rng.Float64())
			s.Add(ran*rng.Float64(), mib)
			top = max(top, mib)
		}
		times := rapid.SliceOfN(rapid.Float64Range(0, 1e9), 3, 3).Draw(t, "end")
		f := s.Forecast(End{ran, times[0], times[1], times[2]}, 5000)
		if !(f.PeakMiB >= top && f.LowMiB >= top && f.Horizon >= ran) || math.IsInf(f.PeakMiB+f.LowMiB, 0) {
			t.Fatalf("%+v, the highest sample is %v", f, top)
		}
	})
}
