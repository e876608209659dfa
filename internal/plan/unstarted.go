package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"caelum/internal/offer"
	"caelum/internal/slurm"
)

// A job whose slices have been on offer for patience, and that slurmctld has looked at meanwhile, lacks something that
// cannot be seen. For the time of standsBack it has room after all others. Backfill may take minutes to come to a job.
const (
	patience   = 3 * time.Minute
	standsBack = 10 * time.Minute
)

// Unstarted notes the jobs that slurmctld does not start though their slices are on offer. Without it the slices of
// such a job would be kept from everybody else for as long as the job waits.
type Unstarted struct {
	jobs  map[string]shown
	users map[uint32]account
}

// shown is since when a job's slices are on offer without a break, and until when the job stands behind the others.
// Then on are the nodes of these offers.
type shown struct {
	since, until time.Time
	on           []string
}

// entry names what starts as one: the pending tasks of an array are another entry when one of them has started.
func entry(w slurm.Waiting) string { return fmt.Sprint(w.ID, "_", w.ArrayTask) }

// Behind returns the look with these jobs behind all others that are not held.
func (u *Unstarted) Behind(snapshot Snapshot) Snapshot {
	snapshot.unkept = u.unkept(snapshot.At)
	return behind(snapshot, func(w slurm.Waiting) bool { return snapshot.At.Before(u.jobs[entry(w)].until) })
}

// behind returns the look with some of its jobs behind all others that are not held.
func behind(snapshot Snapshot, back func(slurm.Waiting) bool) Snapshot {
	if slices.ContainsFunc(snapshot.Queue.Waiting, back) {
		last := slices.DeleteFunc(slices.Clone(snapshot.Queue.Waiting), func(w slurm.Waiting) bool { return !back(w) })
		snapshot.Queue.Waiting = append(slices.DeleteFunc(slices.Clone(snapshot.Queue.Waiting), back), last...)
	}
	return snapshot
}

// Follow notes whose slices are on offer at this time where the plan has them.
func (u *Unstarted) Follow(v *View, p offer.Plan, at time.Time) {
	if u.jobs == nil {
		u.jobs = map[string]shown{}
	}
	offered := map[string]bool{}
	for k, spots := range p.Spots {
		w := v.Waiting[k]
		if spots == nil ||
			slices.ContainsFunc(v.On(spots), func(n string) bool { return !v.Members[v.Member(n)].HasFree(w) }) {
			continue
		}
		id := entry(w)
		offered[id] = true
		job, known := u.jobs[id]
		switch {
		case !known, !job.until.IsZero() && !at.Before(job.until):
			job = shown{since: at}
		case job.until.IsZero() && at.Sub(job.since) > patience && w.LastSchedEval.After(job.since):
			job.until, job.on = at.Add(standsBack), v.On(spots)
		}
		u.jobs[id] = job
	}
	u.charge(v, p, at)
	maps.DeleteFunc(u.jobs, func(id string, job shown) bool { return !offered[id] && !at.Before(job.until) })
}
