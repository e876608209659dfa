package agent

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// keepInterval is the time between two writes of all open observations. If the agent is killed, the observations lose
// at most this time.
const keepInterval = time.Minute

// maxUnstored limits how many ended runs wait in memory for a repository that cannot be read. Older runs are dropped.
const maxUnstored = 1000

// Keep gives the agent a repository for the runs of jobs, and access to slurmdbd for their summaries. It must be called
// before Run, or not at all. Runs that ended while no agent was running are stored with the usage that an earlier agent
// observed.
func (a *Agent) Keep(repo Repository, accounting Accounting) {
	a.repo, a.accounting = repo, accounting
	a.takeOver()
	a.countWaiting()
}

// takeOver continues the observations that an earlier agent left in the repository. It returns false if the repository
// cannot be read. The caller must then write nothing into the repository, which would replace these observations, and
// try again later.
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
				Warn("couldn't continue an earlier agent's observation of a job; started a new one")
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

// continues adds an earlier agent's observation of the same run.
func (o *observation) continues(earlier *observation) {
	o.Run, o.Began, o.Seen, o.left = earlier.Run, earlier.Began, earlier.Seen, earlier
	for _, u := range o.Slices {
		k := slices.IndexFunc(earlier.Slices, func(e *usage) bool { return e.UUID == u.UUID })
		if k >= 0 {
			u.continues(earlier.Slices[k])
		}
	}
}

// keepSoon notifies the keeper.
func (a *Agent) keepSoon() {
	select {
	case a.toKeep <- struct{}{}:
	default: // the keeper is notified already
	}
}

// keeper writes the observations and runs of prologs, epilogs and samplers into the repository, so that none of these
// waits for a disk.
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

// keep writes the ended runs, and the open observations that the repository does not have yet, or all open
// observations. A run that cannot be written is dropped, so that it costs neither time of jobs nor memory of the node.
func (a *Agent) keep(all bool) {
	if !a.takeOver() {
		a.seen.mu.Lock()
		a.seen.ended = a.seen.ended[max(len(a.seen.ended)-maxUnstored, 0):]
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
			panic(err) // an observation has only numbers and strings
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
		a.countWaiting() // this also notices a repository that was damaged or replaced
	}
	if len(ended) > 0 {
		select {
		case a.toRecord <- struct{}{}:
		default: // the recorder is notified already
		}
	}
}

// reportRepository logs a failure of the repository, once until the repository works again.
func (a *Agent) reportRepository(err error) {
	if failed := err != nil; a.repoFailed.Swap(failed) != failed && failed {
		a.log.WithError(err).
			Error("couldn't store the usage of jobs; jobs are not affected, but Caelum learns nothing from them " +
				"until the repository works again")
	}
}

// countWaiting counts the summaries that slurmdbd does not have yet, for `caelum status`.
func (a *Agent) countWaiting() {
	n, err := a.repo.Waiting()
	a.reportRepository(err)
	if err == nil {
		a.waiting.Store(int64(n))
	}
}
