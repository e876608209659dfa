package offer

import (
	"cmp"
	"slices"
)

// The functions in this file help jobs meet their deadlines. slurmctld starts jobs in the order of their priorities,
// regardless of their deadlines, and orders jobs of equal priority by their submission times. Of the jobs that request
// the same profile, it starts the first one. A plan can therefore prefer a job with a deadline only to jobs of equal
// priority that request other profiles (deadlineOrder). Independently of the order,
//
//   - a job is given a profile on which it is expected to end before its deadline, if there is one (chooseSize);
//   - a job does not wait beyond its latest start for a larger slice (nextFree), or because of the policy (choose) or
//     the share of full GPUs (deny).

const (
	// urgency is the time in seconds before its latest start at which a job becomes urgent. With a larger value, other
	// jobs wait longer, but hardly any additional jobs meet their deadlines (contrib/lab/results.md, "Deadlines").
	urgency = 900
	// maxPassing is the waiting time in seconds after which urgent jobs no longer pass a job, so that no job waits
	// forever.
	maxPassing = 4 * 3600
	// lastPlan is an upper bound, in seconds, on the time between two plans (poll_interval) and on the time until a job
	// starts.
	lastPlan = 60
	// maxUrgent is the maximum number of urgent jobs that a plan considers, because each of them takes time. It is
	// divided among the users, so that one user's jobs do not exclude all others.
	maxUrgent = 8
)

// tooLate reports whether the job would miss its deadline if it started at the given time and had the given run time,
// both in seconds.
func (j *Job) tooLate(start, runs float64) bool {
	return j.Deadline > 0 && (start > j.LatestStart || start+runs > j.Deadline)
}

// lastChance reports whether the job has been waiting for some time and is so close to its latest start that the next
// plan may be too late. A job whose deadline is close to its submission is not given priority over others.
func (j *Job) lastChance(now float64) bool {
	return j.Deadline > 0 && j.Waited >= urgency && j.LatestStart-now <= lastPlan
}

// MissesAlways reports whether the job would miss its deadline even if it started now on the fastest of its profiles.
func (j *Job) MissesAlways(now float64) bool {
	if !j.Learned { // the job may end long before its time limit
		return j.tooLate(now, 0)
	}
	least := 1.0
	for _, w := range j.Wants {
		for _, s := range w.Sizes {
			least = min(least, s.Takes)
		}
	}
	return j.tooLate(now, j.RunTime*least)
}

// urgent returns the indices of the jobs whose latest start is close, in the order of their latest starts. If there are
// more than maxUrgent such jobs, it selects the first job of each user, then the second job of each user, and so on.
func urgent(jobs []*Job, now float64) (all []int) {
	for k, j := range jobs[:min(len(jobs), Depth)] {
		if j.Deadline > 0 && j.Priority > 0 && j.LatestStart-now <= urgency && !j.MissesAlways(now) {
			all = append(all, k)
		}
	}
	byStart := func(a, b int) int { return cmp.Compare(jobs[a].LatestStart, jobs[b].LatestStart) }
	slices.SortStableFunc(all, byStart)
	if len(all) > maxUrgent {
		rank, count := map[int]int{}, map[uint32]int{} // the rank of a job among its user's jobs
		for _, k := range all {
			rank[k] = count[jobs[k].User]
			count[jobs[k].User]++
		}
		slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
		all = all[:maxUrgent]
		slices.SortStableFunc(all, byStart)
	}
	return all
}

// deadlineOrder returns the indices of the jobs in the order in which a plan considers them. It moves each urgent job
// ahead of the jobs of equal priority. The jobs that request the same profile and precede the urgent job in the queue
// move with it, because slurmctld would start them first. An urgent job does not pass components of het jobs, or jobs
// that have waited for maxPassing. The result is nil if the order is the queue order, which is always the case if the
// order is strict.
func deadlineOrder(jobs []*Job, now float64, strict bool) []int {
	var all []int
	if !strict {
		all = urgent(jobs, now)
	}
	if len(all) == 0 {
		return nil
	}
	order := make([]int, len(jobs))
	for k := range order {
		order[k] = k
	}
	for _, u := range slices.Backward(all) {
		last := slices.Index(order, u)
		first := last
		for first > 0 && jobs[u].mayPass(jobs[order[first-1]]) {
			first--
		}
		passed := order[first : last+1]
		with := func(k int) bool { return k == u || jobs[k].SharesProfile(jobs[u]) }
		slices.SortStableFunc(passed, func(a, b int) int {
			switch {
			case with(a) == with(b):
				return 0
			case with(a):
				return -1
			}
			return 1
		})
	}
	return order
}

// mayPass reports whether the urgent job j can pass the job o, or whether o moves with j.
func (j *Job) mayPass(o *Job) bool {
	return o.Priority == j.Priority && j.Het == 0 && o.Het == 0 && (o.Waited < maxPassing || j.SharesProfile(o))
}

// SharesProfile reports whether two jobs request slices of a common profile.
func (j *Job) SharesProfile(o *Job) bool {
	return slices.ContainsFunc(j.Wants, func(w Want) bool {
		return slices.ContainsFunc(o.Wants, func(other Want) bool { return other.Profile == w.Profile })
	})
}

// inOrder returns the jobs in the given order.
func inOrder(jobs []*Job, order []int) []*Job {
	if order == nil {
		return jobs
	}
	all := make([]*Job, len(jobs))
	for to, from := range order {
		all[to] = jobs[from]
	}
	return all
}

// toQueueOrder reorders the plan's entries to match the queue.
func (p *planner) toQueueOrder(jobs []*Job, order []int) {
	if order == nil {
		return
	}
	spots, over := make([][]Spot, len(jobs)), map[int]bool{}
	for from, to := range order {
		spots[to] = p.plan.Spots[from]
		if p.quota.over[from] {
			over[to] = true
		}
	}
	for _, r := range []*Reservation{p.plan.Reserved, p.plan.Kept} {
		if r != nil {
			r.Job = order[r.Job]
		}
	}
	p.jobs, p.plan.Spots, p.quota.over = jobs, spots, over
}
