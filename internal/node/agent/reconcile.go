package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/ledger"
	"caelum/internal/node/state"
	"caelum/internal/slurm"
)

// load reads the ledger into memory and reports whether the node has been rebooted since the agent last started. If so,
// it clears the ledger, because the earlier instances and jobs no longer exist.
func (a *Agent) load() (rebooted bool, err error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return false, err
	}
	id := strings.TrimSpace(string(boot))
	last, err := a.ledger.Meta("boot_id")
	if err != nil {
		return false, err
	}
	if last != id {
		if err := errors.Join(a.ledger.Clear(), a.ledger.SetMeta("boot_id", id)); err != nil {
			return false, err
		}
	}
	if err := a.ledger.SetMeta("node", a.cfg.Node); err != nil {
		return false, err
	}
	rebooted = last != "" && last != id
	instances, err := a.ledger.Instances()
	if err != nil {
		return false, err
	}
	for g, c := range a.node.Cards {
		held := slices.DeleteFunc(slices.Clone(instances), func(in ledger.Instance) bool { return in.GPU != c.UUID })
		if c.Model == nil || len(held) == 0 {
			continue
		}
		if err := a.adoptInstances(g, c, held); err != nil {
			return false, err
		}
	}
	former, err := a.ledger.FormerUsers()
	if err != nil {
		return false, err
	}
	for _, f := range former {
		a.node.Former[state.Minors{GPU: f.GPU, GI: f.GI}] = f.UID
	}
	leases, err := a.ledger.Leases()
	for _, l := range leases {
		a.node.Leases[l.Job] = &l
	}
	a.node.RenameLeases()
	return rebooted, err
}

// closeIdle ensures that only root can open an instance of the given GPUs that is not held by a job. After a crash,
// users might have access to an idle instance, because the agent may have crashed before it wrote a lease, or before it
// restricted the capability files of a new instance to root. No prolog may use the GPUs during the call.
func (a *Agent) closeIdle(cards []*state.Card) {
	var idle []placed
	a.node.Lock()
	for _, c := range cards {
		for _, in := range c.Ours {
			if in.Job == 0 {
				idle = append(idle, placed{slices.Index(a.node.Cards, c), in})
			}
		}
	}
	a.node.Unlock()
	for _, p := range idle {
		if err := a.caps.Close(a.node.Cards[p.gpu].Minor, a.node.HardwareOf(p.in)); err != nil {
			a.log.WithError(err).WithField("gpu", p.gpu).Error("couldn't restrict an idle instance's files to root")
		}
	}
	if _, err := a.setHeldAside(idle); err != nil {
		a.log.WithError(err).Error("couldn't set aside the instances that processes hold open")
	}
}

// compareGPUs compares the instances on every GPU with the ledger, and corrects whichever of the two is wrong:
//
//	on the GPU, in the ledger       the agent's own instance
//	on the GPU, intent to create    created before a crash: becomes idle, or is destroyed if incomplete
//	only on the GPU                 foreign: its units are occupied, and the agent never changes the instance
//	only in the ledger              removed by another program: removed from the ledger, and logged
//	only an intent                  the driver was not called, or has destroyed the instance: the intent is settled
func (a *Agent) compareGPUs() error {
	var all error
	for g, c := range a.node.Cards {
		if err := a.compareGPU(g, c); err != nil {
			all = errors.Join(all, fmt.Errorf("GPU %d: %w", g, err))
		}
	}
	return all
}

// compareGPU is like compareGPUs, but for one GPU. If the GPU was lost, it checks whether the driver can reach it
// again. It makes no driver calls for a GPU that was withdrawn after a fatal Xid error, because they may hang.
func (a *Agent) compareGPU(g int, c *state.Card) error {
	c.Hardware.Lock()
	defer c.Hardware.Unlock()
	switch {
	case a.node.Usable(c):
		return a.repair(g, c)
	case a.node.IsWithdrawn(c):
		return nil
	}
	return a.takeBack(g, c)
}

// repair implements compareGPU for a usable GPU. The caller holds the card's hardware lock.
func (a *Agent) repair(g int, c *state.Card) error {
	found, err := a.hw.Instances(g)
	if errors.Is(err, gpu.ErrLost) {
		a.node.Lock()
		c.Problem = gpu.Lost
		a.node.Version++
		a.node.Unlock()
		return err
	} else if err != nil {
		return err
	}
	// No driver call is running for this GPU. Intents for it therefore stem from a crash, or from a failed write to the
	// ledger.
	intents, err := a.ledger.Intents()
	if err != nil {
		return err
	}
	changed := false
	for _, i := range intents {
		if i.GPU == c.UUID {
			if err := a.settle(g, c, i, found); err != nil {
				return err
			}
			changed = true
		}
	}
	changed = a.retryStuck(g, c) || changed
	a.retryHeld(g, c)
	if changed {
		if found, err = a.hw.Instances(g); err != nil {
			return err
		}
	}
	if err := a.caps.CloseUnused(c.Minor, found); err != nil {
		a.log.WithError(err).WithField("gpu", g).Warn("couldn't restrict the files of removed instances to root")
	}
	for _, in := range a.compare(g, c, found) {
		if err := a.forgetGone(g, in); err != nil {
			return err
		}
	}
	a.node.Lock()
	full := c.IsFull()
	a.node.Unlock()
	if full {
		a.checkFabric(g, c)
		return nil
	}
	return a.shareDevice(c)
}

// compare records the instances that were found on a GPU, and returns, by placement, the agent's instances that were
// not found.
func (a *Agent) compare(g int, c *state.Card, found []gpu.Instance) (missing map[int]*state.Instance) {
	a.node.Lock()
	defer a.node.Unlock()
	var foreign []gpu.Instance
	missing = maps.Clone(c.Ours)
	for _, f := range found {
		p, _ := c.Model.Placement(f.Profile, f.Start)
		if in := c.Ours[p]; in != nil && in.GI == f.GI && (in.UUID == f.UUID || f.UUID == "") {
			in.CIs, in.SMs, in.MaxSMs = f.CIs, f.SMs, f.MaxSMs
			delete(missing, p)
			continue
		}
		foreign = append(foreign, f)
	}
	if !reflect.DeepEqual(foreign, c.Foreign) {
		for _, f := range foreign {
			if !contains(c.Foreign, f) {
				a.log.WithField("gpu", g).
					WithField("gi", f.GI).
					Warnf("%s at %d was created by another program; the agent does not change it or offer its units",
						f.Profile, f.Start)
			}
		}
		c.Foreign = foreign
		a.node.Version++
	}
	return missing
}

// settle resolves an intent that an earlier driver call left in the ledger. A complete instance on the GPU is
// recorded as idle, and a GPU instance without its compute instance is destroyed. If the GPU instance does not exist,
// only the ledger is corrected.
func (a *Agent) settle(g int, c *state.Card, i ledger.Intent, found []gpu.Instance) error {
	log := a.log.WithField("gpu", g).WithField("intent", i.Op)
	p, ok := c.Model.Placement(i.Profile, i.Start)
	if !ok {
		return a.ledger.Failed(i.ID)
	}
	var there *gpu.Instance
	for k := range found {
		if found[k].Profile == i.Profile && found[k].Start == i.Start {
			there = &found[k]
		}
	}
	switch {
	case there == nil && i.Op == ledger.OpCreate && i.Profile == mig.Full:
		// The driver may have recorded a switch that it has not carried out yet. Destroy cancels this switch.
		return errors.Join(a.hw.Destroy(g, gpu.FullGI), a.ledger.Failed(i.ID))
	case there == nil && i.Op == ledger.OpCreate:
		return a.ledger.Failed(i.ID)
	case there == nil:
		a.node.Lock()
		reused := c.Reused(i.GI, c.Ours[p])
		delete(c.Ours, p)
		a.node.Unlock()
		if reused { // after a failed write to the ledger
			return a.ledger.Failed(i.ID)
		}
		return a.ledger.Destroyed(i.ID, c.UUID, i.GI)
	case len(there.CIs) == 1 && there.UUID != "":
		log.Infof("adopting %s at %d after an interrupted driver call", i.Profile, i.Start)
		return a.settleMade(c, p, i, *there)
	default: // a GPU instance without a compute instance
		log.Infof("destroying %s at %d, which has no compute instance", i.Profile, i.Start)
		if err := a.discard(g, *there); err != nil {
			return err
		}
		a.node.Lock()
		delete(c.Ours, p)
		a.node.Unlock()
		return a.ledger.Destroyed(i.ID, c.UUID, there.GI)
	}
}

// settleMade settles an intent whose instance exists on the GPU at placement p, and records the instance as idle.
func (a *Agent) settleMade(c *state.Card, p int, i ledger.Intent, there gpu.Instance) error {
	if err := a.caps.Make(c.Minor, there); err != nil {
		return err
	}
	in := c.NewInstance(p, there)
	a.node.Lock()
	old := c.Ours[p]
	a.node.Unlock()
	if old != nil && old.UUID == in.UUID {
		return a.ledger.Failed(i.ID)
	}
	if err := a.ledger.Created(i.ID, in.Instance); err != nil {
		return err // the next comparison will find the intent
	}
	a.node.Lock()
	defer a.node.Unlock()
	c.Ours[p] = in
	a.node.Version++
	return nil
}

// contains reports whether a list contains an instance. A later instance with the same GI differs in its UUID.
func contains(list []gpu.Instance, in gpu.Instance) bool {
	return slices.ContainsFunc(list, func(x gpu.Instance) bool { return x.GI == in.GI && x.UUID == in.UUID })
}

// releaseGone releases the leases of jobs that slurmctld no longer lists on this node and whose epilog did not run. It
// uses the job list of the last pass, but queries slurmctld again before it releases a lease.
func (a *Agent) releaseGone(ctx context.Context) error {
	a.node.Lock()
	held := make([]api.Lease, 0, len(a.node.Leases))
	for _, l := range a.node.Leases {
		held = append(held, *l)
	}
	here := a.node.Here
	a.node.Unlock()
	// A completing job keeps its slices until its epilog has run. If the job is about to be requeued, it already has
	// the restart count of its next run. If a job that holds resources has a higher restart count than the lease, the
	// lease belongs to an earlier run.
	keeps := func(l api.Lease, j slurm.Job) bool { return !j.Holds() || j.Restarts <= l.Restart }
	for _, l := range held {
		if j, ok := here[l.Job]; ok && keeps(l, j) {
			a.usage.Confirm(l.Job)
			continue
		}
		j, err := a.ctl.Job(ctx, l.Job)
		switch class := slurm.ClassOf(err); {
		case errors.Is(err, slurm.ErrNoJob):
		case class == slurm.Unclear && j.ID != l.Job:
			a.log.WithError(err).WithField("job", l.Job).
				Debug("couldn't determine whether a job has ended; keeping its lease")
			continue // the unclear record of one job must not prevent the check of other leases
		case class == slurm.Later, class == slurm.Defect:
			return err
		}
		if !errors.Is(err, slurm.ErrNoJob) && j.Present() && slices.Contains(j.Nodes, a.cfg.Node) && keeps(l, j) {
			a.usage.Confirm(l.Job)
			continue // the job started on this node after the last pass
		}
		a.log.WithField("job", l.Job).Warn("the job ended without an epilog; releasing its slices")
		if err := a.releaseJob(ctx, l.Job, l.Restart, true); err != nil {
			return err
		}
	}
	return nil
}
