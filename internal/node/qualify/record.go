package qualify

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/version"
)

// Record is what a site can send back. It has no host names, serial numbers or UUIDs.
type Record struct {
	Caelum  string   `json:"caelum"`
	Driver  string   `json:"driver"`
	Verdict string   `json:"verdict"`
	Rows    []Row    `json:"rows"`
	Records []Fact   `json:"records"`
	Times   []Timing `json:"times"`
}

// Fact is one recorded fact of a GPU. The kinds and the form of Data are those of the records that the emulator's
// conformance test replays: lgip, lgipp, lgi, ci, devmem, caps, error and latency.
type Fact struct {
	ID     string `json:"id"`
	Source string `json:"source"`
	GPU    string `json:"gpu"`
	Driver string `json:"driver"`
	Kind   string `json:"kind"`
	Data   any    `json:"data"`
	Note   string `json:"note"`
}

// Timing holds the durations of one kind of call, in milliseconds.
type Timing struct {
	Call   string  `json:"call"`
	Count  int     `json:"count"`
	Median float64 `json:"median_ms"`
	Most   float64 `json:"most_ms"`
}

// facts collects what a run has seen on one GPU. Only one goroutine uses a GPU at a time.
type facts struct {
	lgip   [][]any
	lgipp  map[string][]any
	lgi    [][][]any // groups of instances that can exist at the same time
	ci     [][]any
	devmem [][]any
	caps   map[string]int
	errors map[string]string
	times  map[string][]time.Duration
}

func newFacts() facts {
	return facts{lgipp: map[string][]any{}, caps: map[string]int{}, errors: map[string]string{},
		times: map[string][]time.Duration{}}
}

// placed adds an instance's id. The instances of a profile that exceed its limit form another group.
func (f *facts) placed(p profile, gi, start int) {
	row := []any{p.title(), gi, start, p.size}
	if k := len(f.lgi) - 1; k >= 0 && f.lgi[k][0][0] == p.title() && len(f.lgi[k]) < int(p.info.InstanceCount) {
		f.lgi[k] = append(f.lgi[k], row)
		return
	}
	f.lgi = append(f.lgi, [][]any{row})
}

// resources adds the compute instance profile, the SMs and the memory of a slice, once for each profile.
func (f *facts) resources(profile string, ci, sms uint32, mib uint64) {
	if slices.ContainsFunc(f.ci, func(row []any) bool { return row[0] == profile }) {
		return
	}
	f.ci = append(f.ci, []any{profile, ci, sms})
	f.devmem = append(f.devmem, []any{profile, mib, sms})
}

// modelName returns the name of a GPU model in Caelum's table, or the driver's name.
func modelName(device string) string {
	for _, m := range mig.Models() {
		if m.Device == device {
			return m.Name
		}
	}
	return device
}

// record adds the facts of a GPU.
func (r *Report) record(c *card) {
	r.mu.Lock()
	defer r.mu.Unlock()
	add := func(kind string, size int, data any, note string) {
		if size > 0 {
			r.Record.Records = append(r.Record.Records, Fact{
				ID: fmt.Sprintf("q%02d", len(r.Record.Records)+1), Source: "caelumd qualify",
				GPU: modelName(c.name), Driver: r.Record.Driver, Kind: kind, Data: data, Note: note,
			})
		}
	}
	f := c.facts
	note := fmt.Sprintf("GPU %d", c.index)
	add("lgip", len(f.lgip), f.lgip, note)
	add("lgipp", len(f.lgipp), f.lgipp, note)
	for _, rows := range f.lgi { // a replay creates the instances of one fact beside each other
		add("lgi", len(rows), rows, note)
	}
	add("ci", len(f.ci), f.ci, note)
	add("devmem", len(f.devmem), f.devmem, note)
	add("caps", len(f.caps), f.caps, note)
	add("error", len(f.errors), f.errors, note)
	latency := map[string]float64{}
	for _, call := range slices.Sorted(maps.Keys(f.times)) {
		t := timing(call, f.times[call])
		latency[call] = t.Median
		r.Record.Times = append(r.Record.Times, t)
	}
	add("latency", len(latency), latency, note+"; medians in milliseconds")
}

func timing(call string, all []time.Duration) Timing {
	all = slices.Sorted(slices.Values(all))
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return Timing{Call: call, Count: len(all), Median: ms(all[len(all)/2]), Most: ms(all[len(all)-1])}
}

// Write writes the record to a file, and replaces a symbolic link with that name, which may be another user's.
func (r Record) Write(path string) error {
	r.Caelum = version.Version
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".qualify-*")
	if err != nil {
		return fmt.Errorf("couldn't write the record: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("couldn't write the record: %w", err)
	}
	return os.Rename(f.Name(), path)
}
