package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/sim/trace"
)

// TestPatternsAreRead checks that ParsePattern parses the output of Names and returns a pattern with the same profiles.
func TestPatternsAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := mig.Models()
		b := all[rapid.IntRange(0, len(all)-1).Draw(t, "model")].Select(mig.Plain)
		var p Pattern
		for range rapid.IntRange(1, 5).Draw(t, "layouts") {
			l := b.Layouts()[rapid.IntRange(0, len(b.Layouts())-1).Draw(t, "layout")]
			if l == 0 {
				l = b.Maximal()[0]
			}
			p = append(p, slices.Repeat(Pattern{l}, rapid.IntRange(1, 3).Draw(t, "times"))...)
		}
		text := p.Names(b)
		read, err := ParsePattern(b, text)
		same := func(x, y mig.Layout) bool { return (Pattern{x}).Names(b) == (Pattern{y}).Names(b) }
		if err != nil || !slices.EqualFunc(read, p, same) {
			t.Fatalf("%s: %v, %v", text, read.Names(b), err)
		}
	})
}

func TestNoSuchPattern(t *testing.T) {
	b := gpus(t, "A100-40GB", 1)[0]
	for text, want := range map[string]string{
		"":                     `the GPU model A100-40GB does not support the layout ""`,
		"7g.40gb /":            `the GPU model A100-40GB does not support the layout ""`,
		"4g.20gb 4g.20gb":      `the GPU model A100-40GB does not support the layout "4g.20gb 4g.20gb"`,
		"7g.40gb / 0 x (none)": `"0 x (none)": the number before x must be from 1 to 1000`,
		"9g.90gb":              `the GPU model A100-40GB does not support the layout "9g.90gb"`,
	} {
		if _, err := ParsePattern(b, text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestBestStaticOfSample checks that the layouts found with a sample are about as good as those found without.
func TestBestStaticOfSample(t *testing.T) {
	c := Config{GPUs: gpus(t, "A100-40GB", 40)}
	jobs := slices.Collect(trace.Churn{Mix: trace.Mixes[1].Mix, Jobs: 12000, GPUs: 40, Load: 0.75, Seed: 3}.All())
	for k := range jobs {
		if k%50 == 0 {
			jobs[k].Slices, jobs[k].Nodes = 3, 1
		}
	}
	small, thin, sampled := sample(c, jobs)
	if n := 12000 + 2*240; !sampled || len(small.GPUs) != 20 || len(thin) != n/2 {
		t.Fatalf("sampled %v: %d GPUs, %d jobs", sampled, len(small.GPUs), len(thin))
	}
	shorter := func(a, b *Result) bool { return a.MeanTurnaround() < b.MeanTurnaround() }
	last := 0.0
	p, err := BestStatic(c, jobs, shorter, func(f float64) {
		if f < last || f > 1 {
			t.Fatalf("progress %v after %v", f, last)
		}
		last = f
	})
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := OneInstance(c.GPUs[0])
	all := &search{c: c, jobs: jobs, better: shorter, paired: 4, step: func() {}}
	all.tryAll(whole, contents(c.GPUs[0], whole), len(c.GPUs))
	all.sort(all.found)
	best := all.found[0].result.MeanTurnaround()
	all.evaluate(p)
	got := all.found[len(all.found)-1].result.MeanTurnaround()
	if got > 1.02*best {
		t.Errorf("%s: mean turnaround of %v s, the best pattern %s has %v s", p.Names(c.GPUs[0]), got,
			all.found[0].pattern.Names(c.GPUs[0]), best)
	}
}
