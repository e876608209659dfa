package agent

import (
	"context"

	"caelum/internal/api"
	"caelum/internal/slurm"
)

// Sight implements api.Private: peers see no more of other users' jobs than slurmctld shows them. Operators and
// coordinators of accounts, to whom slurmctld shows more, ask it or become root.
func (a *Agent) Sight(uid uint32) api.Visibility {
	c := a.privacy.Load()
	switch slurmUser, known := slurmUserOf(c); {
	case uid == 0, known && uid == slurmUser:
		return api.SeesAll
	case a.hidesJobs():
		return api.SeesOwn
	}
	return api.SeesJobs
}

// hidesJobs reports whether users may not see other users' jobs. They may not until slurmctld has answered.
func (a *Agent) hidesJobs() bool {
	c := a.privacy.Load()
	return c == nil || c.HidesJobs()
}

func slurmUserOf(c *slurm.Config) (uint32, bool) {
	if c == nil {
		return 0, false
	}
	return c.SlurmUser()
}

// learnPrivacy reads PrivateData, which `scontrol reconfigure` may change. While slurmctld does not answer what it
// said last counts.
func (a *Agent) learnPrivacy(ctx context.Context) {
	if c, err := a.ctl.Config(ctx); err == nil {
		a.privacy.Store(&c)
	}
}
