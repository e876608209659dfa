package agent

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/failpoint"
	"caelum/internal/node/api"
	"caelum/internal/node/metrics"
	"caelum/internal/node/state"
)

// preparePending returns the job's pending lease, with spots. Normally, the last pass has recorded it. Otherwise, the
// spots come from the current offers or, if these do not include the job's slices, from a pass that searches for free
// spots. The result is nil if the pass does not find any. The error is api.NotNow if the pass fails before it finds
// free spots.
func (a *Agent) preparePending(
	ctx context.Context, id, array uint32, wants []offer.Want, s *spent,
) (*state.PendingLease, error) {
	a.node.Lock()
	pr := a.node.Pending[id]
	if pr == nil || !reflect.DeepEqual(pr.Wants, wants) {
		var ok bool
		if pr, ok = a.node.TakeOffers(id, array, wants); !ok {
			pr = &state.PendingLease{Wants: wants}
			a.node.Pending[id] = pr
			a.node.Version++
		}
	}
	pr.Leasing = true
	has := pr.Spots != nil
	a.node.Unlock()
	if has {
		return pr, nil
	}
	asked := time.Now()
	err := a.Publish(ctx)
	add(&s.slurmctld, asked)
	a.node.Lock()
	defer a.node.Unlock()
	switch {
	case pr.Spots != nil:
		return pr, nil
	case err != nil: // for example publish.ErrBusy
		return nil, api.NotNow(err.Error())
	}
	return nil, nil
}

// carveAll carves all slices of a pending lease. If one of them cannot be carved, the slices that have already been
// carved remain as idle instances.
func (a *Agent) carveAll(
	id uint32,
	uid uint32,
	slots []int,
	pr *state.PendingLease,
	t *spent,
	search *search,
) (all []api.Slice, held []*state.Instance, err error) {
	var at []placed
	created := false
	made, err := a.carveSpots(id, uid, pr.Spots, t)
	if err != nil {
		return nil, nil, err
	}
	for k, s := range pr.Spots {
		in, reused := made[k].in, made[k].reused
		model := a.node.Cards[s.GPU].Model
		slice := api.Slice{
			Slot: slots[k], GPU: s.GPU, Profile: in.Profile, Start: in.Start, Size: in.Size,
			MemoryMiB: model.Profiles[model.Placements[s.Placement].Profile].MemoryMiB, UUID: in.UUID, Reused: reused,
		}
		slice.AdvertisedAs = advertisedAs(pr.Wants, in.Profile)
		all = append(all, slice)
		held = append(held, in)
		at = append(at, placed{s.GPU, in})
		created = created || made[k].made
	}
	// The capability files have belonged to root since the agent released or created the instance, so a process that
	// has one of them open must have opened it earlier.
	if used, err := a.setAsideBeforeGrant(at, created, search); len(used) > 0 || err != nil {
		for _, u := range used {
			err = errors.Join(usedError(u.gpu, u.in), err)
		}
		return nil, nil, err
	}
	return all, held, nil
}

// advertisedAs returns the name under which slurmctld counts a job's slice, or "" if this is the slice's profile.
func advertisedAs(wants []offer.Want, profile string) string {
	asked := offer.RequestedAs(wants, profile)
	if len(wants) == 1 && mig.IsFraction(profile) {
		asked = wants[0].Profile // the fraction may have grown in place
	}
	if asked == profile {
		return ""
	}
	return asked
}

// carveSpots carves the instances at the spots of a pending lease. It works on all GPUs in parallel, because switching
// the MIG mode takes several seconds per GPU.
func (a *Agent) carveSpots(id, uid uint32, spots []offer.Spot, t *spent) ([]carved, error) {
	all := make([]carved, len(spots))
	errs := make([]error, len(a.node.Cards))
	times := make([]spent, len(a.node.Cards))
	var tasks sync.WaitGroup
	for g := range a.node.Cards {
		if !slices.ContainsFunc(spots, func(s offer.Spot) bool { return s.GPU == g }) {
			continue
		}
		tasks.Go(func() {
			for k, s := range spots {
				if s.GPU == g && errs[g] == nil {
					all[k], errs[g] = a.carve(id, uid, s, &times[g])
				}
			}
		})
	}
	tasks.Wait()
	longest := spent{}
	for _, own := range times {
		longest.driver = max(longest.driver, own.driver)
		longest.slurmctld = max(longest.slurmctld, own.slurmctld)
	}
	t.driver += longest.driver
	t.slurmctld += longest.slurmctld
	return all, errors.Join(errs...)
}

// grant first changes the owner of the capability files, then writes the lease to the ledger and the job map, and then
// writes the lease file. A visible lease is therefore always complete.
func (a *Agent) grant(lease api.Lease, held []*state.Instance) (api.Lease, error) {
	if err := a.open(lease, held); err != nil {
		return lease, errors.Join(err, a.takeFiles(lease, held))
	}
	failpoint.Hit(failpoint.GrantOpened)
	if err := a.ledger.Grant(lease, ledgerInstances(held)); err != nil {
		return lease, errors.Join(err, a.takeFiles(lease, held))
	}
	failpoint.Hit(failpoint.GrantWritten)
	a.node.Lock()
	for _, in := range held {
		in.Job, in.User = lease.Job, &lease.UID
	}
	a.node.Leases[lease.Job] = &lease
	delete(a.node.Pending, lease.Job)
	a.node.Version++
	a.node.Unlock()
	a.updateJobMap()
	failpoint.Hit(failpoint.GrantMapped)
	for _, s := range lease.Slices {
		a.log.WithField("job", lease.Job).
			WithField("restart", lease.Restart).
			WithField("gpu", s.GPU).
			WithField("uuid", s.UUID).
			WithField("reused", s.Reused).
			Infof("leased %s at %d", s.Profile, s.Start)
	}
	if err := a.writeLeaseFile(lease); err != nil {
		return lease, err
	}
	failpoint.Hit(failpoint.Granted)
	a.observe(lease)
	a.publisher.Soon()
	return lease, nil
}

// open makes the lease's user the owner of the capability files. From then on, the user may have used the instances,
// even if the lease is not granted.
func (a *Agent) open(lease api.Lease, held []*state.Instance) error {
	a.node.Lock()
	for _, in := range held {
		in.Fresh, in.User = false, nil
		a.node.Former[state.Minors{GPU: in.GPU, GI: in.GI}] = lease.UID
	}
	a.node.Unlock()
	for k, in := range held {
		if err := a.openFiles(a.node.Cards[lease.Slices[k].GPU], in, lease); err != nil {
			return err
		}
	}
	return nil
}

// takeFiles restricts the capability files of a lease that was not granted to root again, and sets aside the instances
// that a process holds open.
func (a *Agent) takeFiles(lease api.Lease, held []*state.Instance) error {
	var all []placed
	var errs error
	for k, in := range held {
		g := lease.Slices[k].GPU
		all = append(all, placed{g, in})
		errs = errors.Join(errs, a.closeFiles(a.node.Cards[g], in, lease.Job))
	}
	_, err := a.setHeldAside(all)
	return errors.Join(errs, err, a.unlimit(lease, held))
}

// refuse grants a lease without slices and writes the reason to the lease file. At task_init, the plugin makes the job
// fail with this reason, and Slurm does not drain the node.
func (a *Agent) refuse(lease api.Lease, reason string) (api.Lease, error) {
	a.metrics.Failed(metrics.Refuse)
	return a.grantNone(lease, reason)
}

// grantNone is like refuse, but does not count a refusal. The caller has requeued the job.
func (a *Agent) grantNone(lease api.Lease, reason string) (api.Lease, error) {
	lease.Error = reason
	a.log.WithField("job", lease.Job).Warn("no slice: " + reason)
	return a.grant(lease, nil)
}
