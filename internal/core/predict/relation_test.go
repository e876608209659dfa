package predict

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
)

// used returns complete runs on a whole GPU, one for each pair of a number in the arguments and a peak.
func used(pairs ...[2]float64) (h History) {
	h.Level = ByKey
	for k, p := range pairs {
		h.Runs = append(h.Runs, Run{
			Job: uint32(k + 1), GPUType: "a100", Profile: "7g.40gb", Slices: 1, Seconds: 600, Samples: 600, Util: -1,
			State: "COMPLETED", Args: []float64{p[0]}, PeakMiB: p[1], MedianMiB: p[1], HighMiB: p[1],
		})
	}
	return h
}

// onA100 returns the steps of a relation on an A100-40GB whose default profile is 7g.40gb.
func onA100(t *testing.T, r Relation) Steps {
	t.Helper()
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	choose := func(n Need) string {
		if p, ok := n.On(b, b.Open(0, 0)); ok {
			return p
		}
		return "7g.40gb"
	}
	steps, ok := r.Steps(choose, func(string) string { return "7g.40gb" })
	if !ok {
		t.Fatal("too many steps")
	}
	return steps
}

// TestRelated checks the steps that follow from runs, and for which runs there is no relation.
func TestRelated(t *testing.T) {
	for name, c := range map[string]struct {
		runs History
		want string
	}{
		"none":     {used(), ""},
		"one":      {used([2]float64{2000, 1500}), "1 5341=1g.5gb 10410=1g.10gb 20680=3g.20gb *=7g.40gb"},
		"one zero": {used([2]float64{0, 1500}), "1 0=1g.5gb *=7g.40gb"},
		"linear": {used([2]float64{1000, 1000}, [2]float64{2000, 2000}, [2]float64{6000, 6000}),
			"1 4632=1g.5gb 8709=1g.10gb 12000=3g.20gb *=7g.40gb"},
		"falling": {used([2]float64{1, 16000}, [2]float64{2, 8000}, [2]float64{8, 2000}),
			"1 0.8689=7g.40gb 1.826=3g.20gb 5.367=1g.10gb *=1g.5gb"},
		"zero": {used([2]float64{0, 1000}, [2]float64{10, 4000}, [2]float64{20, 7000}),
			"1 12.1=1g.5gb 26.36=1g.10gb 40=3g.20gb *=7g.40gb"},
		"alike":           {used([2]float64{1, 1000}, [2]float64{2, 1040}, [2]float64{3, 1080}), ""},
		"another order":   {used([2]float64{1, 4000}, [2]float64{2, 1000}, [2]float64{3, 3000}), ""},
		"without numbers": {History{Level: ByKey, Runs: []Run{used([2]float64{1, 1}).Runs[0]}}, ""},
	} {
		if name == "without numbers" {
			c.runs.Runs[0].Args = nil
		}
		got := ""
		if r, ok := Related(c.runs, DefaultSite); ok {
			got = onA100(t, r).String()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestRelatedNeed checks the needs of seen numbers, between them and beyond them.
func TestRelatedNeed(t *testing.T) {
	h := used([2]float64{1000, 1000}, [2]float64{2000, 2000}, [2]float64{4000, 4000}, [2]float64{4000, 4000})
	r, ok := Related(h, DefaultSite)
	if !ok {
		t.Fatal("no relation")
	}
	for x, want := range map[float64]float64{500: 1050, 1000: 1050, 1500: 1575, 4000: 4000, 6000: 4000 * 1.625} {
		if n := r.Need(x); math.Abs(n.PeakMiB/want-1) > 1e-6 || n.Why == "" || n.Level != ByArgs {
			t.Errorf("%v: %v MiB, want %v (%s)", x, n.PeakMiB, want, n.Why)
		}
	}
	if n := r.Need(4000); n.Runs != 2 {
		t.Errorf("the number 4000 has %d runs", n.Runs)
	}
}

// TestRelatedHolds checks that the needs are monotone, that the need of a seen number is its own or that of a less
// demanding one, that the steps are valid, and that each of them is large enough for the numbers to which it applies.
func TestRelatedHolds(t *testing.T) {
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	tried, found := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		tried++
		sign := rapid.SampledFrom([]float64{1, -1}).Draw(t, "sign")
		power := rapid.Float64Range(0.3, 2).Draw(t, "power")
		var pairs [][2]float64
		for range rapid.IntRange(3, 12).Draw(t, "runs") {
			x := float64(rapid.IntRange(1, 40).Draw(t, "number"))
			noise := rapid.Float64Range(0.95, 1.05).Draw(t, "noise")
			pairs = append(pairs, [2]float64{x, 3000 * math.Pow(x/20, sign*power) * noise})
		}
		h := used(pairs...)
		for k := range h.Runs {
			if rapid.IntRange(0, 9).Draw(t, "failed") == 0 {
				h.Runs[k].State, h.Runs[k].Profile = "FAILED", "2g.10gb"
			}
		}
		r, ok := Related(h, DefaultSite)
		if !ok || r.Assumed {
			return
		}
		found++
		checkRelation(t, r, pointsAt(h.Runs, r.Position, DefaultSite), b)
	})
	if 2*found < tried {
		t.Errorf("only %d relations in %d histories", found, tried)
	}
}

func checkRelation(t *rapid.T, r Relation, own []seenValue, b *mig.Model) {
	last := 0.0
	for x := 0.5; x < 90; x += 0.5 {
		at := x
		if r.falling {
			at = 90 - x
		}
		n := r.Need(at)
		if n.PeakMiB < last || n.PeakMiB < n.HighestMiB {
			t.Fatalf("%v MiB for %v after %v MiB: %+v", n.PeakMiB, at, last, r)
		}
		last = n.PeakMiB
	}
	for k, p := range own {
		want := p.peak
		for i, o := range own {
			if o.runs > 0 && (i < k) != r.falling && i != k {
				want = max(want, o.peak)
			}
		}
		if got := r.Need(p.number).PeakMiB; p.runs > 0 && got < want {
			t.Fatalf("%v MiB for %v, want at least %v: %+v", got, p.number, want, r)
		}
	}
	choose := func(n Need) string {
		n.HighestMiB = min(n.HighestMiB, 40000)
		p, _ := n.On(b, b.Open(0, 0))
		return p
	}
	steps, ok := r.Steps(choose, func(string) string { return "7g.40gb" })
	if !ok || !slices.IsSortedFunc(steps.UpTo, func(a, b Step) int { return int(math.Copysign(1, a.UpTo-b.UpTo)) }) {
		t.Fatalf("%v", steps)
	}
	for x := 0.5; x < 90; x += 0.5 {
		p, _ := steps.Profile([]float64{x})
		k, _ := b.ProfileIndex(p)
		if n := r.Need(x); b.Profiles[k].Memory() < min(n.PeakMiB, 39000)*0.998 {
			t.Fatalf("%s for %v, which needs %v: %v", p, x, n.PeakMiB, steps)
		}
	}
}
