package agent

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/failpoint"
	"caelum/internal/node/api"
	"caelum/internal/slurm"
)

// growTimeout is the time limit for one growth. The plugin waits 5 s for the answer to the epilog. If slurmctld
// received the requeue only after the last epilog, dependent jobs would already have seen the failure.
const growTimeout = 4 * time.Second

// growAfterFailure requeues a job with the next sufficient profile if the job has failed because it ran out of GPU
// memory. The job's epilog calls it before the agent releases the lease. Because slurmctld changes a failed job's
// admin_comment only after the requeue, the job reruns with its old profile if the agent is killed between these steps.
func (a *Agent) growAfterFailure(ctx context.Context, lease api.Lease) {
	if lease.Grow == "" {
		return
	}
	run, ok := a.failedRun(lease.Job)
	if !ok {
		return
	}
	runs := append(a.earlierRuns(ctx, run), run)
	if _, short := predict.RanOut(runs, nil, a.cfg.Site()); !short {
		return // even if the job failed, memory was not the reason
	}
	log := a.log.WithField("job", lease.Job)
	job, err := a.ctl.Job(ctx, lease.Job)
	if err != nil {
		log.WithError(err).Warn("couldn't check whether the job ran out of GPU memory; if it failed, it will not be " +
			"requeued")
		return
	}
	if !job.Failed() || job.Restarts != lease.Restart || tags.GrowMode(job) == "" {
		return
	}
	need, short := predict.RanOut(runs, tags.Growths(job), a.cfg.Site())
	if !short {
		log.Info("the job failed, but did not run out of GPU memory: its peak would fit into a smaller slice that it " +
			"had earlier")
		return
	}
	growth := growthOf(job, run, predict.RanOutOfMemory, run.PeakMiB)
	larger, err := a.larger(job, lease, runs, need)
	if err != nil {
		log.WithError(err).Info("the job ran out of GPU memory and will not be requeued")
		return
	}
	a.usage.MarkEnd(job.ID, predict.EndOOM, 0)
	if err := a.ctl.RequeueFailed(ctx, job.ID); err != nil {
		a.usage.MarkEnd(job.ID, "", 0)
		log.WithError(err).Warn("couldn't requeue a job that ran out of GPU memory; the failure is final")
		return
	}
	failpoint.Hit(failpoint.GrowRequeued)
	err = a.ctl.SetAdminComment(ctx, job.ID, grownComment(job, larger, growth))
	failpoint.Hit(failpoint.GrowTagged)
	if err == nil {
		err = a.ctl.Hold(ctx, job.ID)
	}
	failpoint.Hit(failpoint.GrowHeld)
	if err == nil {
		err = a.restoreHeld(ctx, job.ID)
	}
	if err != nil {
		log.WithError(err).Warn("requeued a job that ran out of GPU memory, but couldn't change its profile")
		return
	}
	a.metrics.Grew(growth.Cause)
	log.WithFields(fieldsOf(growth, larger)).
		Info("requeued a job that ran out of GPU memory, with a larger profile")
}

// restoreHeld restores a held job's Held tag. After the tag was set and before the job was held, another agent's pass
// may have mistaken the job for a released one and replaced the tag. In that case, no agent would release the job.
func (a *Agent) restoreHeld(ctx context.Context, id uint32) error {
	job, err := a.ctl.Job(ctx, id)
	if err != nil || job.Priority > 0 || tags.Has(job.AdminComment, tags.Held) {
		return err
	}
	return a.ctl.SetAdminComment(ctx, id, tags.Replace(job.AdminComment, tags.Released, tags.Held))
}

// growBeforeFailure gives a running job a larger fraction, or requeues it, if the forecast of its peak memory use
// exceeds its slice's memory. At a requeue, slurmctld sends SIGTERM to the job, and SIGKILL after KillWait. If the
// agent is killed between the steps, the next forecast repeats them.
func (a *Agent) growBeforeFailure(ctx context.Context, id uint32, foreseenMiB float64) {
	unlock := a.jobs.tryLock(id)
	if unlock == nil {
		return // the job is starting or ending; otherwise, the next forecast repeats this one
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, growTimeout) // the epilog of the job waits for the lock
	defer cancel()
	a.node.Lock()
	lease := a.node.Leases[id]
	a.node.Unlock()
	run, ok := a.runOf(id)
	if lease == nil || lease.Grow != string(predict.Foreseen) || !ok || enough(*lease, foreseenMiB) {
		return
	}
	runs := a.earlierRuns(ctx, run)
	need, credible := predict.Foresaw(runs, run, foreseenMiB, a.cfg.Site())
	if !credible {
		return
	}
	log := a.log.WithField("job", id).WithField("foreseen_mib", math.Round(foreseenMiB))
	job, err := a.ctl.Job(ctx, id)
	if err != nil {
		log.WithError(err).Warn("couldn't read the record of a job that will run out of GPU memory; trying again")
		return
	}
	if job.State != "RUNNING" || job.Restarts != lease.Restart || tags.GrowMode(job) != predict.Foreseen {
		return
	}
	if a.growInPlace(ctx, *lease, need) {
		return
	}
	larger, err := a.larger(job, *lease, append(runs, run), need)
	if err != nil {
		if a.mayLog(growKey(id)) {
			log.WithError(err).Info("a job will run out of GPU memory, but it will not be requeued")
		}
		return
	}
	growth := growthOf(job, run, predict.Foreseen, foreseenMiB)
	if err := a.ctl.SetAdminComment(ctx, id, grownComment(job, larger, growth)); err != nil {
		log.WithError(err).Warn("couldn't change the profile of a job that will run out of GPU memory; trying again")
		return
	}
	failpoint.Hit(failpoint.ForeseenTagged)
	a.usage.MarkEnd(id, predict.EndForeseen, foreseenMiB)
	if err := a.ctl.RequeueHold(ctx, id); err != nil {
		a.usage.MarkEnd(id, "", 0)
		log.WithError(err).Warn("couldn't requeue a job that will run out of GPU memory; trying again")
		return
	}
	failpoint.Hit(failpoint.ForeseenRequeued)
	a.metrics.Grew(growth.Cause)
	log.WithFields(fieldsOf(growth, larger)).
		Info("requeued a job before its GPU memory would run out, with a larger profile")
}

func fieldsOf(g predict.Growth, larger string) logrus.Fields {
	return logrus.Fields{"profile": g.Profile, "peak_mib": math.Round(g.MiB), "larger": larger}
}

// enough reports whether each slice of a lease has at least mib MiB of memory. This is possible if the forecast was
// made for an earlier run.
func enough(lease api.Lease, mib float64) bool {
	return !slices.ContainsFunc(lease.Slices, func(s api.Slice) bool { return float64(s.MemoryMiB) < mib })
}

// foreseen is a forecast that a running job's peak memory use will exceed its slice's memory.
type foreseen struct {
	job uint32
	mib float64
}

// foresee queues a call to growBeforeFailure, because a sampler must not wait for slurmctld. If the queue is full,
// the forecast is dropped; the monitor will repeat it.
func (a *Agent) foresee(job uint32, f predict.Forecast) {
	a.metrics.Foresaw()
	select {
	case a.forecasts <- foreseen{job, f.PeakMiB}:
	default:
	}
}

// grower calls growBeforeFailure for the queued forecasts until ctx is done.
func (a *Agent) grower(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-a.forecasts:
			a.growBeforeFailure(ctx, f.job, f.mib)
		}
	}
}

// failedRun returns the current run of a job in the form of a failed run. It returns false if the run was not observed.
func (a *Agent) failedRun(id uint32) (run predict.Run, ok bool) {
	if run, ok = a.runOf(id); ok {
		run.State, run.Exit = "FAILED", 1 // the job's state before the requeue; its exact exit status does not matter
		if a.usage.OutOfMemory(id) {
			run.End = predict.EndOOM
		}
	}
	return run, ok
}

// growKey is the key for rate-limiting the log lines about a job that does not grow.
type growKey uint32

// earlierRuns returns the stored runs with the same job key as run, oldest first, except run itself. The result is
// empty if the repository does not answer before ctx is done.
func (a *Agent) earlierRuns(ctx context.Context, run predict.Run) (runs []predict.Run) {
	if a.repository == nil || run.Key == "" {
		return nil
	}
	type answer struct {
		runs []predict.Run
		err  error
	}
	read := make(chan answer, 1)
	go func() { // another process may have locked the repository
		runs, err := a.repository.RunsOfKey(run.UID, run.Key)
		read <- answer{runs, err}
	}()
	var err error
	select {
	case r := <-read:
		runs, err = r.runs, r.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		a.log.WithError(err).WithField("job", run.Job).Warn("couldn't read the earlier runs of a job")
	}
	return slices.DeleteFunc(runs, func(r predict.Run) bool { return r.Job == run.Job && r.Restart == run.Restart })
}

// growthOf returns the Growth that follows a job's run. The argument mib is the observed peak or its forecast, in MiB.
func growthOf(job slurm.Job, run predict.Run, cause predict.Cause, mib float64) predict.Growth {
	g := predict.Growth{Profile: run.Profile, Cause: cause, MiB: mib}
	if requested := job.SlicesPerNode()[0].Type; requested != run.Profile {
		g.Requested = requested
	}
	return g
}

// grownComment returns the admin_comment of a job that has grown. It contains the Held tag, so an agent releases the
// job when its slices are offered.
func grownComment(job slurm.Job, larger string, g predict.Growth) string {
	return tags.Replace(tags.Regrown(job, larger, g), tags.Released, tags.Held)
}
