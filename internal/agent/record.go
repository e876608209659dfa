package agent

import (
	"caelum/internal/slurm"
	"context"
	"errors"
	"time"
)

// class is the class of an error that occurred when the agent queried slurmctld about a job. The class determines how
// the prolog of the job handles the error.
type class int

const (
	none    class = iota // no error
	unclear              // the job's record is inconsistent or unreadable, which any user can cause
	later                // slurmctld does not answer, which is not a defect of the node
	defect               // this node cannot query slurmctld
)

// classOf returns the class of an error. No other function classifies errors. The class of an unknown error is unclear,
// so that an unknown error affects only the job and not the node.
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

// recordTries limits how often the agent reads an unclear job record. recordPause is the first pause between two
// readings. Each further pause is twice as long as the previous pause. The pauses between the readings add up to 1.5 s.
const (
	recordTries = 5
	recordPause = 100 * time.Millisecond
)

// readJob reads the record of a job from slurmctld. If the record is unclear, readJob reads the record again. A record
// can be unclear because the job's user changed the job between the calls of squeue and scontrol.
func (a *Agent) readJob(ctx context.Context, id uint32) (job slurm.Job, err error) {
	pause := a.recordPause
	for range recordTries {
		job, err = a.ctl.Job(ctx, id)
		if classOf(err) != unclear || errors.Is(err, slurm.ErrNoJob) || errors.Is(err, slurm.ErrAmbiguous) {
			break
		}
		a.log.WithError(err).WithField("job", id).Debug("the job's record was unclear; reading the record again")
		select {
		case <-ctx.Done():
			return job, ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2
	}
	return job, err
}
