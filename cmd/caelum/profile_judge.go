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

// What caelum profile-job makes of its measurements.

// measurement is one run of a script on one profile, also as a line of --out and --from.
type measurement struct {
	Profile string  `json:"profile"`
	Batch   int     `json:"batch,omitempty"` // 0: the script has none
	Steps   int     `json:"steps,omitempty"` // 0: nobody has said
	Seconds float64 `json:"seconds"`
	PeakMiB float64 `json:"peak_mib,omitempty"` // of one slice; 0: not known
	Util    float64 `json:"util"`               // from 0 to 1; -1: not known
	State   string  `json:"state"`              // Slurm's
	Job     uint32  `json:"job,omitempty"`
}

func (m measurement) what() string {
	if m.Batch == 0 {
		return m.Profile
	}
	return fmt.Sprintf("%s, batch %d", m.Profile, m.Batch)
}

func (m measurement) completed() bool { return m.State == "COMPLETED" }

// outOfMemory is how the prediction takes it, too.
func (m measurement) outOfMemory() bool {
	return predict.Run{Profile: m.Profile, PeakMiB: m.PeakMiB, State: m.State}.OutOfMemory()
}

// latency is the seconds of a step; 0: not known.
func (m measurement) latency() float64 {
	if m.Steps == 0 || !m.completed() {
		return 0
	}
	return m.Seconds / float64(m.Steps)
}

// throughput is samples in a second; 0: not known.
func (m measurement) throughput() float64 {
	if m.latency() == 0 {
		return 0
	}
	return float64(m.Batch) / m.latency()
}

// ended is the measurement with what slurmdbd has of its job. False: it is not over, or one of its nodes may still
// write what it used, for which so long is waited. The time that it held its slices counts, else that of the job.
func (m measurement) ended(r slurm.Record, now time.Time, wait time.Duration) (measurement, bool, error) {
	if r.End.IsZero() {
		return m, false, nil
	}
	if slurm.TagValue(r.Comment, slurm.TagKey) == "" {
		return m, true, fmt.Errorf(
			"job %d got no slice: script or --sbatch must ask for one (--gres=gpu:1), in one of Caelum's partitions",
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

// readMeasurements reads what --out has written, or somebody else in the same form. The error names the line.
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
		return nil, errors.New("it is empty: `caelum profile-job --out` fills it")
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
		return m, fmt.Errorf("no measurement as `caelum profile-job --out` writes it: %w", err)
	case d.More():
		return m, errors.New("something follows the measurement")
	case m.Profile == "" || m.State == "":
		return m, errors.New("a measurement has a profile and a state (COMPLETED, or another of Slurm's)")
	case m.Seconds < 0 || m.completed() && m.Seconds == 0 || m.PeakMiB < 0 || m.Batch < 0 || m.Steps < 0 || m.Util > 1 || m.Util < 0 && m.Util != -1:
		return m, errors.New("seconds are above 0, peak_mib, batch and steps not below 0, util from 0 to 1, or -1")
	}
	return m, nil
}

// judged is the answer, also as JSON.
type judged struct {
	Board    string    `json:"board"`
	Runs     []seen    `json:"runs"`
	Verdicts []verdict `json:"verdicts"`
}

// seen is a measurement with what follows from it.
type seen struct {
	measurement
	OutOfMemory bool `json:"out_of_memory,omitempty"`
	// compared with the largest profile on which the same completed; 0: not known
	Speed      float64 `json:"speed,omitempty"`
	Latency    float64 `json:"latency,omitempty"`    // seconds of a step
	Throughput float64 `json:"throughput,omitempty"` // samples a second
}

// verdict is what is said of a batch size, or of a script that has none.
type verdict struct {
	Batch    int     `json:"batch,omitempty"`
	Tightest string  `json:"tightest,omitempty"` // the smallest profile on which it completed
	Choice   string  `json:"choice,omitempty"`   // DynaP's
	F        float64 `json:"f,omitempty"`        // what that is worth
	Late     string  `json:"late,omitempty"`     // why no profile meets the deadline
}

// judge says what the measurements mean on a GPU model that has all of their profiles, for one batch size or, with 0,
// each.
func judge(b *mig.Model, runs []measurement, batch int, g predict.Goal) judged {
	j := judged{Board: b.Name}
	var batches []int
	for _, m := range runs {
		if batch == 0 || m.Batch == batch {
			batches = append(batches, m.Batch)
			j.Runs = append(j.Runs, see(b, m, runs))
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

func see(b *mig.Model, m measurement, runs []measurement) seen {
	s := seen{measurement: m, OutOfMemory: m.outOfMemory(), Latency: m.latency(), Throughput: m.throughput()}
	same := completedWith(b, runs, m.Batch)
	same = slices.DeleteFunc(same, func(o measurement) bool { return o.Steps != m.Steps })
	if m.completed() && m.Seconds > 0 {
		s.Speed = same[len(same)-1].Seconds / m.Seconds
	}
	return s
}

// completedWith are the complete runs with a batch size, on the smallest profile first.
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

func decide(b *mig.Model, runs []measurement, batch int, g predict.Goal) verdict {
	v := verdict{Batch: batch}
	done := completedWith(b, runs, batch)
	if len(done) == 0 {
		return v
	}
	v.Tightest = done[0].Profile
	if done = slices.DeleteFunc(done, func(m measurement) bool { return m.latency() == 0 }); batch == 0 ||
		len(done) == 0 {
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
		"no step is done within %g s: the shortest takes %s s, on %s",
		g.Deadline,
		short(best.latency()),
		best.Profile,
	)
	return v
}

func printJudged(w io.Writer, j judged) error {
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

// short is a number as a table has it: whole from 100 on, else with three digits that count; 0 is not known.
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
		return text + "no run completed, so none says which profile holds it"
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
