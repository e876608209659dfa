package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"caelum/internal/mig"
	"caelum/internal/predict"
	"caelum/internal/slurm"
)

// measurement is one run of a script on one profile. It is also the format of a line of --out and --from.
type measurement struct {
	Profile string  `json:"profile"`
	Batch   int     `json:"batch,omitempty"` // 0: the script has none
	Steps   int     `json:"steps,omitempty"` // 0: not known
	Seconds float64 `json:"seconds"`
	PeakMiB float64 `json:"peak_mib,omitempty"` // of one slice; 0: not known
	Util    float64 `json:"util"`               // from 0 to 1; -1: not known
	State   string  `json:"state"`              // the job's state in Slurm
	Job     uint32  `json:"job,omitempty"`
}

// label names the profile and the batch size in messages.
func (m measurement) label() string {
	if m.Batch == 0 {
		return m.Profile
	}
	return fmt.Sprintf("%s, batch %d", m.Profile, m.Batch)
}

func (m measurement) completed() bool { return m.State == "COMPLETED" }

// outOfMemory reports whether the run failed for lack of memory, by the rule that predictions use.
func (m measurement) outOfMemory() bool {
	return predict.Run{Profile: m.Profile, PeakMiB: m.PeakMiB, State: m.State}.OutOfMemory()
}

// latency returns the duration of a step in seconds; 0: not known.
func (m measurement) latency() float64 {
	if m.Steps == 0 || !m.completed() {
		return 0
	}
	return m.Seconds / float64(m.Steps)
}

// throughput returns the samples per second; 0: not known.
func (m measurement) throughput() float64 {
	if m.latency() == 0 {
		return 0
	}
	return float64(m.Batch) / m.latency()
}

// ended returns the measurement with the results from slurmdbd's record of its job. It returns false if the job has not
// ended, or if the summary of a node is missing and the job ended less than wait ago. The run time is the time for
// which the job held its slices, or without summaries the time of the job.
func (m measurement) ended(r slurm.Record, now time.Time, wait time.Duration) (measurement, bool, error) {
	if r.End.IsZero() {
		return m, false, nil
	}
	if slurm.TagValue(r.Comment, slurm.TagKey) == "" {
		return m, true, fmt.Errorf(
			"job %d got no slice: the script or --sbatch must request a GPU (--gres=gpu:1) "+
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
	return m, true, nil
}

// measurementsOf reads the measurements in a file.
func measurementsOf(path string) ([]measurement, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	runs, err := readMeasurements(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return runs, nil
}

// readMeasurements reads measurements in the format of --out. An error names the line.
func readMeasurements(from io.Reader) (runs []measurement, err error) {
	lines := bufio.NewScanner(from)
	for n := 1; lines.Scan(); n++ {
		m, err := parseMeasurement(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		runs = append(runs, m)
	}
	if lines.Err() == nil && len(runs) == 0 {
		return nil, errors.New("no measurements; `caelum profile-job --out` writes them")
	}
	return runs, lines.Err()
}

func parseMeasurement(text []byte) (measurement, error) {
	m := measurement{Util: -1}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&m)
	switch {
	case err != nil:
		return m, fmt.Errorf("not a measurement as `caelum profile-job --out` writes it: %w", err)
	case d.More():
		return m, errors.New("unexpected text after the measurement")
	case m.Profile == "" || m.State == "":
		return m, errors.New("profile or state is missing; state is a job state of Slurm, such as COMPLETED")
	case m.Seconds < 0 || m.completed() && m.Seconds == 0 || m.PeakMiB < 0 || m.Batch < 0 || m.Steps < 0 ||
		m.Util > 1 || m.Util < 0 && m.Util != -1:
		return m, errors.New("a value is out of range: seconds above 0, peak_mib, batch and steps at least 0, " +
			"util from 0 to 1 or -1")
	}
	return m, nil
}

// evaluation is the output of caelum profile-job, in its JSON form.
type evaluation struct {
	Board    string    `json:"board"`
	Runs     []result  `json:"runs"`
	Verdicts []verdict `json:"verdicts"`
}

// result is a measurement with the values that are calculated from it.
type result struct {
	measurement
	OutOfMemory bool `json:"out_of_memory,omitempty"`
	// Speed is relative to the largest profile on which the script completed with the same batch size and number of
	// steps; 0: not known.
	Speed      float64 `json:"speed,omitempty"`
	Latency    float64 `json:"latency,omitempty"`    // seconds per step
	Throughput float64 `json:"throughput,omitempty"` // samples per second
}

// verdict is the conclusion for a batch size, or for a script without batch sizes.
type verdict struct {
	Batch    int     `json:"batch,omitempty"`
	Tightest string  `json:"tightest,omitempty"` // the smallest profile on which it completed
	Choice   string  `json:"choice,omitempty"`   // the profile that DynaP chooses
	F        float64 `json:"f,omitempty"`        // DynaP's measure of Choice; higher is better
	Late     string  `json:"late,omitempty"`     // why no profile meets the deadline
}

// evaluate calculates results and verdicts for one batch size, or with batch 0 for each. The GPU model must have the
// profiles of all measurements.
func evaluate(b *mig.Model, runs []measurement, batch int, g predict.Goal) evaluation {
	j := evaluation{Board: b.Name}
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

// resultOf calculates the result of m, one of the runs.
func resultOf(b *mig.Model, m measurement, runs []measurement) result {
	s := result{measurement: m, OutOfMemory: m.outOfMemory(), Latency: m.latency(), Throughput: m.throughput()}
	same := completedWith(b, runs, m.Batch)
	same = slices.DeleteFunc(same, func(o measurement) bool { return o.Steps != m.Steps })
	if m.completed() && m.Seconds > 0 {
		s.Speed = same[len(same)-1].Seconds / m.Seconds
	}
	return s
}

// completedWith returns the completed runs with a batch size, those on smaller profiles first.
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

// decide returns the verdict for a batch size.
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

// short formats a number for a table: without decimals from 100 on, else with three significant digits. It returns "-"
// for 0, which is unknown.
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
	text += v.Tightest + " is the tightest profile that holds it"
	switch {
	case v.Choice != "":
		text += fmt.Sprintf("; DynaP's choice is %s, F = %.3f", v.Choice, v.F)
	case v.Late != "":
		text += "; " + v.Late
	}
	return text
}
