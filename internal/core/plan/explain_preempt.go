package plan

import (
	"fmt"
	"slices"
	"strings"

	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// addPreemption adds a sentence to the explanation of a job that the watcher is stopping or has stopped, or for which
// it is stopping other jobs.
func (e *Explanation) addPreemption(s Snapshot, j slurm.Job) {
	by, stopped := tags.PreemptedBy(j)
	before, requeued := tags.WasPreemptedBy(j)
	if stopped && by.Move || !stopped && requeued && before.Move {
		e.addMove(j, by, before)
		return
	}
	switch {
	case stopped && j.Holds() && by.Warned:
		e.PreemptedBy = by.Job
		e.Text += fmt.Sprintf(
			". Job %d preempts the job, which has received SIGTERM and will end at %s", by.Job, clock(by.End.Unix()))
	case stopped && j.Holds():
		e.PreemptedBy = by.Job
		e.Text += fmt.Sprintf(". Job %d preempts the job, which will therefore end soon", by.Job)
	case stopped && j.State != "PENDING":
		e.PreemptedBy = by.Job
		e.Text += fmt.Sprintf(". Job %d preempted the job", by.Job)
	case requeued:
		e.PreemptedBy = before.Job
		e.Text += fmt.Sprintf(". Job %d preempted the job's last run", before.Job)
	case j.State == "PENDING" && s.Preempts(j):
		for _, o := range s.Queue.All {
			switch p, ok := tags.PreemptedBy(o); {
			case !ok || p.Job != j.ID || !o.Holds():
			case p.Move:
				e.Moves = append(e.Moves, o.ID)
			default:
				e.Preempts = append(e.Preempts, o.ID)
			}
		}
		slices.Sort(e.Preempts)
		slices.Sort(e.Moves)
		if e.Moves == nil {
			e.Text += ". Jobs are stopped to make room for the job" + idList(e.Preempts)
			return
		}
		e.Text += ". Jobs that fit elsewhere are requeued to make room for the job" + idList(e.Moves)
	}
}

// addMove adds a sentence to the explanation of a job that the watcher is moving or has moved. by is the move of the
// current run, and before is the move of the run before it.
func (e *Explanation) addMove(j slurm.Job, by, before tags.Preemption) {
	switch {
	case by.Move && j.Holds():
		e.MovedFor = by.Job
		e.Text += fmt.Sprintf(". The job is being moved: it will be requeued, because job %d needs its slice's room, "+
			"and the job fits elsewhere", by.Job)
	case by.Move && j.State != "PENDING":
		e.MovedFor = by.Job
		e.Text += fmt.Sprintf(". The job was being moved for job %d when its run ended", by.Job)
	case before.Move:
		e.MovedFor = before.Job
		e.Text += fmt.Sprintf(". The job was moved: its last run was requeued, because job %d needed its slice's room "+
			"and would have waited longer than the run time that this job lost. The job is not moved again", before.Job)
	}
}

// idList returns job ids in the form ": 1, 2", or an empty string if there are none.
func idList(ids []uint32) string {
	if len(ids) == 0 {
		return ""
	}
	return ": " + strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ", "), "[]")
}
