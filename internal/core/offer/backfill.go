package offer

import "slices"

// Depth is the maximum number of waiting jobs that a plan considers. It equals the default value of slurmctld's
// bf_max_job_test (slurm.conf(5)).
const Depth = 500

// backfill places the first group of jobs behind the head of the queue that does not delay the head. It returns false
// if there is no such group. It does not place a group on a node where an earlier job is waiting for the same profile,
// because slurmctld would allocate the slice to that job, which could delay the head.
func (p *planner) backfill(head int) bool {
	earlier := newDemand()
	for i, group := range byStart(p.jobs[head:]) {
		k := head + i
		if i > Depth {
			break
		}
		if p.decided(k) {
			continue
		}
		if i > 0 {
			left := earlier.restrictAll(p.Cluster, &p.plan, group)
			if left != nil && p.searched.again(k, left, p.plan.Reserved) {
				if placed, _ := p.place(k, left, p.plan.Reserved); placed {
					return true
				}
			}
		}
		earlier.addAll(group)
	}
	return false
}

// searches records the failed searches for groups of jobs that need several slices, by the index of the first job.
type searches map[int]*search

// search records the most recent failed search for a group of jobs, and the number of searches for this group.
type search struct {
	jobs []*Job
	kept *Reservation
	n    int
}

// maxSearches is the maximum number of times that a plan searches for the slices of a job behind the head. A search for
// a het job visits every node for each component. Without this limit, a plan would repeat the search after every placed
// job, up to 500 times.
const maxSearches = 8

// again reports whether a plan should search for spots for a group of jobs, and records the search. It returns false if
// the same search has already failed in this plan, because even fewer spots are free now. It also returns false after
// maxSearches searches. Each plan starts without any recorded searches.
func (t searches) again(k int, jobs []*Job, r *Reservation) bool {
	if len(jobs) == 1 && jobs[0].slices() == 1 {
		return true
	}
	a := t[k]
	if a == nil {
		a = &search{}
		t[k] = a
	}
	same := a.n > 0 && a.kept.At == r.At && slices.Equal(a.kept.Spots, r.Spots) &&
		slices.EqualFunc(a.jobs, jobs, func(x, y *Job) bool { return slices.Equal(x.EligibleNodes, y.EligibleNodes) })
	if same || a.n == maxSearches {
		return false
	}
	a.jobs, a.kept = jobs, r
	a.n++
	return true
}
