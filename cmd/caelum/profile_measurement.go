package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// measurement is one run of a script on one profile. The files given by --out and --from contain one measurement per
// line, as JSON.
type measurement struct {
	Profile string  `json:"profile"`
	Batch   int     `json:"batch,omitempty"` // 0 if the script has no batch size
	Steps   int     `json:"steps,omitempty"` // 0 if unknown
	Seconds float64 `json:"seconds"`
	PeakMiB float64 `json:"peak_mib,omitempty"` // the peak memory of one slice; 0 if unknown
	Util    float64 `json:"util"`               // from 0 to 1; -1 if unknown
	State   string  `json:"state"`              // the job's state in Slurm
	Job     uint32  `json:"job,omitempty"`
}

// label returns the profile and the batch size, formatted for messages.
func (m measurement) label() string {
	if m.Batch == 0 {
		return m.Profile
	}
	return fmt.Sprintf("%s, batch %d", m.Profile, m.Batch)
}

func (m measurement) completed() bool { return m.State == "COMPLETED" }

// outOfMemory reports whether the run failed because its slice had too little memory. It applies the same rule as the
// predictions.
func (m measurement) outOfMemory() bool {
	return predict.Run{Profile: m.Profile, PeakMiB: m.PeakMiB, State: m.State}.OutOfMemory()
}

// latency returns the duration of a step in seconds, or 0 if it is unknown.
func (m measurement) latency() float64 {
	if m.Steps == 0 || !m.completed() {
		return 0
	}
	return m.Seconds / float64(m.Steps)
}

// throughput returns the number of samples per second, or 0 if it is unknown.
func (m measurement) throughput() float64 {
	if m.latency() == 0 {
		return 0
	}
	return float64(m.Batch) / m.latency()
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

// readMeasurements reads measurements in the format of --out. If a line is invalid, the error includes the line number.
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
		return nil, errors.New("the file contains no measurements; `caelum profile-job --out` writes measurements")
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
		return m, fmt.Errorf("the line is not a measurement written by `caelum profile-job --out`: %w", err)
	case d.More():
		return m, errors.New("unexpected text after the measurement")
	case m.Profile == "" || m.State == "":
		return m, errors.New("profile or state is missing; state must be a Slurm job state, such as COMPLETED")
	case m.Seconds < 0 || m.completed() && m.Seconds == 0 || m.PeakMiB < 0 || m.Batch < 0 || m.Steps < 0 ||
		m.Util > 1 || m.Util < 0 && m.Util != -1:
		return m, errors.New("a value is out of range; seconds must be above 0, peak_mib, batch and steps must be at " +
			"least 0, and util must be -1 or from 0 to 1")
	}
	return m, nil
}
