package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
)

// evaluation is the JSON output of caelum profile-job.
type evaluation struct {
	Model    string    `json:"board"`
	Runs     []result  `json:"runs"`
	Verdicts []verdict `json:"verdicts"`
}

// result is a measurement with the values that profile-job calculates from it.
type result struct {
	measurement
	OutOfMemory bool `json:"out_of_memory,omitempty"`
	// Speed is relative to the largest profile on which the script completed with the same batch size and number of
	// steps, or 0 if it is unknown.
	Speed      float64 `json:"speed,omitempty"`
	Latency    float64 `json:"latency,omitempty"`    // seconds per step
	Throughput float64 `json:"throughput,omitempty"` // samples per second
}

// verdict is the outcome for one batch size, or for a script without batch sizes.
type verdict struct {
	Batch    int     `json:"batch,omitempty"`
	Tightest string  `json:"tightest,omitempty"` // the smallest profile on which the script completed
	Choice   string  `json:"choice,omitempty"`   // the profile that DynaP chooses
	F        float64 `json:"f,omitempty"`        // DynaP's value for Choice; higher is better
	Late     string  `json:"late,omitempty"`     // the reason why no profile meets the deadline
}

// evaluate calculates the results and verdicts for one batch size, or for all batch sizes if batch is 0. The GPU model
// b must include every measured profile.
func evaluate(b *mig.Model, runs []measurement, batch int, g predict.Goal) evaluation {
	j := evaluation{Model: b.Name}
	var batches []int
	for _, m := range runs {
		if batch == 0 || m.Batch == batch {
			batches = append(batches, m.Batch)
			j.Runs = append(j.Runs, resultOf(b, m, runs))
		}
	}
	if slices.Sort(batches); len(batches) == 0 {
		batches = []int{batch}
	}
	for _, n := range slices.Compact(batches) {
		j.Verdicts = append(j.Verdicts, decide(b, runs, n, g))
	}
	return j
}

// resultOf calculates the result for m, which is an element of runs.
func resultOf(b *mig.Model, m measurement, runs []measurement) result {
	s := result{measurement: m, OutOfMemory: m.outOfMemory(), Latency: m.latency(), Throughput: m.throughput()}
	same := completedWith(b, runs, m.Batch)
	same = slices.DeleteFunc(same, func(o measurement) bool { return o.Steps != m.Steps })
	if m.completed() && m.Seconds > 0 {
		s.Speed = same[len(same)-1].Seconds / m.Seconds
	}
	return s
}

// completedWith returns the completed runs with the given batch size, sorted by profile from small to large.
func completedWith(b *mig.Model, runs []measurement, batch int) (done []measurement) {
	for _, m := range runs {
		if m.Batch == batch && m.completed() {
			done = append(done, m)
		}
	}
	slices.SortStableFunc(done, func(x, y measurement) int {
		i, _ := b.ProfileIndex(x.Profile)
		k, _ := b.ProfileIndex(y.Profile)
		p, q := b.Profiles[i], b.Profiles[k]
		return cmp.Or(cmp.Compare(p.Size, q.Size), cmp.Compare(p.Compute, q.Compute))
	})
	return done
}

// decide returns the verdict for the given batch size.
func decide(b *mig.Model, runs []measurement, batch int, g predict.Goal) verdict {
	v := verdict{Batch: batch}
	done := completedWith(b, runs, batch)
	if len(done) == 0 {
		return v
	}
	v.Tightest = done[0].Profile
	done = slices.DeleteFunc(done, func(m measurement) bool { return m.latency() == 0 })
	if batch == 0 || len(done) == 0 {
		return v
	}
	var all []predict.Measured
	for _, m := range runs {
		if m.latency() > 0 {
			all = append(
				all,
				predict.Measured{Batch: m.Batch, Profile: m.Profile, Latency: m.latency(), Throughput: m.throughput()},
			)
		}
	}
	if choices := predict.Partitions(b, all, batch, g); len(choices) > 0 {
		v.Choice, v.F = choices[0].Profile, choices[0].Worth
		return v
	}
	best := slices.MinFunc(done, func(x, y measurement) int { return cmp.Compare(x.latency(), y.latency()) })
	v.Late = fmt.Sprintf(
		"no profile meets the deadline of %g s per step: the shortest step takes %s s, on %s",
		g.Deadline, short(best.latency()), best.Profile,
	)
	return v
}

func printEvaluation(w io.Writer, j evaluation) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tPROFILE\tBATCH\tSTATE\tSECONDS\tSPEED\tPEAK\tUTIL\tLATENCY\tTHROUGHPUT")
	for _, s := range j.Runs {
		util, state := "-", s.State
		if s.Util >= 0 {
			util = fmt.Sprintf("%.0f%%", 100*s.Util)
		}
		if s.OutOfMemory {
			state = "out of memory"
		}
		fmt.Fprintf(
			table,
			"%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			short(float64(s.Job)),
			s.Profile,
			short(float64(s.Batch)),
			printable(state),
			short(s.Seconds),
			short(s.Speed),
			mebibytes(s.PeakMiB),
			util,
			short(s.Latency),
			short(s.Throughput),
		)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, v := range j.Verdicts {
		if _, err := fmt.Fprintln(w, v); err != nil {
			return err
		}
	}
	return nil
}

// short formats a number for a table. The result is "-" for 0, which means unknown. Numbers of at least 100 have no
// decimals, and all others have three significant digits.
func short(v float64) string {
	switch {
	case v == 0:
		return "-"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func (v verdict) String() string {
	text := ""
	if v.Batch > 0 {
		text = fmt.Sprintf("batch %d: ", v.Batch)
	}
	if v.Tightest == "" {
		return text + "no run completed, so the tightest profile is unknown"
	}
	text += "the tightest profile is " + v.Tightest
	switch {
	case v.Choice != "":
		text += fmt.Sprintf("; DynaP's choice is %s, F = %.3f", v.Choice, v.F)
	case v.Late != "":
		text += "; " + v.Late
	}
	return text
}
