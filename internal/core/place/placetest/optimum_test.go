package placetest

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/place"
)

// plainOptimum tries, at each time step, every set of spots for the jobs that have arrived. All times must be small
// whole numbers.
func plainOptimum(gpus []PlainGPU, jobs []Job, fifo bool, now float64, sum, best float64) float64 {
	left := slices.ContainsFunc(jobs, func(j Job) bool { return j.Profile != "" })
	if !left || sum >= best {
		return min(sum, best)
	}
	for n, j := range jobs { // starts one job now and continues with the other jobs
		if j.Profile == "" {
			continue
		}
		if j.Arrival <= now {
			for k, o := range gpus {
				var still []Interval
				for _, y := range o.Busy {
					if o.Until[y] > now {
						still = append(still, y)
					}
				}
				for _, x := range Every(o.Model) {
					if o.Model.Profiles[x.Profile].Name != j.Profile || !o.Fits(still, x) {
						continue
					}
					then, rest := slices.Clone(gpus), slices.Clone(jobs)
					then[k].Busy, then[k].Until = With(still, x), map[Interval]float64{x: now + j.Duration}
					for _, y := range still {
						then[k].Until[y] = o.Until[y]
					}
					rest[n].Profile = ""
					best = plainOptimum(then, rest, fifo, now, sum+now-j.Arrival, best)
				}
			}
		}
		if fifo {
			break
		}
	}
	if now > 40 {
		return best
	}
	return plainOptimum(gpus, jobs, fifo, now+1, sum, best) // starts no more jobs now
}

// drawCase returns a few random GPUs and jobs. The GPUs are empty and of the same model. Every job fits on them.
func drawCase(t *rapid.T, mostJobs int) ([]place.GPU, []Job) {
	b := EveryModel()[rapid.IntRange(0, len(EveryModel())-1).Draw(t, "board")]
	gpus := make([]place.GPU, rapid.IntRange(1, 2).Draw(t, "gpus"))
	for k := range gpus {
		gpus[k].Model = b
	}
	jobs := make([]Job, rapid.IntRange(1, mostJobs).Draw(t, "jobs"))
	at := 0.0
	for n := range jobs {
		at += float64(rapid.IntRange(0, 3).Draw(t, "later"))
		jobs[n] = Job{b.Profiles[rapid.IntRange(0, len(b.Profiles)-1).Draw(t, "profile")].Name, at,
			float64(rapid.IntRange(1, 6).Draw(t, "duration"))}
	}
	return gpus, jobs
}

func TestOptimumAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus, jobs := drawCase(t, 3)
		if rapid.Bool().Draw(t, "one is busy") {
			gpus[0].Busy = rapid.SampledFrom(gpus[0].Model.Layouts()).Draw(t, "layout")
		}
		var plain []PlainGPU
		for _, g := range gpus {
			plain = append(plain, PlainGPUOf(g))
		}
		for _, fifo := range []bool{true, false} {
			got := Optimum(gpus, jobs, Rules{FIFO: fifo})
			if want := plainOptimum(plain, jobs, fifo, 0, 0, math.Inf(1)); got != want {
				t.Fatalf("FIFO %v: %v waits %v, want %v\n%s", fifo, jobs, got, want, Drawing(gpus))
			}
		}
	})
}

// TestOptimaInOrder checks that the optimum in FIFO order is never shorter than the one in any order, and that the
// one with migration is never longer than the one without.
func TestOptimaInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus, jobs := drawCase(t, 5)
		fifo, anyOrder := Optimum(gpus, jobs, Rules{FIFO: true}), Optimum(gpus, jobs, Rules{})
		fifoMoves := Optimum(gpus, jobs, Rules{FIFO: true, Migration: true})
		moves := Optimum(gpus, jobs, Rules{Migration: true})
		if !(fifo >= anyOrder && anyOrder >= moves && fifo >= fifoMoves && fifoMoves >= moves && moves >= 0) ||
			math.IsInf(fifo, 1) {
			t.Fatalf("%v: FIFO %v, any order %v; with migration %v and %v", jobs, fifo, anyOrder, fifoMoves, moves)
		}
	})
}

// TestOptimumByHand checks cases whose results can be computed by hand.
func TestOptimumByHand(t *testing.T) {
	b := PlainA100(t)
	gpus := []place.GPU{{Model: b}}
	for _, c := range []struct {
		what                             string
		jobs                             []Job
		fifo, anyOrder, migration, moves float64
	}{
		{"room for all", []Job{{"1g.5gb", 0, 9}, {"4g.20gb", 1, 9}, {"2g.10gb", 1, 9}}, 0, 0, 0, 0},
		{"behind the whole GPU", []Job{{"1g.5gb", 0, 10}, {"7g.40gb", 1, 10}, {"1g.5gb", 2, 8}}, 9 + 18, 9, 9 + 18, 9},
		// The 4g.20gb can start only in the first half of the GPU, so the 3g.20gb that ends first must be in this half.
		{"the right half", []Job{{"3g.20gb", 0, 4}, {"3g.20gb", 0, 9}, {"4g.20gb", 1, 5}}, 3, 3, 3, 3},
		// Without FIFO order, the 4g.20gb starts first, and two of the 2g.10gb wait until 2 for its units.
		{"held back", []Job{{"2g.10gb", 0, 4}, {"2g.10gb", 0, 8}, {"2g.10gb", 0, 8}, {"4g.20gb", 1, 1}}, 7, 4, 7, 4},
		// At 4, the 3g.20gb needs one half of the GPU. If the 3g.20gb is in the second half, the 2g.10gb that runs
		// until 10 must be in the first half, and the 4g.20gb must wait for the 2g.10gb. If the 3g.20gb is in the first
		// half, the 2g.10gb has no room before 5. With migration, the 2g.10gb moves at 6 and does not delay the
		// 4g.20gb.
		{"no good half", []Job{{"2g.10gb", 2, 3}, {"3g.20gb", 4, 2}, {"2g.10gb", 4, 6}, {"4g.20gb", 5, 2}}, 2, 2, 1, 1},
		{"durations of 0", []Job{{"7g.40gb", 0, 0}, {"7g.40gb", 0, 0}, {"1g.5gb", 0, 0}}, 0, 0, 0, 0},
	} {
		for _, r := range []struct {
			rules Rules
			want  float64
		}{
			{Rules{FIFO: true}, c.fifo},
			{Rules{}, c.anyOrder},
			{Rules{FIFO: true, Migration: true}, c.migration},
			{Rules{Migration: true}, c.moves},
		} {
			if got := Optimum(gpus, c.jobs, r.rules); got != r.want {
				t.Errorf("%s, %+v: %v, want %v", c.what, r.rules, got, r.want)
			}
		}
	}
	if got := Optimum(gpus, []Job{{"1g.24gb", 0, 1}}, Rules{}); !math.IsInf(got, 1) {
		t.Errorf("a profile of another GPU model waits %v, want +Inf", got)
	}
}
