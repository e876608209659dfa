package main

import (
	"fmt"
	"io"
	"slices"

	"caelum/internal/sim/trace"
)

// tail holds statistics of the turnarounds, averaged over the seeds.
type tail struct{ mean, p95, longest, worst float64 }

// add adds the statistics for one of n seeds.
func (t *tail) add(turnarounds []float64, jobs []trace.Job, n int) {
	t.mean += mean(turnarounds) / float64(n)
	t.p95 += quantile(turnarounds, 0.95) / float64(n)
	t.longest += slices.Max(turnarounds) / float64(n)
	t.worst += worst(turnarounds, jobs) / float64(n)
}

// memoryOnly is the tightest way without max_slowdown.
const memoryOnly way = "tightest, memory only"

// misoMinutes lists the mean times between submissions, in minutes, that the `rates` command simulates.
var misoMinutes = []float64{0.5, 1, 2, 4, 8, 16}

// row describes a row in the tables that the `rates` command prints.
type row struct {
	order string // list (the order of MISO's list, which begins with the shortest jobs) or random
	queue string
	cells []map[way]*tail // one cell for each element of misoMinutes
}

// rates prints the mean and the tail of the turnarounds for several queues and submission rates.
func rates(w io.Writer, o options) error {
	columns := []string{"order", "queue"}
	for _, minutes := range misoMinutes {
		columns = append(columns, fmt.Sprintf("%v min", minutes))
	}
	var rows []row
	for _, order := range []string{"list", "random"} {
		for _, queue := range []string{"fifo", "easy", "offers"} {
			r := row{order: order, queue: queue}
			for _, minutes := range misoMinutes {
				cell, err := r.cell(o, minutes)
				if err != nil {
					return err
				}
				r.cells = append(r.cells, cell)
			}
			rows = append(rows, r)
		}
	}
	t := newTable(w, columns...)
	for _, r := range rows {
		cells := []string{r.order, r.queue}
		for k, c := range r.cells {
			base := c[whole].mean
			chosen := t.judge(ratio(c[adaptive].mean, base), r.where(k), c[adaptive].mean, base, c[tightest].mean)
			cells = append(cells, fmt.Sprintf("%s s; %s / %s / %s / %s", seconds(base), ratio(c[static].mean, base),
				ratio(c[memoryOnly].mean, base), ratio(c[tightest].mean, base), chosen))
		}
		t.row(cells...)
	}
	t.end()
	printTails(w, append(columns[:2:2], append([]string{"figure"}, columns[2:]...)...), rows)
	return nil
}

// where returns a string that identifies a cell.
func (r row) where(k int) string {
	return fmt.Sprintf("%s order, %s, %v min", r.order, r.queue, misoMinutes[k])
}

// cell simulates the jobs with every seed and every way to use the GPUs.
func (r row) cell(o options, minutes float64) (map[way]*tail, error) {
	c, err := newCluster("A100-40GB", misoGPUs, r.queue)
	if err != nil {
		return nil, err
	}
	all := map[way]*tail{}
	for _, seed := range o.seeds {
		jobs, err := miso(o.path, minutes, seed)
		if r.order == "random" {
			jobs, err = repeated(o.path, minutes, 1, 0, seed)
		}
		if err != nil {
			return nil, err
		}
		for _, as := range []way{whole, static, memoryOnly, tightest, adaptive} {
			if all[as] == nil {
				all[as] = &tail{}
			}
			do, limit := as, maxSlowdown
			if as == memoryOnly {
				do, limit = tightest, 0
			}
			turnarounds, err := c.play(do, slowest(jobs, limit))
			if err != nil {
				return nil, err
			}
			all[as].add(turnarounds, jobs, len(o.seeds))
		}
	}
	return all, nil
}

// printTails prints the tail of the turnarounds.
func printTails(w io.Writer, columns []string, rows []row) {
	t := newTable(w, columns...)
	for _, r := range rows {
		for _, f := range []struct {
			name string
			of   func(*tail) float64
			text func(float64) string
		}{
			{"p95, s", func(x *tail) float64 { return x.p95 }, seconds},
			{"longest, s", func(x *tail) float64 { return x.longest }, seconds},
			{"worst 5%", func(x *tail) float64 { return x.worst }, slowdown},
		} {
			cells := []string{r.order, r.queue, f.name}
			for k, c := range r.cells {
				a, b, chosen := f.of(c[whole]), f.of(c[tightest]), f.of(c[adaptive])
				last := t.judge(f.text(chosen), r.where(k)+", "+f.name, chosen, a, b)
				cells = append(cells, f.text(a)+" / "+f.text(b)+" / "+last)
			}
			t.row(cells...)
		}
	}
	t.end()
}
