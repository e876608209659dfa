package slurm

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Waiting is a pending job. The tasks of an array that slurmctld has not split off yet are one.
type Waiting struct {
	Job
	// Elements is 1, or how many tasks of the array are pending.
	Elements int
}

// Partitions lists the partitions the job may run in.
func (w Waiting) Partitions() []string { return list(w.Partition) }

// Eligible reports whether nothing but nodes and GRES keeps the job from starting. Only reasons that are known to say
// so count; limits, holds, dependencies, begin times, licences and reasons nobody has heard of do not. (When a
// job became eligible stands in w.Job.Eligible.)
//
// A job whose slices are on offer nowhere waits with "ReqNodeNotAvail, UnavailableNodes:mig-catalog[1-2]" when the
// catalogue nodes could take it (22.05.8), or with the long reason below.
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
		strings.HasPrefix(reason, "Nodes required for job are DOWN, DRAINED or reserved")
}

// HeldByTag reports whether the job is held by job_submit.lua until an agent releases it. BadConstraints counts: a
// released job whose slice goes away before it starts ends there, with priority 0, and can be released again. So does a
// job that was requeued and held. JobHeldAdmin does not: that is root's own hold on top of the mark (22.05.8).
func (w Waiting) HeldByTag() bool {
	switch w.Reason {
	case "JobHeldUser", "BadConstraints", "job requeued in held state":
		return w.State == "PENDING" && w.Priority == 0 && w.Problem == "" && HasTag(w.AdminComment, TagHeld)
	}
	return false
}

// Sized reports whether Caelum chose the job's profile, so that another GPU model's for as much will do.
func (w Waiting) Sized() bool {
	mig := w.SlicesPerNode()
	return len(mig) == 1 && HasTag(w.AdminComment, TagSized+mig[0].Type)
}

// toWaiting keeps the pending jobs, in the order in which slurmctld looks at those of one partition tier: priority
// first, then age by id.
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

// SortWaiting sorts by priority, highest first, then by job id.
func SortWaiting(list []Waiting) {
	slices.SortStableFunc(list, func(a, b Waiting) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
	})
}

// arrayElements counts the tasks in "3-5,9". What it cannot read, and no array, is one.
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

// yield is how much later than a held job another one may have become eligible and still stand in front of it.
const yield = time.Hour

// InOrder returns the waiting jobs in the order in which they are to have room. Held jobs come last: what priority
// slurmctld would give them cannot be seen (it shows 0), and whoever asks for a node by name must not be served before
// jobs of higher priority for that. So that they do not wait for ever, a held job stands in front of jobs that became
// eligible more than an hour later and are as nice as it or nicer. The hour begins anew when another held job of its
// user has been released and starts, so that of each user's held jobs one an hour comes before others.
func (q Queue) InOrder() []Waiting {
	last := map[uint32]time.Time{} // by user, the latest start of a job that had been held
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
	places := make([][]Waiting, len(sorted)+1) // by place, the held jobs in front of it
	for _, h := range held {
		since := h.waits()
		if last[h.UID].After(since) {
			since = last[h.UID]
		}
		at := len(sorted)
		for at > 0 && sorted[at-1].waits().Sub(since) > yield && sorted[at-1].Nice >= h.Nice {
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

// waits is since when the job waits: a held job has no time from which it is eligible, unless one was asked for.
func (w Waiting) waits() time.Time {
	if w.Job.Eligible.After(w.Submit) {
		return w.Job.Eligible
	}
	return w.Submit
}

// forgetting is how much later than it might start a requeued job is released. slurmd runs no prolog for a job of which
// it still knows an earlier run, and 22.05 may know it for two seconds longer than slurmctld keeps the job waiting
// (_clear_expired_job_states in slurm_cred.c; gone by 24.11).
const forgetting = 3 * time.Second

// Releasable reports whether an agent may release the job at this time: job_submit.lua submitted it held because
// slurmctld would have refused it while its slices are not on offer, or slurmctld has since given it up as
// BadConstraints because they went off offer again. A user's or an admin's own hold bears no such mark. A job that
// waits for another one is not released.
func (w Waiting) Releasable(at time.Time) bool {
	if w.Dependency != "" {
		return false // it would wait on, with its slices on offer
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
