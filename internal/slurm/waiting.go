package slurm

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Waiting is a pending job. One Waiting represents all tasks of an array that slurmctld has not
// split off yet.
type Waiting struct {
	Job
	// Elements is 1, or the number of the array's pending tasks.
	Elements int
}

// Partitions lists the partitions in which the job may run.
func (w Waiting) Partitions() []string { return list(w.Partition) }

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
// highest first, then by submission, which a requeue renews, then by job id. Jobs of equal priority do occur with
// priority/basic. For example, new jobs had priority 1 after slurmctld 22.05.8 was killed.
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
