package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"caelum/internal/sim/trace"
)

// mean returns the mean of the given values. There must be at least one.
func mean(of []float64) float64 {
	sum := 0.0
	for _, x := range of {
		sum += x
	}
	return sum / float64(len(of))
}

// quantile returns the smallest value x such that at least a fraction q of the values are at most x.
func quantile(of []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))-1e-9))-1)]
}

const (
	// worstShare is the fraction of the jobs that count as the worst.
	worstShare = 0.05
	// shortest is the minimum run time, in seconds on a whole GPU, of the jobs that worst considers. For shorter jobs,
	// a wait of a few seconds would dominate the slowdown.
	shortest = 10
)

// worst returns the mean slowdown of the jobs with the largest slowdowns. A job's slowdown is its turnaround divided by
// its run time on a whole GPU.
func worst(turnarounds []float64, jobs []trace.Job) float64 {
	var all []float64
	for k, j := range jobs {
		if j.Duration >= shortest {
			all = append(all, turnarounds[k]/j.Duration)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	n := int(math.Ceil(worstShare*float64(len(all)) - 1e-9))
	return mean(all[len(all)-n:])
}

// table is a Markdown table.
type table struct {
	w    io.Writer
	bad  []string // the cells in which adaptive is worse than the other ways
	most float64  // the largest ratio of a figure for adaptive to the best of the other ways
	of   int      // the number of cells for which adaptive was compared with the other ways
}

func newTable(w io.Writer, columns ...string) *table {
	t := &table{w: w}
	t.row(columns...)
	fmt.Fprintln(w, strings.Repeat("|---", len(columns))+"|")
	return t
}

func (t *table) row(cells ...string) { fmt.Fprintln(t.w, "| "+strings.Join(cells, " | ")+" |") }

const (
	// tolerance is the ratio above which a cell is listed below the table.
	tolerance = 1.02
	// marked is the ratio above which a figure is bold.
	marked = 1.05
)

// judge formats a figure for adaptive. The figure is bold if it is more than marked times the best figure of the other
// ways. The argument where identifies the cell.
func (t *table) judge(text, where string, figure float64, others ...float64) string {
	r := figure / slices.Min(others)
	t.of++
	t.most = max(t.most, r)
	if r > tolerance {
		t.bad = append(t.bad, fmt.Sprintf("%s (%.3f)", where, r))
	}
	if r > marked {
		return "**" + text + "**"
	}
	return text
}

// end lists the cells in which adaptive is worse than the other ways.
func (t *table) end() {
	fmt.Fprintf(t.w, "\nadaptive / best of the other ways: largest %.3f; above %v in %d of %d cells\n",
		t.most, tolerance, len(t.bad), t.of)
	for _, where := range t.bad {
		fmt.Fprintln(t.w, "-", where)
	}
	fmt.Fprintln(t.w)
}

// seconds formats a time in seconds, with a comma as the thousands separator.
func seconds(x float64) string {
	n := int64(math.Round(x))
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// ratio formats a ratio with two decimal places.
func ratio(a, b float64) string { return fmt.Sprintf("%.2f", a/b) }

// share formats a ratio with three decimal places.
func share(a, b float64) string { return fmt.Sprintf("%.3f", a/b) }

// slowdown formats a slowdown with one decimal place.
func slowdown(x float64) string { return fmt.Sprintf("%.1f", x) }
