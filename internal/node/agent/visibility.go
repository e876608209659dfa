package agent

import (
	"context"

	"caelum/internal/node/api"
	"caelum/internal/slurm"
)

// This assignment ensures that Agent implements api.Private. Without the VisibleTo method, only root could see other
// users' jobs.
var _ api.Private = (*Agent)(nil)

// VisibleTo implements api.Private. It determines which data of other users a user is allowed to see. Users never see
// more than slurmctld would show them. Unlike slurmctld, however, the agent does not show more to operators and account
// coordinators than to other users.
func (a *Agent) VisibleTo(uid uint32) api.Visibility {
	c := a.privacy.Load()
	switch slurmUser, known := slurmUserOf(c); {
	case uid == 0, known && uid == slurmUser:
		return api.SeesAll
	case a.hidesJobs():
		return api.SeesOwn
	}
	return api.SeesJobs
}

// hidesJobs reports whether users are not allowed to see other users' jobs. The result is true until slurmctld has
// answered.
func (a *Agent) hidesJobs() bool {
	c := a.privacy.Load()
	return c == nil || c.HidesJobs()
}

// publishesJobs reports whether the agent publishes the jobs that hold its slices, which the watcher needs to preempt
// and to move jobs. The result is false until slurmctld has answered, if neither Slurm's preemption nor moves_per_day
// is enabled, or if users are not allowed to see other users' jobs.
func (a *Agent) publishesJobs() bool {
	c := a.privacy.Load()
	return c != nil && (c.Preempts() || a.cfg.MovesPerDay > 0) && !c.HidesJobs()
}

// slurmUserOf returns the uid of SlurmUser, or false if it is unknown.
func slurmUserOf(c *slurm.Config) (uint32, bool) {
	if c == nil {
		return 0, false
	}
	return c.SlurmUser()
}

// learnPrivacy reads PrivateData, which `scontrol reconfigure` may change. If slurmctld does not answer, the last known
// value applies, and learned is false.
func (a *Agent) learnPrivacy(ctx context.Context) (learned bool) {
	c, err := a.ctl.Config(ctx)
	if err == nil {
		a.privacy.Store(&c)
	}
	return err == nil
}
