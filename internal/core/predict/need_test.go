package predict

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"caelum/internal/core/mig"
)

// TestNeed runs the files in testdata/need. Each test case is a history with one run per line. The output is the
// resulting need, and the matching profile for each of several GPU models.
func TestNeed(t *testing.T) {
	datadriven.Walk(t, "testdata/need", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			site := DefaultSite
			names, fallback, own := []string{"A100-40GB"}, "7g.40gb", 0.0
			for _, arg := range d.CmdArgs {
				switch arg.Key {
				case "boards":
					names = arg.Vals
				case "default":
					fallback = arg.Vals[0]
				case "margin":
					site.Margin = decimal(t, arg.Vals[0])
				case "quantile":
					site.PeakQuantile = decimal(t, arg.Vals[0])
				case "slowdown":
					site.MaxSlowdown = decimal(t, arg.Vals[0])
				case "limit":
					own = decimal(t, arg.Vals[0])
				default:
					d.Fatalf(t, "unknown argument: %s", arg.Key)
				}
			}
			n, ok := Predict(History{Level: ByKey, Runs: past(t, d.Input)}, site)
			if own > 0 {
				n.Limit = own
			}
			var b strings.Builder
			fmt.Fprintf(&b, "%s\n", n.Why)
			for _, name := range names {
				model, all := plain(t, name)
				given, fits := n.On(model, all)
				switch {
				case !ok:
					given = "unknown: " + n.AtLeast(model, all, fallback)
				case !fits:
					given = "no profile"
				}
				fmt.Fprintf(&b, "%s: %.0f MiB, %s\n", name, n.PeakMiB, given)
			}
			if n.BusyKnown {
				fmt.Fprintf(&b, "busy %.2f\n", n.Busy)
			}
			if d.Cmd == "time" {
				fmt.Fprintf(&b, "on %d slices %.0f s, %.0f to %.0f", n.Compute, n.Seconds, n.Low, n.High)
				one, _, _ := n.Takes(1)
				fmt.Fprintf(&b, "; on 1 %.0f s\n", one)
			}
			return b.String()
		})
	})
}

// past parses one run per line: the profile, the state, the peak and other values.
func past(t *testing.T, lines string) (runs []Run) {
	for k, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		r := Run{
			Job:     uint32(k + 1),
			Node:    "n1",
			GPUType: "a100",
			Profile: w[0],
			Slices:  1,
			State:   w[1],
			PeakMiB: decimal(t, w[2]),
			Seconds: 3600,
			Samples: 3600,
			Util:    -1,
		}
		for _, more := range w[3:] {
			name, value, _ := strings.Cut(more, "=")
			if name == "board" {
				r.GPUType = value
				continue
			}
			v := decimal(t, value)
			switch name {
			case "median":
				r.MedianMiB = v
			case "ran":
				r.Seconds = v
			case "util":
				r.Util = v
			case "job":
				r.Job = uint32(v)
			case "samples":
				r.Samples = int(v)
			case "foreseen":
				r.End, r.ForeseenMiB = EndForeseen, v
			case "exit":
				r.Exit = int(v)
			default:
				t.Fatalf("unknown word: %s", more)
			}
		}
		runs = append(runs, r)
	}
	return runs
}

func decimal(t *testing.T, word string) float64 {
	v, err := strconv.ParseFloat(word, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func plain(t testing.TB, name string) (*mig.Model, mig.Layout) {
	b, err := mig.ModelByName(name)
	if err != nil {
		t.Fatal(err)
	}
	b = b.Select(mig.Plain)
	var all mig.Layout
	for k := range b.Profiles {
		all |= b.OfProfile(k)
	}
	return b, all
}

var (
	states = []string{
		"COMPLETED", "FAILED", "CANCELLED", "CANCELLED by 1001", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "",
	}
	profiles = []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
)

func drawRun(t *rapid.T) Run {
	r := Run{
		Job:     rapid.Uint32Range(0, 40).Draw(t, "job"),
		State:   rapid.SampledFrom(states).Draw(t, "state"),
		Profile: rapid.SampledFrom(profiles).Draw(t, "profile"),
		GPUType: "a100",
		Samples: rapid.IntRange(0, 3).Draw(t, "samples"),
		PeakMiB: rapid.Float64Range(0, 40000).Draw(t, "peak"),
		Seconds: rapid.Float64Range(0, 1e6).Draw(t, "seconds"),
		Util:    rapid.SampledFrom([]float64{-1, 0, 0.3, 1}).Draw(t, "util"),
	}
	r.MedianMiB = r.PeakMiB * rapid.Float64Range(0, 1).Draw(t, "median")
	return r
}

// TestNeedBounds checks the bounds of a need for random histories. The needed memory is at least the peak of the last
// complete run, and at most the highest peak or the largest insufficient slice, plus the margin. Low is at most
// Seconds, and Seconds is at most High. A limit on the slowdown never leads to fewer compute slices.
func TestNeedBounds(t *testing.T) {
	model, all := plain(t, "A100-40GB")
	rapid.Check(t, func(t *rapid.T) {
		runs := rapid.SliceOfN(rapid.Custom(drawRun), 0, 40).Draw(t, "runs")
		site := Site{Margin: rapid.Float64Range(0, 0.5).Draw(t, "margin")}
		n, ok := Predict(History{Runs: runs}, site)
		least, most, complete := 0.0, 0.0, 0
		for _, a := range attempts(runs) {
			if most = max(most, a.PeakMiB); a.short || a.doubtful {
				most = max(most, a.promised()+1)
			}
			if a.complete {
				least, complete = a.PeakMiB, complete+1
			}
		}
		if n.PeakMiB < least || n.PeakMiB > most*(1+site.Margin) {
			t.Fatalf("%v MiB, want %v to %v", n.PeakMiB, least, most)
		}
		if ok != (complete > 0) || n.Runs > min(complete, 2*site.window()) {
			t.Fatalf("%v, from %d of %d complete runs", ok, n.Runs, complete)
		}
		if !(n.Low <= n.Seconds && n.Seconds <= n.High) {
			t.Fatalf("between %v and %v: %v", n.Low, n.High, n.Seconds)
		}
		if p, ok := n.On(model, all); ok {
			n.MaxSlowdown = rapid.Float64Range(1, 7).Draw(t, "slowdown")
			strict, fits := n.On(model, all)
			if !fits || compute(t, model, strict) < compute(t, model, p) {
				t.Fatalf("%s, but %s with a slowdown of at most %v", p, strict, n.MaxSlowdown)
			}
		}
	})
}

func compute(t *rapid.T, b *mig.Model, name string) int {
	k, ok := b.ProfileIndex(name)
	if !ok {
		t.Fatalf("no profile %s", name)
	}
	return b.Profiles[k].Compute
}

// TestPeakQuantile checks that a larger quantile never leads to a smaller need, and that the need covers approximately
// the given share of independent lognormal peaks.
func TestPeakQuantile(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, quantile := range []float64{0.8, 0.9, 0.99} {
		const histories = 4000
		covered := 0
		for range histories {
			var runs []Run
			for k := range 12 {
				peak := 6000 * math.Exp(0.3*rng.NormFloat64())
				r := Run{Job: uint32(k + 1), Profile: "7g.40gb", State: "COMPLETED", PeakMiB: peak, Samples: 1}
				runs = append(runs, r)
			}
			all := attempts(runs[:11])
			low, bound := coveredMiB(all, quantile-0.05), coveredMiB(all, quantile)
			if low >= bound {
				t.Fatalf("%v MiB for %v, but %v MiB for %v", low, quantile-0.05, bound, quantile)
			}
			if runs[11].PeakMiB <= bound {
				covered++
			}
		}
		share := float64(covered) / histories
		if math.Abs(share-quantile) > 0.03 {
			t.Errorf("the need for the quantile %v covers %v of the runs", quantile, share)
		}
	}
}

// TestIncompleteOnlyRaises checks that one more incomplete run never reduces the need.
func TestIncompleteOnlyRaises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runs := rapid.SliceOfN(rapid.Custom(drawRun), 1, 12).Draw(t, "runs")
		for k := range runs {
			runs[k].Job, runs[k].Samples = uint32(k+1), 1
			if runs[k].State == "TIMEOUT" {
				runs[k].State = "FAILED"
			}
		}
		before, _ := Predict(History{Runs: runs}, DefaultSite)
		more := drawRun(t)
		incomplete := []string{"FAILED", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", ""}
		more.Job, more.State = 100, rapid.SampledFrom(incomplete).Draw(t, "more")
		after, _ := Predict(History{Runs: append(runs, more)}, DefaultSite)
		if after.PeakMiB < before.PeakMiB {
			t.Fatalf("%v MiB, but %v after another run", before.PeakMiB, after.PeakMiB)
		}
	})
}

// TestKilledGetsMore checks, on every GPU model, that a job gets a larger slice after a run was killed because it ran
// out of memory.
func TestKilledGetsMore(t *testing.T) {
	for _, b := range mig.Models() {
		model, all := plain(t, b.Name)
		for _, p := range model.Profiles {
			runs := []Run{
				{Job: 1, Profile: p.Name, State: "COMPLETED", PeakMiB: 0.9 * p.Memory(), Samples: 1, Util: -1},
				{Job: 2, Profile: p.Name, State: "FAILED", PeakMiB: 0.9 * p.Memory(), Samples: 1, Util: -1},
			}
			n, _ := Predict(History{Runs: runs}, DefaultSite)
			given, ok := n.On(model, all)
			if !ok {
				t.Errorf("%s: no profile after %s", b.Name, p.Name)
				continue
			}
			k, _ := model.ProfileIndex(given)
			largest := p.Compute == model.Compute()
			if more := model.Profiles[k].Memory() > p.Memory(); more == largest {
				t.Errorf("%s: %s after %s", b.Name, given, p.Name)
			}
		}
	}
}

// TestScatter checks the margin. It must be large after one run, half of the change between runs after more of them,
// and never larger than the site's margin.
func TestScatter(t *testing.T) {
	site := Site{Margin: 0.1, Quantile: 0.5}
	for _, c := range []struct {
		peaks []float64
		want  float64
	}{
		{[]float64{1000}, 0.1},
		{[]float64{1000, 1000, 1000, 1000}, 0},
		{[]float64{1000, 1210, 1000, 1210}, 0.1},
		{[]float64{1000, 1102.5, 1000, 1102.5, 1000}, 0.05},
		{[]float64{1000, 4000, 1000, 4000, 1000, 4000}, 0.1},
		{[]float64{0, 0, 0, 0}, 0},
	} {
		if got := scatter(c.peaks, site); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", c.peaks, got, c.want)
		}
	}
}
