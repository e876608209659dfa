package usage

import (
	"time"

	"caelum/internal/core/predict"
	"caelum/internal/node/api"
)

const (
	// maxReporters limits the number of a job's processes whose reports are stored separately.
	maxReporters = 64
	// oomRecent is the maximum time between an out-of-memory error and the last report from the same process. If the
	// process kept running for longer than that, it must have handled the error, so the error does not count as
	// evidence.
	oomRecent = 30 * time.Second
	// reportValid is the time for which a report is assumed to describe the memory of its process. If no other report
	// follows, the process has probably ended.
	reportValid = time.Minute
	// reportEvery is the minimum time between two reports that the Monitor accepts from the same process.
	reportEvery = time.Second
)

// reporter is a process that reports its allocator's memory.
type reporter struct {
	last     time.Duration // time of CLOCK_MONOTONIC at the last report
	ooms     int           // the number of out-of-memory errors in the last report
	failedAt time.Duration // time of CLOCK_MONOTONIC at the report in which the number last grew; 0 if it never grew
	uuid     string        // the MIG device of the slice

	peak, slack int64 // the highest allocated memory, and the memory that the allocator could return, in bytes

	first, now progress // the first and the last report that contained an iteration
}

// progress is the iteration that a process had reached at a time of CLOCK_MONOTONIC.
type progress struct {
	at                    time.Duration
	iteration, iterations int64
}

// Report stores a report from one of a job's processes. It returns false if the process reports too often, or if too
// many of the job's processes report. A report with a new out-of-memory error is never rejected for arriving too early.
func (m *Monitor) Report(job uint32, pid int, r api.MemoryReport) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, now := m.open[job], m.Clock()
	if o == nil {
		return true // the job's usage is not observed
	}
	p := o.reporters[pid]
	switch {
	case p == nil && len(o.reporters) >= maxReporters:
		return false
	case p == nil:
		if o.reporters == nil {
			o.reporters = map[int]*reporter{}
		}
		p = &reporter{}
		o.reporters[pid] = p
	case now-p.last < reportEvery && r.OOMs <= p.ooms:
		return false
	}
	if r.OOMs > p.ooms {
		p.failedAt = now
	}
	p.last, p.ooms, p.uuid = now, r.OOMs, r.UUID
	p.peak = max(p.peak, r.PeakAllocated)
	p.slack = max(r.Reserved-p.peak-r.Unreleasable, 0)
	if r.Iteration > 0 {
		p.now = progress{now, r.Iteration, r.Iterations}
		if p.first.at == 0 || r.Iteration < p.first.iteration { // a new training loop has begun
			p.first = p.now
		}
	}
	return true
}

// slackMiB returns the memory on a slice that the job's allocators could return to the driver, according to their last
// reports. An allocator returns this memory before an allocation fails, so it is not part of the job's need.
func (o *observation) slackMiB(uuid string, now time.Duration) float64 {
	slack := int64(0)
	for _, p := range o.reporters {
		if p.uuid == uuid && now-p.last <= reportValid {
			slack += p.slack
		}
	}
	return float64(slack) / (1 << 20)
}

// OutOfMemory reports whether one of the job's processes reported an out-of-memory error of its allocator shortly
// before its last report.
func (m *Monitor) OutOfMemory(job uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.open[job]
	if o == nil {
		return false
	}
	for _, p := range o.reporters {
		if p.failedAt > 0 && p.last-p.failedAt <= oomRecent {
			return true
		}
	}
	return false
}

// NoteXid records an Xid error on one of the job's slices. It is included in the run's summary.
func (m *Monitor) NoteXid(job uint32, code int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.open[job]; o != nil {
		o.Run.Xids, o.stored = predict.AddXid(o.Run.Xids, code), false
	}
}

// MarkEnd records why the agent is ending the job's current run: predict.EndOOM or predict.EndForeseen. foreseenMiB is
// the forecast peak, or 0. Both are included in the run's summary. MarkEnd must be called before End.
func (m *Monitor) MarkEnd(job uint32, end string, foreseenMiB float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.open[job]; o != nil {
		o.Run.End, o.Run.ForeseenMiB, o.stored = end, foreseenMiB, false
		m.storeSoon()
	}
}
