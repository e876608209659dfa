package plan

import (
	"fmt"
	"slices"
	"strings"

	"caelum/internal/slurm"
	"caelum/internal/tags"
)

// addPreemption adds a sentence to the explanation of a job that the watcher is stopping or has stopped, or for which
// it is stopping other jobs.
func (e *Explanation) addPreemption(s Snapshot, j slurm.Job) {
	by, stopped := tags.PreemptedBy(j)
	before, requeued := tags.WasPreemptedBy(j)
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
			if p, ok := tags.PreemptedBy(o); ok && p.Job == j.ID && o.Holds() {
				e.Preempts = append(e.Preempts, o.ID)
			}
		}
		slices.Sort(e.Preempts)
		e.Text += ". Jobs are stopped to make room for the job" + idList(e.Preempts)
	}
}

// idList returns job ids in the form ": 1, 2", or an empty string if there are none.
func idList(ids []uint32) string {
	if len(ids) == 0 {
		return ""
	}
	return ": " + strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ", "), "[]")
}
