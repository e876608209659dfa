package agent

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// keepInterval is how often the open observations are written: so much of a run is lost if the agent is killed.
const keepInterval = time.Minute

// mostEnded is how many runs wait in memory for a repository that cannot be opened.
const mostEnded = 1000

// Keep gives the agent a repository for what it learns of jobs, and slurmdbd to write their summaries into. It is
// called before Run, if at all. Runs that ended while no agent was there end now, with what was seen of them.
func (a *Agent) Keep(repo Repository, accounting Accounting) {
	a.repo, a.accounting = repo, accounting
	a.takeOver()
	a.countWaiting()
}

// takeOver goes on with the observations that an earlier agent left; false: the repository cannot be read, and is to be
// tried again before anything is written over them.
func (a *Agent) takeOver() bool {
	if a.tookOver {
		return true
	}
	left, err := a.repo.Observations()
	if a.reportRepository(err); err != nil {
		return false
	}
	a.tookOver = true
	a.seen.mu.Lock()
	defer a.seen.mu.Unlock()
	for _, l := range left {
		o, err := parseObservation(l.Text)
		if err != nil {
			a.log.WithError(err).
				WithField("job", l.Job).
				Warn("couldn't go on with what was seen of a job; beginning anew")
			a.reportRepository(a.repo.Dismiss(l.Job, l.Restart))
			continue
		}
		if now := a.seen.open[l.Job]; now != nil && now.Run.Restart == l.Restart {
			now.continues(o)
			continue
		}
		a.end(o, o.Seen)
	}
	return true
}

// continues takes over what an earlier agent saw of the same run.
func (o *observation) continues(earlier *observation) {
	o.Run, o.Began, o.Seen, o.left = earlier.Run, earlier.Began, earlier.Seen, earlier
	for _, u := range o.Slices {
		k := slices.IndexFunc(earlier.Slices, func(e *usage) bool { return e.UUID == u.UUID })
		if k >= 0 {
			u.continues(earlier.Slices[k])
		}
	}
}

// keepSoon wakes the keeper.
func (a *Agent) keepSoon() {
	select {
	case a.toKeep <- struct{}{}:
	default: // it will come
	}
}

// keeper writes to the repository what prologs, epilogs and samplers leave, so that none of them waits for a disk.
func (a *Agent) keeper(ctx context.Context) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.toKeep:
			a.keep(false)
		case <-tick.C:
			a.keep(true)
		}
	}
}

// keep writes the runs that have ended, and the observations that the repository does not have yet, or all of them. A
// run that cannot be written is given up: nothing that is learned is worth a job's time or the node's memory.
func (a *Agent) keep(all bool) {
	if !a.takeOver() {
		a.seen.mu.Lock()
		a.seen.ended = a.seen.ended[max(len(a.seen.ended)-mostEnded, 0):]
		a.seen.mu.Unlock()
		return
	}
	a.seen.mu.Lock()
	ended := a.seen.ended
	a.seen.ended = nil
	var open []Observation
	for o := range maps.Values(a.seen.open) {
		if o.kept && !all {
			continue
		}
		o.kept = true
		text, err := json.Marshal(o)
		if err != nil {
			panic(err) // numbers and texts
		}
		open = append(open, Observation{Job: o.Run.Job, Restart: o.Run.Restart, Text: text})
	}
	a.seen.mu.Unlock()
	for _, run := range ended {
		a.reportRepository(a.repo.Ended(run, a.now()))
	}
	for _, o := range open {
		a.reportRepository(a.repo.Observe(o))
	}
	if len(ended) > 0 || all {
		a.countWaiting() // and a repository that somebody has spoilt or replaced meanwhile is noticed
	}
	if len(ended) > 0 {
		select {
		case a.toRecord <- struct{}{}:
		default: // the recorder will come
		}
	}
}

// reportRepository logs a failure of the repository, once until it works again.
func (a *Agent) reportRepository(err error) {
	if failed := err != nil; a.repoFailed.Swap(failed) != failed && failed {
		a.log.WithError(err).
			Error("couldn't keep what jobs use; they run as ever, and nothing is learned of them until this is put right")
	}
}

// countWaiting notes for `caelum status` how many summaries slurmdbd does not have yet.
func (a *Agent) countWaiting() {
	n, err := a.repo.Waiting()
	a.reportRepository(err)
	if err == nil {
		a.waiting.Store(int64(n))
	}
}
