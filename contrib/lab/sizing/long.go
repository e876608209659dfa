package main

import (
	"errors"
	"fmt"
	"io"
)

// repetitions is the number of times that the `long` command repeats MISO's jobs.
const repetitions = 6

// limits lists the values of max_slowdown that the `long` command uses, and limitNames lists the titles of their
// columns.
var (
	limits     = []float64{1.5, 2, 3, 0}
	limitNames = []string{"1.5", "2", "3", "none"}
)

// longRow holds the results for one submission rate. The fields tightest and adaptive contain one result per element of
// limits.
type longRow struct {
	minutes            float64
	whole              tail
	tightest, adaptive []tail
}

// long prints the mean turnarounds in long workloads for several values of max_slowdown, and then the worst jobs'
// slowdowns.
func long(w io.Writer, o options) error {
	var rows []longRow
	for _, minutes := range []float64{0.5, 1, 2, 4, 8} {
		r, err := newLongRow(o, minutes)
		if err != nil {
			return err
		}
		rows = append(rows, r)
	}
	columns := append([]string{"one job every", string(whole)}, limitNames...)
	t := newTable(w, columns...)
	for _, r := range rows {
		base := r.whole.mean
		cells := []string{fmt.Sprintf("%v min", r.minutes), seconds(base) + " s"}
		for k, name := range limitNames {
			fixed, chosen := r.tightest[k].mean, r.adaptive[k].mean
			where := fmt.Sprintf("%v min, max_slowdown %s", r.minutes, name)
			cells = append(cells, share(fixed, base)+" / "+t.judge(share(chosen, base), where, chosen, base, fixed))
		}
		t.row(cells...)
	}
	t.end()
	t = newTable(w, columns...)
	for _, r := range rows {
		cells := []string{fmt.Sprintf("%v min", r.minutes), slowdown(r.whole.worst)}
		for k, name := range limitNames {
			fixed, chosen := r.tightest[k].worst, r.adaptive[k].worst
			where := fmt.Sprintf("%v min, max_slowdown %s", r.minutes, name)
			cells = append(cells, slowdown(fixed)+" / "+t.judge(slowdown(chosen), where, chosen, r.whole.worst, fixed))
		}
		t.row(cells...)
	}
	t.end()
	return nil
}

// newLongRow simulates each way of using the GPUs with each seed.
func newLongRow(o options, minutes float64) (longRow, error) {
	r := longRow{minutes: minutes, tightest: make([]tail, len(limits)), adaptive: make([]tail, len(limits))}
	c, err := newCluster("A100-40GB", misoGPUs, "offers")
	if err != nil {
		return r, err
	}
	for _, seed := range o.seeds {
		jobs, err := repeated(o.path, minutes, repetitions, 0, seed)
		if err != nil {
			return r, err
		}
		add := func(t *tail, as way, limit float64) error {
			turnarounds, err := c.play(as, slowest(jobs, limit))
			if err == nil {
				t.add(turnarounds, jobs, len(o.seeds))
			}
			return err
		}
		if err := add(&r.whole, whole, 0); err != nil {
			return r, err
		}
		for k, limit := range limits {
			err := errors.Join(add(&r.tightest[k], tightest, limit), add(&r.adaptive[k], adaptive, limit))
			if err != nil {
				return r, err
			}
		}
	}
	return r, nil
}
