package place

import (
	"math"
	"slices"
	"strings"
	"sync"

	"pgregory.net/rapid"

	"caelum/internal/mig"
)

// everyModel returns every GPU model of the tables twice: with all its profiles, and with the plain ones.
var everyModel = sync.OnceValue(func() []*mig.Model {
	var all []*mig.Model
	for _, b := range mig.Models() {
		all = append(all, b, b.Select(mig.Plain))
	}
	return all
})

// drawGPUs makes one to four GPUs of one or two GPU models with busy and idle instances and blocked units. Some GPUs
// have the expected ends.
func drawGPUs(t *rapid.T) []GPU {
	kinds := rapid.SliceOfN(rapid.IntRange(0, len(everyModel())-1), 1, 2).Draw(t, "boards")
	gpus := make([]GPU, rapid.IntRange(1, 4).Draw(t, "gpus"))
	for k := range gpus {
		b := everyModel()[rapid.SampledFrom(kinds).Draw(t, "board")]
		g := GPU{Model: b}
		layout := rapid.SampledFrom(b.Layouts()).Draw(t, "instances")
		for i := range layout.Indices() {
			switch rapid.IntRange(0, 4).Draw(t, "is") {
			case 0:
				g.Idle = g.Idle.With(i)
			case 1:
			case 2, 3, 4:
				g.Busy = g.Busy.With(i)
			}
		}
		if rapid.IntRange(0, 2).Draw(t, "blocked") == 0 {
			g.Blocked = 1 << rapid.IntRange(0, b.Grid-1).Draw(t, "unit") &^ b.Occupied(layout)
		}
		if rapid.Bool().Draw(t, "ends") {
			g.Ends = make([]float64, len(b.Placements))
			for i := range g.Ends {
				g.Ends[i] = rapid.SampledFrom([]float64{0, 500, 900, 1000, 1100, 1300, 2000, math.Inf(1)}).
					Draw(t, "end")
			}
		}
		gpus[k] = g
	}
	return gpus
}

// drawRunning assigns the busy instances to jobs, one or two to each. Some instances belong to no known job.
func drawRunning(t *rapid.T, gpus []GPU) []Running {
	var jobs []Running
	for k, g := range gpus {
		for i := range g.Busy.Indices() {
			switch n := rapid.IntRange(0, 9).Draw(t, "job"); {
			case n == 0:
			case n <= 2 && len(jobs) > 0:
				last := &jobs[len(jobs)-1]
				last.Holds = append(last.Holds, Spot{k, i})
			default:
				jobs = append(jobs, Running{
					Holds:    []Spot{{k, i}},
					Start:    float64(rapid.IntRange(0, 1000).Draw(t, "start")),
					Duration: float64(rapid.IntRange(1, 2000).Draw(t, "duration")),
					Deadline: rapid.SampledFrom([]float64{1500, 3000, math.Inf(1)}).Draw(t, "deadline"),
					Requeue:  n > 3,
				})
			}
		}
	}
	return jobs
}

// allBut returns a Movable that allows every busy instance to move except these. The jobs are numbered by GPU, then by
// unit.
func allBut(gpus []GPU, stay ...Spot) Movable {
	number := map[Spot]int{}
	for k, g := range gpus {
		if g.Model == nil {
			continue
		}
		for u := range g.Model.Grid {
			for i := range g.Busy.Indices() {
				if g.Model.Placements[i].Start == u {
					number[Spot{k, i}] = len(number)
				}
			}
		}
	}
	return func(at Spot) (int, bool) { return number[at], !slices.Contains(stay, at) }
}

// drawStay chooses instances that must not be moved.
func drawStay(t *rapid.T, gpus []GPU) []Spot {
	var stay []Spot
	for k, g := range gpus {
		for i := range g.Busy.Indices() {
			if rapid.IntRange(0, 3).Draw(t, "stays") == 0 {
				stay = append(stay, Spot{k, i})
			}
		}
	}
	return stay
}

// mustBeLegal checks GPUs against the plain rules.
func mustBeLegal(t tb, what string, gpus []GPU) {
	t.Helper()
	for k, g := range gpus {
		if g.Model == nil {
			continue
		}
		o := plainly(g)
		if g.Busy&g.Idle != 0 || !o.legal(slices.Concat(o.busy, o.idle)) {
			t.Fatalf("%s: GPU %d has an illegal layout: busy %s, idle %s", what, k,
				g.Model.DrawBeside(g.Busy, g.Blocked), g.Model.Draw(g.Idle))
		}
	}
}

func drawing(gpus []GPU) string {
	var out strings.Builder
	draw(&out, gpus)
	return out.String()
}
