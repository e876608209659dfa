package reconfigure

import (
	"math"
	"slices"

	"pgregory.net/rapid"

	"caelum/internal/core/place"
)

func spot(gpu, placement int) place.Spot { return place.Spot{GPU: gpu, Placement: placement} }

// drawRunning assigns the busy instances to jobs, one or two instances to each job. Some instances belong to no known
// job.
func drawRunning(t *rapid.T, gpus []place.GPU) []Running {
	var jobs []Running
	for k, g := range gpus {
		for i := range g.Busy.Indices() {
			switch n := rapid.IntRange(0, 9).Draw(t, "job"); {
			case n == 0:
			case n <= 2 && len(jobs) > 0:
				last := &jobs[len(jobs)-1]
				last.Holds = append(last.Holds, spot(k, i))
			default:
				jobs = append(jobs, Running{
					Holds:    []place.Spot{spot(k, i)},
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

// allBut returns a Movable that allows every busy instance except those in stay to be moved. The jobs are numbered by
// GPU and then by unit.
func allBut(gpus []place.GPU, stay ...place.Spot) Movable {
	number := map[place.Spot]int{}
	for k, g := range gpus {
		if g.Model == nil {
			continue
		}
		for u := range g.Model.Grid {
			for i := range g.Busy.Indices() {
				if g.Model.Placements[i].Start == u {
					number[spot(k, i)] = len(number)
				}
			}
		}
	}
	return func(at place.Spot) (int, bool) { return number[at], !slices.Contains(stay, at) }
}

// drawStay chooses instances that must not be moved.
func drawStay(t *rapid.T, gpus []place.GPU) []place.Spot {
	var stay []place.Spot
	for k, g := range gpus {
		for i := range g.Busy.Indices() {
			if rapid.IntRange(0, 3).Draw(t, "stays") == 0 {
				stay = append(stay, spot(k, i))
			}
		}
	}
	return stay
}
