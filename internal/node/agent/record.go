package agent

import (
	"context"
	"errors"
	"time"

	"caelum/internal/slurm"
)

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
		if slurm.ClassOf(err) != slurm.Unclear || errors.Is(err, slurm.ErrNoJob) || errors.Is(err, slurm.ErrAmbiguous) {
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
