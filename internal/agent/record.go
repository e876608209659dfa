package agent

import (
	"caelum/internal/slurm"
	"context"
	"errors"
	"time"
)

// class is the class of an error that occurred when the agent queried slurmctld about a job. It determines how the
// prolog of the job handles the error.
type class int

const (
	none    class = iota // no error
	unclear              // the job's record is inconsistent or unreadable, which any user can cause
	later                // slurmctld does not answer; this is not a defect of the node
	defect               // this node cannot query slurmctld
)

// classOf returns the class of an error. No other function classifies errors. An unknown error is unclear, so that it
// affects only the job and not the node.
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

// recordTries limits how often an unclear job record is read. recordPause is the first pause between two readings. Each
// further pause is twice as long, so that all readings together take 1.5 s.
const (
	recordTries = 5
	recordPause = 100 * time.Millisecond
)

// readJob reads a job. While the job's record is unclear, it reads the record again: squeue and scontrol are separate
// calls, and the job's user can change the job between them.
func (a *Agent) readJob(ctx context.Context, id uint32) (job slurm.Job, err error) {
	pause := a.recordPause
	for range recordTries {
		job, err = a.ctl.Job(ctx, id)
		if classOf(err) != unclear || errors.Is(err, slurm.ErrNoJob) || errors.Is(err, slurm.ErrAmbiguous) {
			break
		}
		a.log.WithError(err).WithField("job", id).Debug("the job's record was unclear")
		select {
		case <-ctx.Done():
			return job, ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2
	}
	return job, err
}
