package agent

import (
	"context"
	"errors"

	"caelum/internal/slurm"
)

// slurmConfig is slurmctld's configuration. It is read once: what of it matters here changes only with a restart of
// every slurmd. The error names a setting under which leases cannot work; nothing is published then.
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
		// From 24.11 it skips SPANK's prolog and epilog without a word: jobs would run with no slice.
		return c, errors.New(
			"PrologFlags=RunInJob in slurm.conf keeps the SPANK prolog from running; remove it, restart slurmctld and every slurmd, then caelumd",
		)
	}
	if !c.Has("PrologFlags", "Alloc") {
		a.log.Warn(
			"PrologFlags in slurm.conf is without Alloc: a job on several nodes gets its slices only where a step reaches; add it",
		)
	}
	if err := a.confine(c); err != nil {
		return c, err
	}
	a.slurm = &c
	a.privacy.Store(&c)
	return c, nil
}
