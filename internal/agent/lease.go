package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"caelum/internal/api"
	"caelum/internal/failpoint"
	"caelum/internal/gpu"
	"caelum/internal/offer"
	"caelum/internal/slurm"
)

// Lease serves a job's prolog. It may be repeated: the same job and restart count get the same lease.
//
// An error means that the node cannot serve jobs (the plugin drains it) or, as api.NotNow, that the answer is not to be
// had just now. A user's mistake and a slice that cannot be had are no errors: they are told through the lease file, or the
// job is requeued.
func (a *Agent) Lease(ctx context.Context, id uint32, req api.LeaseRequest) (*api.Lease, error) {
	var s spent
	began := time.Now()
	lease, err := a.lease(ctx, id, req, &s)
	whole := time.Since(began)
	a.log.WithField("job", id).WithField("ms", milliseconds(whole)).WithField("slurmctld_ms", milliseconds(s.slurmctld)).
		WithField("driver_ms", milliseconds(s.driver)).WithField("own_ms", milliseconds(whole-s.slurmctld-s.driver)).Debug("prolog served")
	return &lease, err
}

func (a *Agent) lease(ctx context.Context, id uint32, req api.LeaseRequest, s *spent) (api.Lease, error) {
	defer a.jobs.lock(id)()
	a.mu.Lock()
	old := a.leases[id]
	a.mu.Unlock()
	if old != nil && old.Restart == req.Restart {
		return *old, a.writeLeaseFile(*old)
	}
	if old != nil { // its epilog never came
		if err := a.release(*old, true); err != nil {
			return api.Lease{}, err
		}
	}
	lease := api.Lease{Job: id, Restart: req.Restart, UID: req.UID, Slots: slices.Clone(req.Slots), Since: a.now().Unix()}
	slices.Sort(lease.Slots)

	search := a.search()
	asked := time.Now()
	job, err := a.ctl.Job(ctx, id)
	add(&s.slurmctld, asked)
	switch {
	case errors.Is(err, slurm.ErrNoJob):
		return a.refuse(lease, "slurmctld does not know this job any more")
	case errors.Is(err, slurm.ErrUnreachable), errors.Is(err, slurm.ErrChanging):
		return lease, api.NotNow(err.Error())
	case errors.Is(err, slurm.ErrAmbiguous):
		return a.refuse(lease, "the job's name or comment imitates Slurm's own account of an allocation; submit it under another")
	case err != nil:
		return lease, err
	case job.Restarts > req.Restart || !job.Holds():
		return a.refuse(lease, "the job is ending")
	}
	lease.Name, lease.User, lease.Account = job.Name, job.User, job.Account
	lease.Key, lease.Work = slurm.Mark(job.AdminComment, slurm.MarkKey), slurm.Mark(job.AdminComment, slurm.MarkWork)
	if !job.End.IsZero() {
		lease.End = job.End.Unix()
	}

	wants, mistake := a.wants(job, len(req.Slots))
	if mistake != "" {
		return a.refuse(lease, mistake)
	}
	if len(wants) == 0 { // an --exclusive job that asked for no GPU
		return a.grant(lease, nil)
	}
	defer a.endPromise(id)
	for range 2 {
		pr, err := a.promiseTo(ctx, id, wants, s)
		if err != nil {
			return lease, err
		}
		if pr == nil {
			break
		}
		made, held, err := a.carveAll(id, lease.Slots, pr, s, search)
		if err == nil {
			lease.Slices = made
			return a.grant(lease, held)
		}
		if errors.Is(err, syscall.ENOSPC) { // nothing is wrong with the GPU: the ledger cannot take note of it
			return lease, err
		}
		a.log.WithError(err).WithField("job", id).Error("couldn't carve; trying elsewhere")
		a.forget(id)
		if err := a.look(); err != nil { // a GPU that is lost is out of the next plan
			a.log.WithError(err).Error("couldn't compare the GPUs with the ledger")
		}
	}
	return a.giveBack(ctx, job, lease, wants)
}

// wants is what the job is to have on this node: what slurmctld allocated, or what was requested where the allocation
// is the whole node. The text is the user's mistake, if it is one. With slots = 0 the number of slots is not checked.
func (a *Agent) wants(job slurm.Job, slots int) (wants []offer.Want, mistake string) {
	allocated := only(job.Allocated[a.cfg.Node], "mig")
	requested := only(job.PerNode, "mig")
	gpus := 0
	for _, g := range only(job.Allocated[a.cfg.Node], "gpu") {
		gpus += g.Count
	}
	wholeNode := slices.ContainsFunc(allocated, func(g slurm.GRES) bool { return g.Type == slurm.ClosedType })
	untyped := slices.ContainsFunc(requested, func(g slurm.GRES) bool { return g.Type == "" })
	take := allocated
	switch {
	case wholeNode && !untyped:
		// --exclusive is allocated every GRES of the node, the filler too: only what was asked for is carved.
		take = requested
		if len(requested) == 0 && asksForGPU(job) {
			take = []slurm.GRES{{Name: "mig", Type: a.defaultProfile(), Count: max(job.GPUsPerNode(), 1)}}
		}
	case wholeNode || len(allocated) == 0 && gpus > 0:
		// job_submit.lua did not see this job: it has slots and no size.
		take = []slurm.GRES{{Name: "mig", Type: a.defaultProfile(), Count: max(gpusOf(job, gpus), 1)}}
	}
	total := 0
	for _, g := range take {
		want := offer.Want{Profile: g.Type, Count: g.Count}
		if !slices.Contains(a.profiles, g.Type) {
			if want.Or = a.asMuch(g.Type); want.Or == nil {
				return nil, fmt.Sprintf("no GPU of %s has the profile %q, or one for as much; it has %s", a.cfg.Node, g.Type, strings.Join(a.profiles, ", "))
			}
		}
		if g.Count > 0 {
			wants = append(wants, want)
			total += g.Count
		}
	}
	if slots > 0 && total > slots {
		return nil, fmt.Sprintf("the job has %d slices and %d of gres/gpu on %s; ask for as many of gres/gpu as of gres/mig", total, slots, a.cfg.Node)
	}
	return wants, ""
}

// asMuch are the node's own profiles for as much as one that it does not have: what it has put on offer under that name.
func (a *Agent) asMuch(profile string) (names []string) {
	for _, c := range a.cards {
		if c.Problem != "" {
			continue
		}
		if name, ok := c.Board.AsMuch(profile, c.offerable); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// gpusOf is how many slices a job without a size gets: what it asked for per node, or the slots it was allocated when that
// cannot be told and is not the whole node.
func gpusOf(job slurm.Job, allocated int) int {
	if n := job.GPUsPerNode(); n > 0 {
		return n
	}
	return allocated
}

func asksForGPU(job slurm.Job) bool {
	for _, list := range [][]slurm.GRES{job.PerNode, job.PerJob, job.PerTask, job.PerSocket} {
		if len(only(list, "gpu")) > 0 {
			return true
		}
	}
	return false
}

// asksForSlices reports whether a job may hold slices at all, by what it requested.
func asksForSlices(job slurm.Job) bool { return asksForGPU(job) || len(only(job.PerNode, "mig")) > 0 }

func only(list []slurm.GRES, name string) []slurm.GRES {
	var some []slurm.GRES
	for _, g := range list {
		if g.Name == name {
			some = append(some, g)
		}
	}
	return some
}

// promiseTo answers the job's promise with spots: the one counted when slurmctld's jobs were read, else out of the offers in force,
// else, for a job whose slices were not on offer, as much room as a pass can make. nil means there is none.
func (a *Agent) promiseTo(ctx context.Context, id uint32, wants []offer.Want, s *spent) (*promise, error) {
	a.mu.Lock()
	pr := a.promised[id]
	if pr == nil || !reflect.DeepEqual(pr.wants, wants) {
		var ok bool
		if pr, ok = a.take(id, wants); !ok {
			pr = &promise{wants: wants}
			a.promised[id] = pr
			a.version++
		}
	}
	pr.leasing = true
	has := pr.spots != nil
	a.mu.Unlock()
	if has {
		return pr, nil
	}
	asked := time.Now()
	err := a.Publish(ctx)
	add(&s.slurmctld, asked)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case pr.spots != nil:
		return pr, nil
	case err != nil: // also errBusy: room was not looked for to the end
		return nil, api.NotNow(err.Error())
	}
	return nil, nil
}

// endPromise drops what is left of a job's promise when its prolog has been answered.
func (a *Agent) endPromise(id uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.promised[id] != nil {
		delete(a.promised, id)
		a.version++
	}
}

// forget takes a promise's spots back, so that others are looked for.
func (a *Agent) forget(id uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pr := a.promised[id]; pr != nil {
		pr.spots = nil
		a.version++
	}
}

// carveAll makes every slice that a job was promised. Slices that were made before one fails stay as idle instances.
func (a *Agent) carveAll(id uint32, slots []int, pr *promise, t *spent, search func() (gpu.Held, error)) (all []api.Slice, held []*instance, err error) {
	var at []placed
	created := false
	for k, s := range pr.spots {
		in, reused, err := a.carve(id, s, t)
		if err != nil {
			return nil, nil, err
		}
		board := a.cards[s.GPU].Board
		slice := api.Slice{
			Slot: slots[k], GPU: s.GPU, Profile: in.Profile, Start: in.Start, Size: in.Size,
			MemoryMiB: board.Profiles[board.Placements[s.Placement].Profile].MemoryMiB, UUID: in.UUID, Reused: reused,
		}
		if asked := offer.Asked(pr.wants, in.Profile); asked != in.Profile {
			slice.As = asked
		}
		all = append(all, slice)
		held = append(held, in)
		at = append(at, placed{s.GPU, in})
		created = created || !reused
	}
	// The files have been root's since the release or the creation: a descriptor that is found is from before.
	if used, err := a.setAsideBeforeGrant(at, created, search); len(used) > 0 || err != nil {
		for _, u := range used {
			err = errors.Join(usedError(u.gpu, u.in), err)
		}
		return nil, nil, err
	}
	return all, held, nil
}

// grant writes the lease: device files, ledger, lease file, in this order, so that a lease that anybody can see is whole.
func (a *Agent) grant(lease api.Lease, held []*instance) (api.Lease, error) {
	for k, in := range held {
		if err := a.caps.Open(a.cards[lease.Slices[k].GPU].Minor, a.hwOf(in), lease.UID); err != nil {
			return lease, err
		}
	}
	failpoint.Hit(failpoint.GrantOpened)
	if err := a.ledger.Grant(lease, ledgerInstances(held)); err != nil {
		return lease, err
	}
	failpoint.Hit(failpoint.GrantWritten)
	a.mu.Lock()
	for _, in := range held {
		in.Job = lease.Job
		a.former[minorsOf{in.GPU, in.GI}] = lease.UID
	}
	a.leases[lease.Job] = &lease
	delete(a.promised, lease.Job)
	a.version++
	a.mu.Unlock()
	for _, s := range lease.Slices {
		a.log.WithField("job", lease.Job).WithField("restart", lease.Restart).WithField("gpu", s.GPU).WithField("uuid", s.UUID).
			WithField("reused", s.Reused).Infof("leased %s at %d", s.Profile, s.Start)
	}
	if err := a.writeLeaseFile(lease); err != nil {
		return lease, err
	}
	failpoint.Hit(failpoint.Granted)
	a.observe(lease)
	a.publishSoon()
	return lease, nil
}

// refuse leaves the reason in the lease file, where task_init finds it: the job fails, the node does not.
func (a *Agent) refuse(lease api.Lease, reason string) (api.Lease, error) {
	lease.Error = reason
	a.log.WithField("job", lease.Job).Warn("no slice: " + reason)
	return a.grant(lease, nil)
}

// Release serves a job's epilog: the slices become idle, and the offers are published before it returns. It may be
// repeated, late, or come without a prolog. A restart count below the lease's is a late epilog of an earlier run and
// releases nothing.
func (a *Agent) Release(ctx context.Context, id uint32, restart int) error {
	return a.releaseJob(ctx, id, restart, false)
}

// releaseJob is Release; gone: there was no epilog, and nobody knows when the run ended.
func (a *Agent) releaseJob(ctx context.Context, id uint32, restart int, gone bool) error {
	unlock := a.jobs.lock(id)
	a.mu.Lock()
	lease := a.leases[id]
	if pr := a.promised[id]; pr != nil { // the prolog was killed before it had an answer
		delete(a.promised, id)
		a.version++
	}
	a.mu.Unlock()
	var err error
	if lease != nil && restart >= lease.Restart {
		err = a.release(*lease, gone)
	}
	unlock()
	if err != nil {
		return err
	}
	// slurmctld may be away: what stands there is sound, since the freed slices are the very ones it thinks free.
	// The plugin hangs up after 5 s; what is published by then or a little later is published all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := a.Publish(ctx); err != nil && !errors.Is(err, errBusy) {
		a.log.WithError(err).WithField("job", id).Warn("released, but couldn't publish")
	}
	return nil
}

func (a *Agent) release(lease api.Lease, gone bool) error {
	var closed []placed
	for _, s := range lease.Slices {
		if err := a.closeSlice(lease.Job, s); err != nil {
			return err
		}
		if in := a.held(lease.Job, s); in != nil {
			closed = append(closed, placed{s.GPU, in})
		}
	}
	if _, err := a.setHeldAside(closed); err != nil {
		return err
	}
	failpoint.Hit(failpoint.ReleaseClosed)
	if err := a.removeLeaseFile(lease.Job); err != nil {
		return err
	}
	failpoint.Hit(failpoint.ReleaseUnlinked)
	if err := a.ledger.Release(lease.Job); err != nil {
		return err
	}
	failpoint.Hit(failpoint.Released)
	a.observed(lease.Job, gone)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropLease(lease.Job)
	a.version++
	a.log.WithField("job", lease.Job).Info("released")
	return nil
}
