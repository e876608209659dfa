package agent

import (
	"cmp"
	"fmt"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/node/gpu"
	"caelum/internal/node/ledger"
	"caelum/internal/node/state"
)

// adoptInstances loads a GPU's instances from the ledger and changes their profile names to those that the driver
// reports. It removes from the ledger any instance that is no longer on the GPU and whose profile the driver does not
// report.
func (a *Agent) adoptInstances(g int, c *state.Card, held []ledger.Instance) error {
	found, err := a.hw.Instances(g)
	if err != nil { // the GPU is lost; compareGPUs reports this
		a.log.WithError(err).WithField("gpu", g).Error("couldn't list the instances")
	}
	for _, in := range held {
		if i := slices.IndexFunc(found, func(f gpu.Instance) bool {
			return f.GI == in.GI && f.Start == in.Start && f.Size == in.Size && f.UUID == in.UUID
		}); i >= 0 && found[i].Profile != in.Profile {
			a.log.WithField("gpu", g).
				WithField("uuid", in.UUID).
				Warnf("the driver now reports %s at %d as %s", in.Profile, in.Start, found[i].Profile)
			in.Profile = found[i].Profile
		}
		fraction, used := mig.IsFraction(in.Profile), in.Job != 0 || in.Stuck
		if p, ok := c.Model.Placement(in.Profile, in.Start); ok && fraction && !used {
			// An idle fraction saves no time. In an outdated ledger, it may occupy the units of a job's.
			if err := a.ledger.Forget(c.UUID, in.GI); err != nil {
				return err
			}
		} else if ok {
			c.Ours[p] = &state.Instance{Instance: in}
		} else if fraction && used {
			return fmt.Errorf("job %d, or one that has just ended, holds %s of GPU %d, which the GPU no longer has "+
				"(%s); restore `fractions` in caelum.yaml until the job has ended",
				in.Job, in.Profile, c.Index, cmp.Or(c.Undivided, "`fractions` has changed"))
		} else if err == nil {
			a.logGone(g, in)
			if err := a.ledger.Forget(c.UUID, in.GI); err != nil {
				return err
			}
		}
	}
	return nil
}

// logGone logs that an instance is no longer on its GPU.
func (a *Agent) logGone(g int, in ledger.Instance) {
	log := a.log.WithField("gpu", g).WithField("uuid", in.UUID)
	if in.Job != 0 {
		log.WithField("job", in.Job).
			Errorf("%s at %d was removed by another program while the job held it; the job will fail",
				in.Profile, in.Start)
	} else {
		log.Warnf("%s at %d was removed by another program", in.Profile, in.Start)
	}
}
