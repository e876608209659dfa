package eligible

import (
	"time"

	"caelum/internal/slurm"
	"caelum/internal/tags"
)

// HeldByTag reports whether job_submit.lua holds the job until an agent releases it. This includes jobs that were
// requeued and held, and jobs with the reason BadConstraints: if the slice of a released job is withdrawn before the
// job starts, the job gets this reason and the priority 0, and can be released again. It does not include jobs with the
// reason JobHeldAdmin, which root has held in addition to the tag (22.05.8).
func HeldByTag(w slurm.Waiting) bool {
	switch w.Reason {
	case "JobHeldUser", "BadConstraints", "job requeued in held state":
		return w.State == "PENDING" && w.Priority == 0 && w.Problem == "" && tags.Has(w.AdminComment, tags.Held)
	}
	return false
}

// forgetting is the additional delay before the release of a requeued job. While slurmd remembers an earlier run of a
// job, it runs no prolog for the job. In 22.05, slurmd may remember the run for two seconds longer than slurmctld
// delays the job (_clear_expired_job_states in slurm_cred.c; corrected in 24.11).
const forgetting = 3 * time.Second

// Releasable reports whether an agent may release the job at the time at. There are two cases. job_submit.lua may have
// held the job at submission, because slurmctld would have rejected it while its slices were not offered. Or slurmctld
// may have set the job to BadConstraints after its release, because its slices were no longer offered. A job that was
// held by a user or an administrator has no tag, and is not releasable. A job with an unfulfilled dependency is not
// releasable either.
func Releasable(w slurm.Waiting, at time.Time) bool {
	if w.Dependency != "" {
		return false // the job would still wait while its slices are offered
	}
	due := w.Job.Eligible
	if w.Restarts > 0 {
		due = due.Add(forgetting)
	}
	if due.After(at) {
		return false
	}
	return HeldByTag(w) || w.Reason == "BadConstraints" && tags.Has(w.AdminComment, tags.Released)
}
