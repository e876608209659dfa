package oracle

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Never is the end of an interval that has not ended.
const Never = math.MaxInt64

// Journal holds the events in an agent's log (log_format: json).
type Journal struct {
	Writes   []Write
	Leases   []Lease
	Refusals []Refusal
	Excesses []Excess
	GaveUp   int
}

// Write is an update of the node's GRES by its agent.
type Write struct {
	Phase string // lower or raise
	Gres  string
	Total map[string]int // gres/mig counts by type, including closed
	Used  map[string]int
	// Read is the time at which the agent read slurmctld's state before the write. At and Done are the times at which
	// the write started and ended.
	Read, At, Done int64
	// Failed is true if the write returned an error. slurmctld may still have applied it.
	Failed bool
	// ExtraOnly is true if the write did not contain the counts, because slurmctld already had them.
	ExtraOnly bool
}

// Lease describes a slice that a job held between From and To, including the time during which leftover processes were
// still using it.
type Lease struct {
	Job      uint32
	Restart  int
	GPU      int
	UUID     string
	Profile  string
	Start    int // units
	From, To int64
}

// Refusal describes a run whose lease request the agent rejected.
type Refusal struct {
	Job    uint32
	At     int64
	Reason string
}

// Excess describes a pass in which the agent found that slurmctld counted more slices as used than it had allocated.
type Excess struct {
	At     int64
	Counts map[string]int // by profile
}

// line is a line of the agent's log, with all fields used by ReadJournal.
type line struct {
	Msg, Time, Phase, Gres, Used, UUID, Error string
	Read, At, Done                            int64
	Job                                       uint32
	Restart, GPU                              int
	Now                                       map[string]int
	ExtraOnly                                 bool `json:"extra_only"`
}

// ReadJournal parses an agent's log. Lines that are not JSON come from the devcluster's keeper and are ignored, but it
// is an error if a line of a known kind is malformed.
func ReadJournal(r io.Reader) (Journal, error) {
	j := journalReader{open: map[uint32][]int{}, inUse: map[string]int{}}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if !strings.HasPrefix(s.Text(), "{") {
			continue
		}
		if err := j.add(s.Bytes()); err != nil {
			return j.Journal, fmt.Errorf("couldn't parse the agent's log: %w in %.200s", err, s.Text())
		}
	}
	return j.Journal, s.Err()
}

// journalReader is the state of ReadJournal between two lines. Leases are represented by their indices in
// Journal.Leases.
type journalReader struct {
	Journal
	open  map[uint32][]int // by job
	inUse map[string]int   // leases with leftover processes, by "GPU profile at start"
}

// add adds the event in a line to the journal, unless it is of an unknown kind.
func (j *journalReader) add(text []byte) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	stamp, err := time.Parse(time.RFC3339Nano, l.Time)
	if err != nil {
		return err
	}
	at := stamp.UnixNano()
	switch {
	case l.Msg == "published" || l.Msg == "couldn't write the offers":
		return j.written(l, at)
	case strings.HasPrefix(l.Msg, "leased "):
		return j.leased(l, at)
	case l.Msg == "released" && l.Job != 0:
		j.released(l.Job, at)
	case strings.Contains(l.Msg, " is in use by processes "):
		for _, k := range j.open[l.Job] {
			if j.Leases[k].UUID == l.UUID {
				j.inUse[fmt.Sprintf("%d %s at %d", l.GPU, j.Leases[k].Profile, j.Leases[k].Start)] = k
			}
		}
	case strings.HasSuffix(l.Msg, " is no longer in use"):
		key := fmt.Sprintf("%d %s", l.GPU, strings.TrimSuffix(l.Msg, " is no longer in use"))
		if k, ok := j.inUse[key]; ok {
			j.Leases[k].To = at
			delete(j.inUse, key)
		}
	case strings.HasPrefix(l.Msg, "no slice: "):
		j.Refusals = append(j.Refusals, Refusal{l.Job, at, strings.TrimPrefix(l.Msg, "no slice: ")})
	case strings.HasPrefix(l.Msg, "slurmctld counts as used some slices that no job holds"):
		j.Excesses = append(j.Excesses, Excess{at, l.Now})
	case strings.HasPrefix(l.Msg, "couldn't publish") && strings.Contains(l.Error, "jobs kept starting"):
		j.GaveUp++
	}
	return nil
}

func (j *journalReader) written(l line, at int64) error {
	if l.Read == 0 || l.At == 0 {
		return errors.New("the line about a write contains no times")
	}
	// slurmctld may have applied a failed write, so it is checked like any other write.
	failed := l.Done == 0
	if failed {
		l.Done = at
	}
	j.Writes = append(j.Writes, Write{
		Phase:     l.Phase,
		Gres:      l.Gres,
		Total:     slicesOf(l.Gres),
		Used:      slicesOf(l.Used),
		Read:      l.Read,
		At:        l.At,
		Done:      l.Done,
		Failed:    failed,
		ExtraOnly: l.ExtraOnly,
	})
	return nil
}

func (j *journalReader) leased(l line, at int64) error {
	lease := Lease{Job: l.Job, Restart: l.Restart, GPU: l.GPU, UUID: l.UUID, From: at, To: Never}
	if _, err := fmt.Sscanf(l.Msg, "leased %s at %d", &lease.Profile, &lease.Start); err != nil {
		return err
	}
	j.open[l.Job] = append(j.open[l.Job], len(j.Leases))
	j.Leases = append(j.Leases, lease)
	return nil
}

// released ends a job's leases, except for those whose slices have leftover processes.
func (j *journalReader) released(job uint32, at int64) {
	for _, k := range j.open[job] {
		if !slices.Contains(slices.Collect(maps.Values(j.inUse)), k) {
			j.Leases[k].To = at
		}
	}
	delete(j.open, job)
}

// slicesOf returns the gres/mig counts by type in a GRES list written by Slurm or the agent, such as
// gpu:a100:2(IDX:0,2),mig:1g.5gb:1.
func slicesOf(list string) map[string]int {
	n := map[string]int{}
	for _, item := range strings.Split(list, ",") {
		item, _, _ = strings.Cut(item, "(")
		f := strings.Split(item, ":")
		if len(f) == 3 && f[0] == "mig" {
			if count, err := strconv.Atoi(f[2]); err == nil {
				n[f[1]] += count
			}
		}
	}
	return n
}
