package agent

import (
	"context"
	"errors"

	"caelum/internal/slurm"
)

// slurmConfig returns slurmctld's configuration. It reads the configuration only once, because any change to the
// settings that the agent uses requires a restart of every slurmd. If leases cannot work with a setting, the error
// names it, and the agent publishes no offers.
func (a *Agent) slurmConfig(ctx context.Context) (slurm.Config, error) {
	a.slurmMu.Lock()
	defer a.slurmMu.Unlock()
	if a.slurm != nil {
		return *a.slurm, nil
	}
	c, err := a.ctl.Config(ctx)
	if err != nil {
		return c, err
	}
	if c.Has("PrologFlags", "RunInJob") {
		// If RunInJob is set, slurmd silently skips the SPANK prolog and epilog, and jobs would run without slices
		// (docs/slurm-releases.md, "Prolog and epilog").
		return c, errors.New("PrologFlags=RunInJob in slurm.conf keeps the SPANK prolog from running; " +
			"remove RunInJob; restart slurmctld and every slurmd, and then caelumd")
	}
	if !c.Has("PrologFlags", "Alloc") {
		a.log.Warn("PrologFlags in slurm.conf does not include Alloc: " +
			"a job on several nodes gets its slices only on nodes where a step runs; add Alloc")
	}
	if err := a.confine(c); err != nil {
		return c, err
	}
	a.slurm = &c
	a.privacy.Store(&c)
	return c, nil
}
