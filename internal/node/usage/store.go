package usage

import (
	"context"
	"encoding/json"
	"maps"
	"time"
)

// storeInterval is the time between writes of all open observations. If the agent is killed, it loses at most the
// samples from the last storeInterval.
const storeInterval = time.Minute

// maxEnded limits the number of finished runs that are kept in memory while the repository cannot be used. Together,
// they occupy about 3 MB.
const maxEnded = 10000

// SetRepository sets the repository in which runs are stored and the client with which their summaries are written to
// slurmdbd. It must be called before Start. If a run ended while no agent was running, the Monitor stores the usage
// that an earlier agent observed.
func (m *Monitor) SetRepository(repo Repository, accounting Accounting) {
	m.repo, m.accounting = repo, accounting
	m.restarts = restarts{window: usualMemory + clockSlack, look: m.Now()}
	m.takeOver()
	m.countWaiting()
}

// takeOver continues the observations that an earlier agent has stored in the repository. It returns false if the
// repository cannot be read. The caller must then try again later, and must not write to the repository before
// takeOver has returned true, because a write would replace these observations.
func (m *Monitor) takeOver() bool {
	if m.tookOver {
		return true
	}
	left, err := m.repo.Observations()
	if m.reportRepository(err); err != nil {
		return false
	}
	m.tookOver = true
	for _, l := range left {
		o, err := parseObservation(l.Text)
		if err != nil {
			m.Log.WithError(err).
				WithField("job", l.Job).
				Warn("couldn't continue an earlier agent's observation of a job; started a new observation")
			m.reportRepository(m.repo.Dismiss(l.Job, l.Restart))
			continue
		}
		m.takeOverRun(l, o)
	}
	return true
}

// takeOverRun continues an earlier agent's observation of a run, or ends it if the run has already ended.
func (m *Monitor) takeOverRun(stored Observation, o *observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.open[stored.Job]; now != nil && now.Run.Restart == stored.Restart {
		now.continues(o)
		return
	}
	m.queue(o, o.Seen)
}

// queue adds a finished run to the queue for the repository. If maxEnded runs are already waiting, it removes the
// oldest one. The caller holds m.mu.
func (m *Monitor) queue(o *observation, end time.Duration) {
	if m.repo == nil {
		return
	}
	if len(m.ended) >= maxEnded {
		m.Log.WithField("job", m.ended[0].Job).
			Warn("the repository cannot be used; the usage of this job is not stored")
		m.ended = m.ended[1:]
	}
	m.ended = append(m.ended, o.run(end))
	m.storeSoon()
}

// storeSoon notifies the storer.
func (m *Monitor) storeSoon() {
	select {
	case m.toStore <- struct{}{}:
	default: // the storer has already been notified
	}
}

// storer writes observations and runs to the repository, so that no prolog, epilog or sampler has to wait for a disk.
func (m *Monitor) storer(ctx context.Context) {
	tick := time.NewTicker(storeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.toStore:
			m.Flush(false)
		case <-tick.C:
			m.Flush(true)
			m.prune()
		}
	}
}

// pruneEvery is the time between two calls to Prune. A sync also prunes, but syncs only run on slurmctld's host.
const pruneEvery = 24 * time.Hour

// prune limits the size of the repository. While slurmdbd does not answer, it keeps the runs, because their summaries
// have not been written.
func (m *Monitor) prune() {
	if now := m.Now(); now.Sub(m.pruned).Abs() >= pruneEvery && m.tookOver && !m.dbdFailed.Load() {
		_, err := m.repo.Prune(now)
		m.reportRepository(err)
		m.pruned = now
	}
}

// Flush writes the finished runs and the open observations to the repository: all open observations if all is true;
// otherwise, only those that are not in the repository yet. If a run cannot be written, Flush logs the error and
// discards the run, so that it neither delays jobs nor occupies memory on the node.
func (m *Monitor) Flush(all bool) {
	if !m.takeOver() {
		return
	}
	m.mu.Lock()
	ended := m.ended
	m.ended = nil
	var open []Observation
	for o := range maps.Values(m.open) {
		if o.stored && !all {
			continue
		}
		o.stored = true
		text, err := json.Marshal(o)
		if err != nil {
			panic(err) // an observation contains only numbers and strings
		}
		open = append(open, Observation{Job: o.Run.Job, Restart: o.Run.Restart, Text: text})
	}
	m.mu.Unlock()
	for _, run := range ended {
		m.reportRepository(m.repo.Ended(run, m.Now()))
	}
	for _, o := range open {
		m.reportRepository(m.repo.Observe(o))
	}
	if len(ended) > 0 || all {
		m.countWaiting() // this call also detects that the repository was damaged or replaced
	}
	if len(ended) > 0 {
		select {
		case m.toRecord <- struct{}{}:
		default: // the recorder has already been notified
		}
	}
}

// reportRepository logs the repository's first error, and no further errors until the repository works again.
func (m *Monitor) reportRepository(err error) {
	if failed := err != nil; m.repoFailed.Swap(failed) != failed && failed {
		m.Log.WithError(err).
			Error("couldn't store the usage of jobs; jobs are not affected, but predictions do not include " +
				"their runs until the repository works again")
	}
}

// countWaiting counts the summaries that are not yet stored in slurmdbd, for `caelum status`.
func (m *Monitor) countWaiting() {
	n, err := m.repo.Waiting()
	m.reportRepository(err)
	if err == nil {
		m.waiting.Store(int64(n))
	}
}
