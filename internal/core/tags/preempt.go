package tags

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"caelum/internal/slurm"
)

// Preemption describes a run of a job that the watcher is stopping for another job.
type Preemption struct {
	Job  uint32 // the id of the preemptor
	Move bool   // the run is moved: it is requeued because it fits on other units, not because of Slurm's rules
	// Warned is true once the job has received the signals that begin its grace time, which ends at End.
	Warned bool
	End    time.Time
}

// PreemptedBy returns the preemption of the job's current run. ok is false if the watcher is not stopping the run.
func PreemptedBy(j slurm.Job) (p Preemption, ok bool) { return preemption(j, j.Restarts) }

// WasPreemptedBy is like PreemptedBy, but for the run before the last requeue.
func WasPreemptedBy(j slurm.Job) (p Preemption, ok bool) { return preemption(j, j.Restarts-1) }

func preemption(j slurm.Job, restarts int) (p Preemption, ok bool) {
	if n, ok := numbers(Value(j.AdminComment, Moved), 2); ok && n[0] != 0 && n[1] == int64(restarts) {
		return Preemption{Job: uint32(n[0]), Move: true}, true
	}
	n, ok := numbers(Value(j.AdminComment, Preempted), 3)
	if !ok || n[1] != int64(restarts) {
		return p, false
	}
	p.Job = uint32(n[0])
	if p.Warned = n[2] > 0; p.Warned {
		p.End = time.Unix(n[2], 0)
	}
	return p, p.Job != 0
}

// WithPreemption returns the job's admin_comment with the Preempted or Moved tag for the job's current run.
func WithPreemption(j slurm.Job, p Preemption) string {
	if p.Move {
		return Set(j.AdminComment, Moved, fmt.Sprintf("%d:%d", p.Job, j.Restarts))
	}
	end := int64(0)
	if p.Warned {
		end = p.End.Unix()
	}
	return Set(j.AdminComment, Preempted, fmt.Sprintf("%d:%d:%d", p.Job, j.Restarts, end))
}

// WithoutPreemption returns the job's admin_comment without the tag of the current run's preemption or move.
func WithoutPreemption(j slurm.Job) string {
	if p, ok := PreemptedBy(j); ok && p.Move {
		return Remove(j.AdminComment, Moved+Value(j.AdminComment, Moved))
	}
	return Remove(j.AdminComment, Preempted+Value(j.AdminComment, Preempted))
}

// PreemptsSince returns the time at which the watcher began to stop other jobs for a waiting job. ok is false if it has
// not done so since the job was last requeued. The tag of an array belongs to its pending tasks and applies until one
// of them starts.
func PreemptsSince(j slurm.Job) (since time.Time, ok bool) {
	n, ok := numbers(Value(j.AdminComment, Preempts), 3)
	if !ok || n[0] != int64(j.Restarts) || n[2] != int64(j.PendingTasks()) {
		return since, false
	}
	return time.Unix(n[1], 0), true
}

// WithPreempts returns the admin_comment of a waiting job for which the watcher is beginning to stop other jobs.
func WithPreempts(j slurm.Job, now time.Time) string {
	return Set(j.AdminComment, Preempts, fmt.Sprintf("%d:%d:%d", j.Restarts, now.Unix(), j.PendingTasks()))
}

// WithoutPreempts returns the job's admin_comment without the Preempts tag.
func WithoutPreempts(j slurm.Job) string {
	return Remove(j.AdminComment, Preempts+Value(j.AdminComment, Preempts))
}

// HasPreempted is like PreemptsSince, but ignores the number of pending tasks. It remains true after tasks of an array
// have started or have been cancelled. When slurmctld splits a task off the array, the task receives a copy of the tag.
func HasPreempted(j slurm.Job) bool {
	n, ok := numbers(Value(j.AdminComment, Preempts), 3)
	return ok && n[0] == int64(j.Restarts)
}

// numbers parses exactly the given number of colon-separated integers, each from 0 to 4294967295.
func numbers(text string, count int) (all []int64, ok bool) {
	parts := strings.Split(text, ":")
	for _, part := range parts {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return nil, false
		}
		all = append(all, int64(n))
	}
	return all, len(all) == count
}
