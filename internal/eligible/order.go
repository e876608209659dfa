package eligible

import (
	"cmp"
	"slices"
	"time"

	"caelum/internal/slurm"
	"caelum/internal/tags"
)

// yield is how much later than a held job another job may become eligible and still precede it.
const yield = time.Hour

// InOrder returns the waiting jobs in the order in which the plan considers them. Held jobs come last: slurmctld shows
// their priority as 0, and a job must not overtake jobs of higher priority by requesting a node by name. To keep held
// jobs from waiting forever, InOrder puts a held job before jobs that became eligible more than an hour later, unless
// they have a lower nice value. The hour starts again whenever another held job of the same user is released and
// starts, so that each user gets at most one held job per hour ahead of other jobs.
func InOrder(q slurm.Queue) []slurm.Waiting {
	last := map[uint32]time.Time{} // for each user, the latest start of a job that had been held
	for _, j := range q.All {
		if j.State != "PENDING" && tags.Has(j.AdminComment, tags.Released) && j.Start.After(last[j.UID]) {
			last[j.UID] = j.Start
		}
	}
	var sorted, held []slurm.Waiting
	for _, w := range q.Waiting {
		if w.Priority == 0 {
			held = append(held, w)
		} else {
			sorted = append(sorted, w)
		}
	}
	slices.SortStableFunc(held, func(a, b slurm.Waiting) int { return cmp.Compare(a.ID, b.ID) })
	places := make([][]slurm.Waiting, len(sorted)+1) // for each index in sorted, the held jobs before that job
	for _, h := range held {
		since := WaitsSince(h)
		if last[h.UID].After(since) {
			since = last[h.UID]
		}
		at := len(sorted)
		for at > 0 && WaitsSince(sorted[at-1]).Sub(since) > yield && sorted[at-1].Nice >= h.Nice &&
			!sorted[at-1].Expedited {
			at--
		}
		places[at] = append(places[at], h)
	}
	all := make([]slurm.Waiting, 0, len(q.Waiting))
	for k, here := range places {
		if all = append(all, here...); k < len(sorted) {
			all = append(all, sorted[k])
		}
	}
	return all
}

// WaitsSince returns the time at which the job began to wait. For a held job, slurmctld shows an eligible time only if
// the user has set a begin time.
func WaitsSince(w slurm.Waiting) time.Time {
	if w.Job.Eligible.After(w.Submit) {
		return w.Job.Eligible
	}
	return w.Submit
}
