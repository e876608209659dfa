package agent

import (
	"context"
	"errors"
	"time"

	"caelum/internal/slurm"
)

// class classifies an error that occurred when the agent queried slurmctld about a job. It determines how the job's
// prolog handles the error.
type class int

const (
	none    class = iota // no error
	unclear              // the job's record is inconsistent or unreadable, which any user can cause
	later                // slurmctld does not answer, which is not a fault of the node
	defect               // this node cannot query slurmctld
)

// classOf returns the class of an error. No other function classifies errors. An unknown error belongs to the class
// unclear, so that it affects only the job and not the node.
func classOf(err error) class {
	switch {
	case err == nil:
		return none
	case errors.Is(err, slurm.ErrCommand):
		return defect
	case errors.Is(err, slurm.ErrUnreachable),
		errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded):
		return later
	}
	return unclear
}

// recordTries is the maximum number of times that the agent reads an unclear job record. recordPause is the pause
// before the first retry; each subsequent pause is twice as long as the previous one. The pauses add up to 1.5 s.
const (
	recordTries = 5
	recordPause = 100 * time.Millisecond
)

// readJob reads a job's record from slurmctld. It rereads an unclear record, because the user may have changed the job
// between the calls to squeue and scontrol.
func (a *Agent) readJob(ctx context.Context, id uint32) (job slurm.Job, err error) {
	pause := a.recordPause
	for range recordTries {
		job, err = a.ctl.Job(ctx, id)
		if classOf(err) != unclear || errors.Is(err, slurm.ErrNoJob) || errors.Is(err, slurm.ErrAmbiguous) {
			break
		}
		a.log.WithError(err).WithField("job", id).Debug("the job's record was unclear; rereading it")
		select {
		case <-ctx.Done():
			return job, ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2
	}
	return job, err
}
