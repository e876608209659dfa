package eligible

import (
	"time"

	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// HeldByTag reports whether job_submit.lua holds the job until an agent releases it. This includes jobs that were
// requeued and held, and jobs with the reason BadConstraints: if a released job's slice is withdrawn before the job
// starts, slurmctld sets its reason to BadConstraints and its priority to 0, and an agent can release it again. It
// returns false for jobs with the reason JobHeldAdmin, on which root has put an additional hold (22.05.8).
func HeldByTag(w slurm.Waiting) bool {
	switch w.Reason {
	case "JobHeldUser", "BadConstraints", "job requeued in held state":
		return w.State == "PENDING" && w.Priority == 0 && w.Problem == "" && tags.Has(w.AdminComment, tags.Held)
	}
	return false
}

// TooLate reports whether slurmctld would end the job instead of starting it, because its latest start time has passed.
// Before 23.11.4, slurmctld checks the deadlines of jobs only when it schedules them. A held job would therefore wait
// forever (deadline_ok and purge_old_job, 22.05.8 to 26.05.3).
func TooLate(w slurm.Waiting, at time.Time) bool {
	latest := w.LatestStart()
	return !latest.IsZero() && at.After(latest)
}

// forgetting is the additional delay before the release of a requeued job. As long as slurmd remembers an earlier run
// of a job, it does not run the job's prolog. In 22.05, slurmd may remember the run for two seconds longer than
// slurmctld delays the job (_clear_expired_job_states in slurm_cred.c; fixed in 24.11).
const forgetting = 3 * time.Second

// HeldForSlices reports whether the job is held until its slices are offered. There are two kinds of such jobs: jobs
// that job_submit.lua held at submission, because slurmctld would have rejected them while no node offered their
// slices, and jobs that slurmctld set to BadConstraints after their release, because their slices were no longer
// offered. Jobs that were held by a user or an administrator do not have the tags.
func HeldForSlices(w slurm.Waiting) bool {
	return HeldByTag(w) || w.Reason == "BadConstraints" && tags.Has(w.AdminComment, tags.Released)
}

// Releasable reports whether an agent can release the job at the given time: it is held for its slices and neither its
// dependency nor its begin time delays it.
func Releasable(w slurm.Waiting, at time.Time) bool {
	if w.Dependency != "" {
		return false // the job would wait even if its slices were offered
	}
	due := w.Job.Eligible
	if w.Restarts > 0 {
		due = due.Add(forgetting)
	}
	if due.After(at) {
		return false
	}
	return HeldForSlices(w)
}
