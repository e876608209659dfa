package slurm

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Waiting is a pending job. The tasks of an array that slurmctld has not split off yet are one Waiting.
type Waiting struct {
	Job
	// Elements is 1, or the number of the array's pending tasks.
	Elements int
}

// Partitions lists the partitions in which the job may run.
func (w Waiting) Partitions() []string { return list(w.Partition) }

// Eligible reports whether the job waits only for nodes or GRES, according to the reason that slurmctld shows. It
// returns false for limits, holds, dependencies, begin times, licences and unknown reasons. (w.Job.Eligible is the time
// from which the job is eligible.)
//
// A job whose slices no node offers waits with "ReqNodeNotAvail, UnavailableNodes:mig-catalog[1-2]" if the catalogue
// nodes could run it (22.05.8), or with the long reason below.
func (w Waiting) Eligible() bool {
	if w.State != "PENDING" || w.Priority == 0 || w.Problem != "" || w.Dependency != "" {
		return false
	}
	switch w.Reason {
	case "None", "Resources", "Priority", "ReqNodeNotAvail":
		return true
	case "ReqNodeNotAvail, Reserved for maintenance", "ReqNodeNotAvail,_Reserved_for_maintenance":
		return false
	}
	reason := strings.ReplaceAll(w.Reason, "_", " ")
	return strings.HasPrefix(reason, "ReqNodeNotAvail, ") ||
		strings.HasPrefix(reason, "Nodes required for job are DOWN, DRAINED") // from 24.11 on, REBOOTING can follow
}

// HeldByTag reports whether job_submit.lua holds the job until an agent releases it. The reason BadConstraints counts:
// a released job whose slice is withdrawn before it starts gets this reason and priority 0, and can be released again.
// A job that was requeued and held counts too. JobHeldAdmin does not count: it is root's own hold in addition to the
// tag (22.05.8).
func (w Waiting) HeldByTag() bool {
	switch w.Reason {
	case "JobHeldUser", "BadConstraints", "job requeued in held state":
		return w.State == "PENDING" && w.Priority == 0 && w.Problem == "" && HasTag(w.AdminComment, TagHeld)
	}
	return false
}

// Sized reports whether Caelum chose the job's profile, so that an equivalent profile of another GPU model may replace
// it.
func (w Waiting) Sized() bool {
	mig := w.SlicesPerNode()
	return len(mig) == 1 && HasTag(w.AdminComment, TagSized+mig[0].Type)
}

// toWaiting returns the pending jobs in the order in which slurmctld evaluates those of one partition tier.
func toWaiting(jobs []Job) []Waiting {
	var list []Waiting
	for _, j := range jobs {
		if j.State == "PENDING" {
			list = append(list, Waiting{Job: j, Elements: arrayElements(j.ArrayTask)})
		}
	}
	SortWaiting(list)
	return list
}

// SortWaiting sorts jobs as slurmctld does (sort_job_queue2 in job_scheduler.c, 22.05.8 to 26.05.3): by priority,
// highest first, then by submission, which a requeue renews, then by job id. Jobs of equal priority do occur under
// priority/basic: after slurmctld was killed, new jobs had priority 1 (22.05.8).
func SortWaiting(list []Waiting) {
	slices.SortStableFunc(list, func(a, b Waiting) int {
		return cmp.Or(
			cmp.Compare(b.Priority, a.Priority),
			a.Submit.Compare(b.Submit),
			cmp.Compare(cmp.Or(a.ArrayJob, a.ID), cmp.Or(b.ArrayJob, b.ID)),
			cmp.Compare(a.ID, b.ID),
		)
	})
}

// arrayElements returns the number of tasks in "3-5,9". It returns 1 for a job outside an array and for text that it
// cannot read.
func arrayElements(tasks string) int {
	n := 0
	for part := range strings.SplitSeq(tasks, ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		if !ranged {
			hi = lo
		}
		a, err1 := strconv.ParseUint(lo, 10, 31)
		b, err2 := strconv.ParseUint(hi, 10, 31)
		if err1 != nil || err2 != nil || b < a {
			return 1
		}
		n += int(b-a) + 1
	}
	return n
}

// yield is the time for which a held job lets jobs that became eligible later come before it.
const yield = time.Hour

// InOrder returns the waiting jobs in the order in which the plan serves them. Held jobs come last: slurmctld shows
// their priority as 0, and a job must not overtake jobs of higher priority by requesting a node by name. So that held
// jobs do not wait forever, a held job comes before jobs that became eligible more than an hour later and whose nice
// value is not lower. When another held job of the same user is released and starts, the hour starts again. Thus at
// most one held job of each user per hour comes before other jobs.
func (q Queue) InOrder() []Waiting {
	last := map[uint32]time.Time{} // by user: the latest start of a job that had been held
	for _, j := range q.All {
		if j.State != "PENDING" && HasTag(j.AdminComment, TagReleased) && j.Start.After(last[j.UID]) {
			last[j.UID] = j.Start
		}
	}
	var sorted, held []Waiting
	for _, w := range q.Waiting {
		if w.Priority == 0 {
			held = append(held, w)
		} else {
			sorted = append(sorted, w)
		}
	}
	slices.SortStableFunc(held, func(a, b Waiting) int { return cmp.Compare(a.ID, b.ID) })
	places := make([][]Waiting, len(sorted)+1) // by index in sorted: the held jobs before that job
	for _, h := range held {
		since := h.waitsSince()
		if last[h.UID].After(since) {
			since = last[h.UID]
		}
		at := len(sorted)
		for at > 0 && sorted[at-1].waitsSince().Sub(since) > yield && sorted[at-1].Nice >= h.Nice {
			at--
		}
		places[at] = append(places[at], h)
	}
	all := make([]Waiting, 0, len(q.Waiting))
	for k, here := range places {
		if all = append(all, here...); k < len(sorted) {
			all = append(all, sorted[k])
		}
	}
	return all
}

// waitsSince returns the time since which the job waits. A held job has no eligible time, unless its user set one.
func (w Waiting) waitsSince() time.Time {
	if w.Job.Eligible.After(w.Submit) {
		return w.Job.Eligible
	}
	return w.Submit
}

// forgetting is the additional delay before the release of a requeued job. While slurmd remembers an earlier run of a
// job, it runs no prolog for the job. In 22.05, slurmd may remember the run for two seconds longer than slurmctld keeps
// the job waiting (docs/slurm-releases.md, "Restarts").
const forgetting = 3 * time.Second

// Releasable reports whether an agent may release the job at this time. The agent may release the job if job_submit.lua
// held it at submission, because slurmctld would have refused the job while its slices were not offered. The agent may
// also release the job if slurmctld has set it to BadConstraints after its release, because the slices were no longer
// offered. Jobs that a user or an administrator holds do not have the tag. A job with an unfulfilled dependency is not
// releasable.
func (w Waiting) Releasable(at time.Time) bool {
	if w.Dependency != "" {
		return false // the job would still wait while its slices are offered
	}
	due := w.Job.Eligible
	if w.Restarts > 0 {
		due = due.Add(forgetting)
	}
	if due.After(at) {
		return false
	}
	return w.HeldByTag() || w.Reason == "BadConstraints" && HasTag(w.AdminComment, TagReleased)
}
