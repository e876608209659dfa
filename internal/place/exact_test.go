package place

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// plainPack tries every instance on every GPU at every start, in the order given.
func plainPack(gpus []plainGPU, profiles []string) bool {
	if len(profiles) == 0 {
		return true
	}
	for k, o := range gpus {
		for _, x := range every(o.model) {
			if o.model.Profiles[x.profile].Name == profiles[0] && o.fits(o.busy, x) {
				then := slices.Clone(gpus)
				then[k].busy = with(o.busy, x)
				if plainPack(then, profiles[1:]) {
					return true
				}
			}
		}
	}
	return false
}

func TestPackAgainstOracle(t *testing.T) {
	answers := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		gpus := drawGPUs(t)
		gpus = gpus[:min(len(gpus), 2)]
		var profiles []string
		for range rapid.IntRange(0, 4).Draw(t, "instances") {
			b := gpus[rapid.IntRange(0, len(gpus)-1).Draw(t, "of")].Model
			profiles = append(profiles, b.Profiles[rapid.IntRange(0, len(b.Profiles)-1).Draw(t, "profile")].Name)
		}
		var plain []plainGPU
		for _, g := range gpus {
			plain = append(plain, plainly(g))
		}
		at, ok := Pack(gpus, profiles)
		if want := plainPack(plain, profiles); ok != want {
			t.Fatalf("%v: %v, want %v\n%s", profiles, ok, want, drawing(gpus))
		}
		answers[ok]++
		if ok {
			mustHold(t, gpus, profiles, at)
		}
	})
	if answers[true] == 0 || answers[false] == 0 {
		t.Errorf("answers: %v", answers)
	}
}

// mustHold checks the spots that Pack returned, without regard to idle instances.
func mustHold(t tb, gpus []GPU, profiles []string, at []Spot) {
	t.Helper()
	after := slices.Clone(gpus)
	for n, s := range at {
		g := &after[s.GPU]
		if pl := g.Model.Placements[s.Placement]; g.Model.Profiles[pl.Profile].Name != profiles[n] ||
			g.Busy.Has(s.Placement) {
			t.Fatalf("%s is at %s, GPU %d", profiles[n], g.Model.Label(s.Placement), s.GPU)
		}
		g.Busy, g.Idle = g.Busy.With(s.Placement), 0
	}
	mustBeLegal(t, fmt.Sprint(profiles), after)
}

// TestPackOfLargeNode has 16 GPUs with exactly as many instances as fit, or one too many. A search that tries all
// placements could not answer this.
func TestPackOfLargeNode(t *testing.T) {
	b := plainA100(t)
	var gpus []GPU
	var fits []string
	for range 16 {
		gpus = append(gpus, GPU{Model: b})
		fits = append(fits, "3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb")
	}
	at, ok := Pack(gpus, fits)
	if !ok {
		t.Fatal("16 times 3g 2g 1g 1g: no room")
	}
	mustHold(t, gpus, fits, at)
	if _, ok := Pack(gpus, append(fits, "2g.10gb")); ok {
		t.Error("room for another 2g.10gb, but each GPU has 7 compute slices")
	}
	var full []string // 4g, 2g, 1g fill a GPU's 7 compute slices
	for range 16 {
		full = append(full, "4g.20gb", "2g.10gb", "1g.5gb")
	}
	if _, ok := Pack(gpus, full); !ok {
		t.Error("16 times 4g 2g 1g: no room")
	}
	if _, ok := Pack(gpus, append(full, "1g.5gb")); ok {
		t.Error("room for a 1g.5gb beside 16 times 4g 2g 1g")
	}
}

// plainOptimum tries, time step by time step, every set of spots for the jobs that have arrived. Times are small whole
// numbers.
func plainOptimum(gpus []plainGPU, jobs []Job, fifo bool, now float64, sum, best float64) float64 {
	left := slices.ContainsFunc(jobs, func(j Job) bool { return j.Profile != "" })
	if !left || sum >= best {
		return min(sum, best)
	}
	for n, j := range jobs { // start one job now, and go on with the others
		if j.Profile == "" {
			continue
		}
		if j.Arrival <= now {
			for k, o := range gpus {
				var still []interval
				for _, y := range o.busy {
					if o.until[y] > now {
						still = append(still, y)
					}
				}
				for _, x := range every(o.model) {
					if o.model.Profiles[x.profile].Name != j.Profile || !o.fits(still, x) {
						continue
					}
					then, rest := slices.Clone(gpus), slices.Clone(jobs)
					then[k].busy, then[k].until = with(still, x), map[interval]float64{x: now + j.Duration}
					for _, y := range still {
						then[k].until[y] = o.until[y]
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
	return plainOptimum(gpus, jobs, fifo, now+1, sum, best) // start no more jobs now
}

// drawCase makes a small case. The GPUs are of one GPU model and empty, and every job fits on them.
func drawCase(t *rapid.T, mostJobs int) ([]GPU, []Job) {
	b := everyModel()[rapid.IntRange(0, len(everyModel())-1).Draw(t, "board")]
	gpus := make([]GPU, rapid.IntRange(1, 2).Draw(t, "gpus"))
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
		var plain []plainGPU
		for _, g := range gpus {
			plain = append(plain, plainly(g))
		}
		for _, fifo := range []bool{true, false} {
			got := Optimum(gpus, jobs, Rules{FIFO: fifo})
			if want := plainOptimum(plain, jobs, fifo, 0, 0, math.Inf(1)); got != want {
				t.Fatalf("FIFO %v: %v waits %v, want %v\n%s", fifo, jobs, got, want, drawing(gpus))
			}
		}
	})
}

// TestOptimaInOrder checks that FIFO order never shortens the waits, and that migration never lengthens them.
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

// TestOptimumByHand has cases whose results can be checked by hand.
func TestOptimumByHand(t *testing.T) {
	b := plainA100(t)
	gpus := []GPU{{Model: b}}
	for _, c := range []struct {
		what                             string
		jobs                             []Job
		fifo, anyOrder, migration, moves float64
	}{
		{"room for all", []Job{{"1g.5gb", 0, 9}, {"4g.20gb", 1, 9}, {"2g.10gb", 1, 9}}, 0, 0, 0, 0},
		{"behind the whole GPU", []Job{{"1g.5gb", 0, 10}, {"7g.40gb", 1, 10}, {"1g.5gb", 2, 8}}, 9 + 18, 9, 9 + 18, 9},
		// The 3g.20gb that ends first has to be in the first half, for the 4g.20gb.
		{"the right half", []Job{{"3g.20gb", 0, 4}, {"3g.20gb", 0, 9}, {"4g.20gb", 1, 5}}, 3, 3, 3, 3},
		// In any order the 4g.20gb starts first, and two of the 2g.10gb wait for it until 2.
		{"held back", []Job{{"2g.10gb", 0, 4}, {"2g.10gb", 0, 8}, {"2g.10gb", 0, 8}, {"4g.20gb", 1, 1}}, 7, 4, 7, 4},
		// At 4 the 3g.20gb needs a half. In the second half, it leaves the first half to the 2g.10gb that runs until
		// 10, and the 4g.20gb waits for that. In the first half, it leaves that 2g.10gb no room before 5. With
		// migration, the 2g.10gb moves at 6 and is not in the way.
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
