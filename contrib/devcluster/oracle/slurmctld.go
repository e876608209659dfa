package oracle

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// These expressions match the lines in slurmctld's log that record a change to a node's GRES or the start of a job (by
// the main scheduler, by backfill, or immediately for srun and salloc). slurmctld logs each line while it holds the
// lock for the change, so the times are exact. Since Slurm 26.05, backfill logs the start of a job only if DebugFlags
// contains Hetjob, and the line begins with "HETJOB: " (_start_job in backfill.c).
var (
	startLine = regexp.MustCompile(
		`^\[(\S+)\] (?:sched: Allocate JobId=(\S+) NodeList=(\S+) |` +
			`sched/backfill: _start_job: (?:HETJOB: )?Started JobId=(\S+) in \S+ on (\S+)$|` +
			`sched: _slurm_rpc_allocate_resources JobId=(\S+) NodeList=(\S+) )`,
	)
	submitted = regexp.MustCompile(`^\[(\S+)\] _slurm_rpc_submit_batch_job: JobId=(\d+) `)
	setLine   = regexp.MustCompile(`^\[(\S+)\] _update_node_gres: nodes (\S+) gres set to: (\S+)$`)
	rawID     = regexp.MustCompile(`\((\d+)\)$`) // slurmctld logs an array task as 4_1(6); its job id is 6
	hostRange = regexp.MustCompile(`^([^\[\],]*)\[([0-9,-]+)\]$`)
)

// Allocation describes the start of a job according to slurmctld's log.
type Allocation struct {
	Job   uint32
	Nodes []string
	At    int64
}

// SlurmctldLog holds the events in slurmctld's log.
type SlurmctldLog struct {
	Starts  []Allocation
	Sets    []Set
	Submits map[uint32]int64
}

// ReadSlurmctldLog parses slurmctld's log (SlurmctldDebug=verbose, LogTimeFormat=iso8601_ms). The argument zone is the
// time zone of the log, because the timestamps in the log do not include it.
func ReadSlurmctldLog(r io.Reader, zone *time.Location) (c SlurmctldLog, err error) {
	c.Submits = map[uint32]int64{}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if m := setLine.FindStringSubmatch(s.Text()); m != nil {
			at, err := stamp(m[1], zone)
			if err != nil {
				return c, err
			}
			for _, n := range hosts(m[2]) {
				c.Sets = append(c.Sets, Set{Node: n, Gres: m[3], At: at})
			}
		}
		if m := submitted.FindStringSubmatch(s.Text()); m != nil {
			at, err := stamp(m[1], zone)
			job, err2 := strconv.ParseUint(m[2], 10, 32)
			if err := errors.Join(err, err2); err != nil {
				return c, err
			}
			c.Submits[uint32(job)] = at
		}
		m := startLine.FindStringSubmatch(s.Text())
		if m == nil {
			continue
		}
		id, list := m[2]+m[4]+m[6], m[3]+m[5]+m[7]
		if list == "(null)" { // slurmctld did not start the srun or salloc job immediately
			continue
		}
		if raw := rawID.FindStringSubmatch(id); raw != nil {
			id = raw[1]
		}
		job, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return c, fmt.Errorf("couldn't parse slurmctld's log: %w in %.200s", err, s.Text())
		}
		at, err := stamp(m[1], zone)
		if err != nil {
			return c, err
		}
		c.Starts = append(c.Starts, Allocation{uint32(job), hosts(list), at})
	}
	return c, s.Err()
}

func stamp(text string, zone *time.Location) (int64, error) {
	t, err := time.ParseInLocation("2006-01-02T15:04:05.000", text, zone)
	if err != nil {
		return 0, fmt.Errorf("slurmctld's log: %w", err)
	}
	return t.UnixNano(), nil
}

// hosts expands host lists of the forms n1 and n[1-3,5]. slurmctld does not use any other forms for the nodes of a
// devcluster.
func hosts(list string) []string {
	m := hostRange.FindStringSubmatch(list)
	if m == nil {
		return strings.Split(list, ",")
	}
	var all []string
	for _, part := range strings.Split(m[2], ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		if !ranged {
			hi = lo
		}
		a, _ := strconv.Atoi(lo)
		b, _ := strconv.Atoi(hi)
		for ; a <= b; a++ {
			all = append(all, m[1]+strconv.Itoa(a))
		}
	}
	return all
}

// SacctFields holds the fields that ReadAccounting expects in the output of `sacct -a -D -X -n -P -o`, with
// SLURM_TIME_FORMAT=%s.
const SacctFields = "JobIDRaw,State,Start,End,NNodes,AllocTRES,AdminComment"

// Record is slurmdbd's record of a run of a job.
type Record struct {
	Job        uint32
	State      string
	Start, End int64
	Nodes      int
	Profiles   map[string]int // the sum over all of the run's nodes
	Sized      bool           // job_submit.lua chose the profile
}

// ReadAccounting parses sacct's output. It omits runs that never started.
func ReadAccounting(r io.Reader) ([]Record, error) {
	var all []Record
	s := bufio.NewScanner(r)
	for s.Scan() {
		f := strings.Split(s.Text(), "|")
		if len(f) != 7 {
			return nil, fmt.Errorf("sacct's line %q has %d fields, not 7", s.Text(), len(f))
		}
		start, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || f[5] == "" { // Unknown or None
			continue
		}
		job, err := strconv.ParseUint(f[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("sacct: %w", err)
		}
		rec := Record{
			Job:      uint32(job),
			State:    f[1],
			Start:    start * int64(time.Second),
			End:      Never,
			Profiles: map[string]int{},
			Sized:    strings.Contains(f[6], "caelum:sized="),
		}
		if end, err := strconv.ParseInt(f[3], 10, 64); err == nil {
			rec.End = end * int64(time.Second)
		}
		rec.Nodes, _ = strconv.Atoi(f[4])
		for _, t := range strings.Split(f[5], ",") {
			if typed, ok := strings.CutPrefix(t, "gres/mig:"); ok {
				profile, count, _ := strings.Cut(typed, "=")
				rec.Profiles[profile], _ = strconv.Atoi(count)
			}
		}
		all = append(all, rec)
	}
	return all, s.Err()
}

// Account joins slurmctld's log with the accounting data. The log contains the exact times, and the accounting data
// contain the allocated GRES. Both list the runs of a job in the order in which they started.
func Account(starts []Allocation, records []Record) ([]Start, error) {
	runs := map[uint32][]Record{}
	for _, rec := range records {
		runs[rec.Job] = append(runs[rec.Job], rec)
	}
	for _, r := range runs {
		slices.SortStableFunc(r, func(a, b Record) int { return int((a.Start - b.Start) / int64(time.Second)) })
	}
	var all []Start
	seen := map[uint32]bool{}
	for _, a := range starts {
		if len(runs[a.Job]) == 0 {
			return nil, fmt.Errorf(
				"job %d started at %v according to slurmctld's log, but sacct shows no run with that start time",
				a.Job,
				time.Unix(0, a.At),
			)
		}
		rec := runs[a.Job][0]
		runs[a.Job] = runs[a.Job][1:]
		if d := a.At - rec.Start; d < -int64(2*time.Second) || d > int64(2*time.Second) {
			return nil, fmt.Errorf(
				"job %d started at %v according to slurmctld's log, but at %v according to sacct",
				a.Job,
				time.Unix(0, a.At),
				time.Unix(0, rec.Start),
			)
		}
		again := seen[a.Job]
		seen[a.Job] = true
		for _, node := range a.Nodes {
			per := map[string]int{}
			for p, n := range rec.Profiles {
				per[p] = n / len(a.Nodes)
			}
			all = append(all, Start{
				Job: a.Job, Requeued: again, Node: node, At: a.At, End: rec.End, State: rec.State, Profiles: per,
				Sized: rec.Sized,
			})
		}
	}
	for job, r := range runs {
		if len(r) > 0 {
			return nil, fmt.Errorf("sacct shows %d runs of job %d that are not in slurmctld's log", len(r), job)
		}
	}
	return all, nil
}
