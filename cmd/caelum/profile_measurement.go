package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// comparison is the JSON output of caelum profile-job.
type comparison struct {
	Model    string        `json:"board"`
	Runs     []measurement `json:"runs"`
	Tightest string        `json:"tightest,omitempty"` // the smallest profile on which the script completed
}

// measurement is one run of a script on one profile.
type measurement struct {
	Profile string  `json:"profile"`
	Seconds float64 `json:"seconds"`
	PeakMiB float64 `json:"peak_mib,omitempty"` // the peak memory of one slice; 0 if unknown
	Util    float64 `json:"util"`               // from 0 to 1; -1 if unknown
	State   string  `json:"state"`              // the job's state in Slurm
	Job     uint32  `json:"job"`
	// OutOfMemory is true if the run failed because its slice had too little memory, by the rule of the predictions.
	OutOfMemory bool `json:"out_of_memory,omitempty"`
	// Speed is relative to the largest profile on which the script completed, or 0 if it is unknown.
	Speed float64 `json:"speed,omitempty"`
}

// ended returns a copy of m that includes the results from slurmdbd's record of the job. It returns false if the job
// has not ended, or if a node's summary is missing and the job ended less than wait ago. The run time is the time for
// which the job held its slices or, if the record has no summary, the elapsed time of the job.
func (m measurement) ended(r slurm.Record, now time.Time, wait time.Duration) (measurement, bool, error) {
	if r.End.IsZero() {
		return m, false, nil
	}
	if tags.Value(r.Comment, tags.Key) == "" {
		return m, true, fmt.Errorf(
			"job %d got no slice; in the script or with --sbatch, request a GPU (--gres=gpu:1) "+
				"in a partition that Caelum manages",
			m.Job,
		)
	}
	used := predict.Summaries(r.Text)
	if len(used) < len(r.Nodes) && now.Before(r.End.Add(wait)) {
		return m, false, nil
	}
	m.State = r.State
	if !r.Start.IsZero() {
		m.Seconds = r.End.Sub(r.Start).Seconds()
	}
	for i, u := range used {
		if i == 0 {
			m.Seconds = 0
		}
		m.Seconds, m.PeakMiB, m.Util = max(m.Seconds, u.Seconds), max(m.PeakMiB, u.PeakMiB), max(m.Util, u.Util)
	}
	m.OutOfMemory = predict.Run{Profile: m.Profile, PeakMiB: m.PeakMiB, State: m.State}.OutOfMemory()
	return m, true, nil
}

// compare calculates the speeds of the runs. The GPU model b must include every measured profile.
func compare(b *mig.Model, runs []measurement) comparison {
	done := slices.DeleteFunc(slices.Clone(runs), func(m measurement) bool {
		return m.State != "COMPLETED" || m.Seconds <= 0
	})
	slices.SortStableFunc(done, func(x, y measurement) int {
		i, _ := b.ProfileIndex(x.Profile)
		k, _ := b.ProfileIndex(y.Profile)
		p, q := b.Profiles[i], b.Profiles[k]
		return cmp.Or(cmp.Compare(p.Size, q.Size), cmp.Compare(p.Compute, q.Compute))
	})
	c := comparison{Model: b.Name, Runs: runs}
	if len(done) == 0 {
		return c
	}
	c.Tightest = done[0].Profile
	for k, m := range runs {
		if slices.Contains(done, m) {
			runs[k].Speed = done[len(done)-1].Seconds / m.Seconds
		}
	}
	return c
}

func (c comparison) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tPROFILE\tSTATE\tSECONDS\tSPEED\tPEAK\tUTIL")
	for _, m := range c.Runs {
		util, state := "-", m.State
		if m.Util >= 0 {
			util = fmt.Sprintf("%.0f%%", 100*m.Util)
		}
		if m.OutOfMemory {
			state = "out of memory"
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n",
			m.Job, m.Profile, printable(state), short(m.Seconds), short(m.Speed), mebibytes(m.PeakMiB), util)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	text := "no run completed, so the tightest profile is unknown"
	if c.Tightest != "" {
		text = "the tightest profile is " + c.Tightest
	}
	_, err := fmt.Fprintln(w, text)
	return err
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
