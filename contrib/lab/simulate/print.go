package main

import (
	"encoding/csv"
	"io"
	"strconv"

	"caelum/internal/sim"
)

// result is the result for one policy.
type result struct {
	policy, layouts string
	never           string // why a job can never start; if it is not empty, all figures are 0
	*sim.Result
}

// columns returns the figures of a result. Times are in seconds.
func (r result) columns() (names, values []string) {
	add := func(name string, x float64) {
		names, values = append(names, name), append(values, strconv.FormatFloat(x, 'g', -1, 64))
	}
	names, values = []string{"policy", "never", "layouts"}, []string{r.policy, r.never, r.layouts}
	add("started", float64(r.Started))
	add("refused", float64(r.Refused))
	add("mean_turnaround", r.MeanTurnaround())
	add("mean_wait", r.Waits.Mean())
	add("median_wait", r.Waits.At(0.5))
	add("p95_wait", r.Waits.At(0.95))
	add("p99_wait", r.Waits.At(0.99))
	add("longest_wait", r.Waits.Longest)
	add("makespan", r.Makespan)
	add("utilisation", r.Utilisation)
	add("fragmentation", r.Frag)
	add("accepted", r.Accepted())
	add("worst_profile", r.Worst())
	add("created", float64(r.Created))
	add("destroyed", float64(r.Destroyed))
	add("reused", float64(r.Reused))
	add("requeued", float64(r.Requeued))
	add("lost", r.Lost)
	add("prompt", float64(r.Prompt))
	add("found", float64(r.Found))
	add("switched", float64(r.Switched))
	add("moved", float64(r.Moved))
	add("active_gpus", r.Active)
	add("deadlines_met", float64(r.Met))
	add("deadlines_missed", float64(r.Missed))
	add("others_mean_wait", r.Others.Mean())
	return names, values
}

func print(w io.Writer, results []result) error {
	c := csv.NewWriter(w)
	for k, r := range results {
		names, values := r.columns()
		if k == 0 {
			c.Write(names)
		}
		c.Write(values)
	}
	c.Flush()
	return c.Error()
}
