package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/slurm"
)

// If slurmctld does not start a job for an unknown reason, the agents plan it after all other jobs for backTime. The
// reason is considered unknown if the job's slices have been offered for at least patience, and slurmctld has evaluated
// the job during this time. patience is 3 minutes because backfill may take minutes to reach a job.
const (
	patience = 3 * time.Minute
	backTime = 10 * time.Minute
)

// Unstarted records the jobs that slurmctld does not start even though their slices are offered. Without this record,
// the slices of such a job would remain reserved for as long as it is waiting.
type Unstarted struct {
	jobs  map[string]shown
	users map[uint32]account
}

// shown describes a job. since is the time since which its slices have been offered without interruption, and until is
// the time until which it is planned after all other jobs. on lists the nodes that offer the slices; it is set together
// with until.
type shown struct {
	since, until time.Time
	on           []string
}

// entry returns a unique name for an entry of the queue. When a task of an array starts, the remaining pending tasks
// become a new entry.
func entry(w slurm.Waiting) string { return fmt.Sprint(w.ID, "_", w.ArrayTask) }

// Reorder returns a copy of the snapshot in which the recorded jobs are moved behind all other jobs.
func (u *Unstarted) Reorder(snapshot Snapshot) Snapshot {
	snapshot.paused = u.paused(snapshot.At)
	return behind(snapshot, func(w slurm.Waiting) bool { return snapshot.At.Before(u.jobs[entry(w)].until) })
}

// behind returns a copy of the snapshot in which all jobs for which back returns true are moved behind all other jobs.
func behind(snapshot Snapshot, back func(slurm.Waiting) bool) Snapshot {
	snapshot.behind = back
	if slices.ContainsFunc(snapshot.Queue.Waiting, back) {
		last := slices.DeleteFunc(slices.Clone(snapshot.Queue.Waiting), func(w slurm.Waiting) bool { return !back(w) })
		for k := range last {
			last[k] = last[k].Clone()
			last[k].Deadline = time.Time{} // the deadline must not bring the job forward again
		}
		snapshot.Queue.Waiting = append(slices.DeleteFunc(slices.Clone(snapshot.Queue.Waiting), back), last...)
	}
	return snapshot
}

// Record records the jobs whose slices are offered by the planned nodes at the given time.
func (u *Unstarted) Record(v *View, p offer.Plan, at time.Time) {
	if u.jobs == nil {
		u.jobs = map[string]shown{}
	}
	offered := map[string]bool{}
	for k, spots := range p.Spots {
		w := v.Waiting[k]
		taken := func(n string) bool { return !eligible.HasFree(v.Members[v.Member(n)], *w) }
		if spots == nil || slices.ContainsFunc(v.On(spots), taken) {
			continue
		}
		id := entry(*w)
		offered[id] = true
		job, known := u.jobs[id]
		switch {
		case !known, !job.until.IsZero() && !at.Before(job.until):
			job = shown{since: at}
		case job.until.IsZero() && at.Sub(job.since) > patience && w.LastSchedEval.After(job.since):
			job.until, job.on = at.Add(backTime), v.On(spots)
		}
		u.jobs[id] = job
	}
	u.charge(v, p, at)
	maps.DeleteFunc(u.jobs, func(id string, job shown) bool { return !offered[id] && !at.Before(job.until) })
}
