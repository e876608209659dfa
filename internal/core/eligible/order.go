package eligible

import (
	"cmp"
	"slices"
	"time"

	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// yield is the longest time after a held job became eligible during which another job can become eligible and still
// precede it.
const yield = time.Hour

// InOrder returns the waiting jobs in the order in which the plan considers them (Order).
func InOrder(q slurm.Queue) []slurm.Waiting {
	all := make([]slurm.Waiting, 0, len(q.Waiting))
	for _, k := range Order(q) {
		all = append(all, q.Waiting[k])
	}
	return all
}

// Order returns the indices of the waiting jobs in the order in which the plan considers them. Held jobs come last:
// slurmctld shows their priority as 0, and a job must not overtake jobs of higher priority by requesting a node by
// name. To keep held jobs from waiting forever, Order puts a held job ahead of jobs that became eligible more than an
// hour later, unless they have a lower nice value. The hour restarts whenever another held job of the same user has
// been released and starts, so that each user can have at most one held job per hour ahead of other jobs.
func Order(q slurm.Queue) []int {
	var sorted, held []int
	for k := range q.Waiting {
		if q.Waiting[k].Priority == 0 {
			held = append(held, k)
		} else {
			sorted = append(sorted, k)
		}
	}
	if len(held) == 0 {
		return sorted
	}
	last := map[uint32]time.Time{} // for each user, the latest start time of a job that had been held
	for k := range q.All {
		j := &q.All[k]
		if j.State != "PENDING" && j.Start.After(last[j.UID]) && tags.Has(j.AdminComment, tags.Released) {
			last[j.UID] = j.Start
		}
	}
	slices.SortStableFunc(held, func(a, b int) int { return cmp.Compare(q.Waiting[a].ID, q.Waiting[b].ID) })
	places := make([][]int, len(sorted)+1) // for each index in sorted, the held jobs before that job
	for _, k := range held {
		h := &q.Waiting[k]
		since := WaitsSince(h.Job)
		if last[h.UID].After(since) {
			since = last[h.UID]
		}
		at := len(sorted)
		for at > 0 {
			before := &q.Waiting[sorted[at-1]]
			if WaitsSince(before.Job).Sub(since) <= yield || before.Nice < h.Nice || before.Expedited {
				break
			}
			at--
		}
		places[at] = append(places[at], k)
	}
	all := make([]int, 0, len(q.Waiting))
	for k, here := range places {
		if all = append(all, here...); k < len(sorted) {
			all = append(all, sorted[k])
		}
	}
	return all
}

// WaitsSince returns the time since which the job has been waiting. For a held job, slurmctld shows an eligible time
// only if the user has set a begin time.
func WaitsSince(j *slurm.Job) time.Time {
	if j.Eligible.After(j.Submit) {
		return j.Eligible
	}
	return j.Submit
}
