package main

import (
	"fmt"
	"io"
	"strings"
)

const (
	drawnJobs = 100 // per perNode GPUs
	drawnMean = 700 // seconds; close to the mean of MISO's jobs
)

// speeds prints the turnarounds of randomly drawn jobs on several clusters. Each cell shows the mean turnarounds with
// whole GPUs, tightest and adaptive, each divided by the shorter of the first two.
func speeds(w io.Writer, o options) error {
	minutes := []float64{1, 4, 16}
	columns := []string{"GPUs", "busy shares", "speeds and run times"}
	for _, m := range minutes {
		columns = append(columns, fmt.Sprintf("one job every %v min", m))
	}
	t := newTable(w, columns...)
	for _, hardware := range []struct {
		model string
		gpus  int
	}{{"A100-40GB", 4}, {"H100-80GB", 4}, {"A30-24GB", 4}, {"A100-40GB", 16}} {
		c, err := newCluster(hardware.model, hardware.gpus, "offers")
		if err != nil {
			return err
		}
		for _, shares := range []string{"4b^3", "uniform"} {
			for _, known := range []string{"exact", "estimated"} {
				cells := []string{fmt.Sprintf("%d %s", c.gpus, c.model.Name), shares, known}
				for _, m := range minutes {
					scale := float64(c.gpus) / perNode
					d := drawing{c.model, drawnJobs * c.gpus / perNode, 60 * m / scale, drawnMean, shares == "uniform"}
					where := fmt.Sprintf("%s, %v min", strings.Join(cells[:3], ", "), m)
					text, err := t.compare(c, d, o.seeds, known == "exact", where)
					if err != nil {
						return err
					}
					cells = append(cells, text)
				}
				t.row(cells...)
			}
		}
	}
	t.end()
	return nil
}

// compare returns a cell of the table.
func (t *table) compare(c cluster, d drawing, seeds []uint64, exact bool, where string) (string, error) {
	sums := map[way]float64{}
	for _, seed := range seeds {
		jobs := slowest(d.draw(seed), maxSlowdown)
		on := c
		if !exact {
			on = c.wrong(seed)
		}
		for _, as := range []way{whole, tightest, adaptive} {
			turnarounds, err := on.play(as, jobs)
			if err != nil {
				return "", err
			}
			sums[as] += mean(turnarounds)
		}
	}
	best := min(sums[whole], sums[tightest])
	chosen := t.judge(ratio(sums[adaptive], best), where, sums[adaptive], best)
	return ratio(sums[whole], best) + " / " + ratio(sums[tightest], best) + " / " + chosen, nil
}
