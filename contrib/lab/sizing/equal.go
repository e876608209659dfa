package main

import (
	"fmt"
	"io"

	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

const (
	churnGPUs = 16
	churnJobs = 4000
)

// equal prints the mean waits of jobs whose speed is the same on all profiles.
func equal(w io.Writer, o options) error {
	columns := []string{"queue", "load"}
	for _, m := range trace.Mixes {
		columns = append(columns, m.Name)
	}
	t := newTable(w, columns...)
	for _, queue := range []string{"fifo", "easy"} {
		c, err := newCluster("A100-40GB", churnGPUs, queue)
		if err != nil {
			return err
		}
		for _, load := range []float64{0.7, 0.85} {
			cells := []string{queue, fmt.Sprint(load)}
			for _, m := range trace.Mixes {
				waits := map[way]float64{}
				for _, seed := range o.seeds {
					churn := trace.Churn{Mix: m.Mix, Jobs: churnJobs, GPUs: churnGPUs, Load: load, Seed: seed}
					for _, as := range []way{tightest, adaptive} {
						s, err := c.config(as)
						if err != nil {
							return err
						}
						r, err := sim.Run(s, churn.All())
						if err != nil {
							return err
						}
						waits[as] += r.Waits.Mean() / float64(len(o.seeds))
					}
				}
				where := fmt.Sprintf("%s, load %v, %s", queue, load, m.Name)
				a, b := waits[adaptive], waits[tightest]
				cells = append(cells, seconds(b)+" s, "+t.judge(share(a, b), where, a, b))
			}
			t.row(cells...)
		}
	}
	t.end()
	return nil
}
