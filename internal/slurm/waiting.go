package slurm

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Waiting is a pending job. A single Waiting represents all tasks of an array that slurmctld has not yet split off.
type Waiting struct {
	*Job
	// Elements is the number of pending tasks of the array, or 1 for other jobs.
	Elements int
}

// Clone returns a copy of the job that does not share its record. The record's slices are shared.
func (w Waiting) Clone() Waiting { return Waiting{new(*w.Job), w.Elements} }

// Partitions returns the partitions in which the job can run.
func (w Waiting) Partitions() []string { return list(w.Partition) }

// toWaiting returns the pending jobs. Within a partition tier, they are in the order in which slurmctld evaluates them.
func toWaiting(jobs []Job) []Waiting {
	var list []Waiting
	for k := range jobs {
		if j := &jobs[k]; j.State == "PENDING" {
			list = append(list, Waiting{Job: j, Elements: arrayElements(j.ArrayTask)})
		}
	}
	SortWaiting(list)
	return list
}

// SortWaiting sorts jobs as slurmctld does (sort_job_queue2 in job_scheduler.c, 22.05.8 to 26.05.3): first the
// expedited jobs, then by priority (highest first), then by submission time, and then by job id. A requeue resets the
// submission time. With priority/basic, several jobs can have the same priority: for example, after slurmctld 22.05.8
// had been killed, all new jobs had priority 1.
func SortWaiting(list []Waiting) {
	slices.SortStableFunc(list, func(a, b Waiting) int {
		return cmp.Or(
			compareBool(b.Expedited, a.Expedited),
			cmp.Compare(b.Priority, a.Priority),
			a.Submit.Compare(b.Submit),
			cmp.Compare(cmp.Or(a.ArrayJob, a.ID), cmp.Or(b.ArrayJob, b.ID)),
			cmp.Compare(a.ID, b.ID),
		)
	})
}

// compareBool returns 1 if only a is true, -1 if only b is true, and 0 otherwise.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// PendingTasks returns the number of array tasks that a pending job's record represents, or 1 for other jobs.
func (j Job) PendingTasks() int { return arrayElements(j.ArrayTask) }

// arrayElements returns the number of tasks in a string such as "3-5,9". It returns 1 for a job that is not part of an
// array, and for a string that cannot be parsed.
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
