package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"caelum/internal/api"
	"caelum/internal/failpoint"
	"caelum/internal/offer"
	"caelum/internal/slurm"
)

// Lease serves a job's prolog. The call may be repeated: the same job and restart count get the same lease.
//
// Slurm drains a node whose prolog fails. Therefore only a defect of the node itself may fail a prolog: an error of
// Lease means that the ledger, the disk, a lease file, a capability file or one of Slurm's commands on this node does
// not work. In all other cases the job is requeued, or its lease file contains the reason for task_init: a user's
// mistake, an unreadable job record, a slice that cannot be carved, and a slurmctld that does not answer. While
// slurmctld does not answer, a pass fails, or leftover processes keep slices in use, Lease returns api.NotNow, for at
// most req.Wait seconds, and the plugin repeats its call.
func (a *Agent) Lease(ctx context.Context, id uint32, req api.LeaseRequest) (*api.Lease, error) {
	began := time.Now()
	defer a.jobs.lock(id)()
	t := attempt{
		lease: api.Lease{
			Job:     id,
			Restart: req.Restart,
			UID:     req.UID,
			Slots:   slices.Clone(req.Slots),
			Since:   a.now().Unix(),
		},
	}
	slices.Sort(t.lease.Slots)
	patience := time.Duration(min(req.Wait, maxPatience.Seconds()) * float64(time.Second))
	within, cancel := ctx, context.CancelFunc(func() {})
	if patience > 0 {
		within, cancel = context.WithDeadline(ctx, began.Add(max(patience, leastPatience)))
	}
	lease, err := a.lease(within, &t)
	cancel()
	if patience > 0 && time.Since(began) >= patience && isNotNow(err) && ctx.Err() == nil {
		lease, err = a.giveUp(ctx, &t, err)
	}
	whole := time.Since(began)
	a.log.WithField("job", id).
		WithField("ms", milliseconds(whole)).
		WithField("slurmctld_ms", milliseconds(t.spent.slurmctld)).
		WithField("driver_ms", milliseconds(t.spent.driver)).
		WithField("own_ms", milliseconds(whole-t.spent.slurmctld-t.spent.driver)).
		Debug("prolog served")
	return &lease, err
}

// attempt is the state of one call of Lease.
type attempt struct {
	lease api.Lease
	job   slurm.Job // zero until slurmctld has answered
	spent spent
}

const (
	// maxPatience limits the wait that a plugin may request. One hour is longer than any prolog should take.
	maxPatience = time.Hour
	// leastPatience is the time that a late call gets, for example after a restart of the agent. It is shorter than the
	// plugin's reserve.
	leastPatience = 2 * time.Second
	// requeueTimeout limits the time for the requeue of a job whose prolog cannot wait any longer.
	requeueTimeout = 2 * time.Second
)

// isNotNow reports whether an error asks the plugin to repeat its call (api.NotNow).
func isNotNow(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == http.StatusServiceUnavailable
}

// giveUp ends the wait of a prolog whose time is over. A batch job that may be requeued is requeued if slurmctld
// answers. Any other job is refused.
func (a *Agent) giveUp(ctx context.Context, t *attempt, cause error) (api.Lease, error) {
	reason := fmt.Sprintf("%s could not serve the job in time: %v", a.cfg.Node, cause)
	a.mu.Lock()
	old := a.leases[t.lease.Job]
	a.mu.Unlock()
	if old != nil { // granted without a lease file: the slices must be closed to the user first
		if _, err := a.release(*old, true); err != nil {
			return t.lease, err
		}
	}
	if t.job.Batch && t.job.Requeue {
		within, cancel := context.WithTimeout(ctx, requeueTimeout)
		defer cancel()
		missing := "slices"
		if wants, err := a.wants(t.job, 0); err == nil {
			missing = list(wants)
		}
		if lease, err := a.requeueOrRefuse(within, t.job, t.lease, reason, missing); err == nil || !isNotNow(err) {
			return lease, err
		}
	}
	return a.refuse(t.lease, reason+"; submit again")
}

// lease makes one attempt to serve a prolog.
func (a *Agent) lease(ctx context.Context, t *attempt) (api.Lease, error) {
	id, lease := t.lease.Job, &t.lease
	a.mu.Lock()
	old := a.leases[id]
	a.mu.Unlock()
	if old != nil && old.Restart == lease.Restart {
		return *old, a.writeLeaseFile(*old)
	}
	if old != nil { // an earlier run, whose epilog has not run
		if _, err := a.release(*old, true); err != nil {
			return api.Lease{}, err
		}
	}

	search := a.search()
	asked := time.Now()
	job, err := a.readJob(ctx, id)
	add(&t.spent.slurmctld, asked)
	switch {
	case errors.Is(err, slurm.ErrNoJob):
		return a.refuse(*lease, "slurmctld does not know this job any more")
	case errors.Is(err, slurm.ErrAmbiguous):
		return a.refuse(
			*lease,
			"the job's name or comment imitates Slurm's own record of an allocation; "+
				"submit the job with another name and comment",
		)
	case classOf(err) == later:
		return *lease, api.NotNow(err.Error())
	case classOf(err) == defect:
		return *lease, err
	case err != nil:
		return a.refuse(*lease, "Slurm's record of the job is inconsistent: "+err.Error()+"; submit the job again")
	case job.Restarts > lease.Restart || !job.Holds():
		return a.refuse(*lease, "the job is ending")
	case !slices.Contains(job.Nodes, a.cfg.Node):
		return a.refuse(*lease, "the job was changed while it started, and is no longer on "+a.cfg.Node)
	}
	t.job = job
	lease.Name, lease.User, lease.Account = job.Name, job.User, job.Account
	lease.Key = slurm.TagValue(job.AdminComment, slurm.TagKey)
	lease.Fingerprint = slurm.TagValue(job.AdminComment, slurm.TagFingerprint)
	if !job.End.IsZero() {
		lease.End = job.End.Unix()
	}

	wants, err := a.wants(job, len(lease.Slots))
	var none *uncounted
	switch {
	case errors.As(err, &none):
		return a.requeueOrRefuse(ctx, job, *lease, none.Error(), none.sized)
	case err != nil:
		return a.refuse(*lease, err.Error())
	case len(wants) == 0: // an --exclusive job that requests no GPU
		return a.grant(*lease, nil)
	}
	defer a.dropPending(id)
	for range carveTries {
		pr, err := a.preparePending(ctx, id, wants, &t.spent)
		if err != nil {
			return *lease, err
		}
		if pr == nil {
			break
		}
		made, held, err := a.carveAll(id, lease.Slots, pr, &t.spent, search)
		if err == nil {
			granted := *lease
			granted.Slices = made
			return a.grant(granted, held)
		}
		if errors.Is(err, syscall.ENOSPC) { // the GPU works, but the ledger cannot be written
			return *lease, err
		}
		a.log.WithError(err).WithField("job", id).Error("couldn't carve a slice; trying other placements")
		a.forget(id)
		if err := a.compareGPUs(); err != nil { // the next plan does not use a lost GPU
			a.log.WithError(err).Error("couldn't compare the GPUs with the ledger")
		}
	}
	if a.hasLeftovers() && !(job.Batch && job.Requeue) {
		return *lease, api.NotNow("no room on " + a.cfg.Node + " while processes of ended jobs keep slices in use")
	}
	return a.requeueOrRefuse(ctx, job, *lease, "no room on "+a.cfg.Node+" for "+list(wants), list(wants))
}

// carveTries limits how often one call tries to carve a job's slices, each time at other placements. A try fails if an
// instance turns out to be in use, or a GPU to be lost.
const carveTries = 3

// class is the meaning of an error for a job's prolog, when the agent has asked slurmctld about the job.
type class int

const (
	none    class = iota // no error
	unclear              // the job's record is inconsistent or unreadable, which any user can cause
	later                // slurmctld does not answer, which is no defect of the node
	defect               // this node cannot ask slurmctld
)

// classOf returns the class of an error. No other function decides this. An unknown error is unclear, so that it
// affects the job and not the node.
func classOf(err error) class {
	switch {
	case err == nil:
		return none
	case errors.Is(err, slurm.ErrCommand):
		return defect
	case errors.Is(err, slurm.ErrUnreachable),
		errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded):
		return later
	}
	return unclear
}

// recordTries limits how often an unclear job record is read, and recordPause is the first pause between two readings.
// The pauses double, so the readings take 1.5 s.
const (
	recordTries = 5
	recordPause = 100 * time.Millisecond
)

// readJob reads a job, and repeats this while the job's record is unclear. squeue and scontrol are separate calls, and
// the job's user can change the job between them.
func (a *Agent) readJob(ctx context.Context, id uint32) (job slurm.Job, err error) {
	pause := a.recordPause
	for range recordTries {
		job, err = a.ctl.Job(ctx, id)
		if classOf(err) != unclear || errors.Is(err, slurm.ErrNoJob) || errors.Is(err, slurm.ErrAmbiguous) {
			break
		}
		a.log.WithError(err).WithField("job", id).Debug("job record was unclear")
		select {
		case <-ctx.Done():
			return job, ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2
	}
	return job, err
}

// uncounted is the error for a job whose slices slurmctld has not counted as the job's. Limits and billing would not
// see these slices. sized has the slices as profile:count.
type uncounted struct{ reason, sized string }

func (u *uncounted) Error() string { return u.reason }

// wants returns the slices that the job gets on this node: the slices that slurmctld allocated, or the requested slices
// if the whole node is allocated to the job. slurmctld counts all of them as this job's. Every error concerns the job:
// it is *uncounted, or its text describes the user's mistake. If slots is 0, the number of slots is not checked.
func (a *Agent) wants(job slurm.Job, slots int) (wants []offer.Want, err error) {
	here := job.Allocated[a.cfg.Node]
	allocated, requested := here.Named("mig").Positive(), job.PerNode.Named("mig").Positive()
	wholeNode := slices.ContainsFunc(allocated, func(g slurm.GRES) bool { return g.Type == slurm.ClosedType })
	untyped := slices.ContainsFunc(requested, func(g slurm.GRES) bool { return g.Type == "" })
	granted := allocated
	switch {
	case untyped:
		// slurmctld checks the limits for the request, which is gres/mig without a profile, and chooses a profile
		// afterwards (22.05.8). Limits on profiles do not apply to such a job.
		return nil, fmt.Errorf(
			"the job requests gres/mig without a profile, so that slurmctld has counted no profile; "+
				"name a profile (--gres=mig:%s:1)",
			a.sizeOf(job),
		)
	case wholeNode:
		// An --exclusive job is allocated every GRES of the node, including closed. Only the request is carved.
		granted = requested
		if len(requested) == 0 && asksForGPU(job) {
			return nil, a.noSize(job, max(job.GPUsPerNode(), 1))
		}
	case len(allocated) == 0 && here.Total("gpu") > 0:
		// job_submit.lua did not see this job, or its slices were removed: it has slots and no size.
		return nil, a.noSize(job, cmp.Or(job.GPUsPerNode(), here.Total("gpu")))
	}
	if !allocated.Covers(granted) {
		return nil, &uncounted{
			"slurmctld has not counted the slices that the job requests, " + granted.String(),
			granted.String(),
		}
	}
	total := 0
	for _, g := range granted {
		want := offer.Want{Profile: g.Type, Count: g.Count}
		if !slices.Contains(a.profiles, g.Type) {
			if want.Alternatives = a.equivalentProfiles(g.Type); want.Alternatives == nil {
				return nil, fmt.Errorf("no GPU of %s has the profile %q or an equivalent profile; the node has %s",
					a.cfg.Node, g.Type, strings.Join(a.profiles, ", "))
			}
		}
		wants = append(wants, want)
		total += g.Count
	}
	if slots > 0 && total > slots {
		return nil, fmt.Errorf(
			"the job has %d slices and %d of gres/gpu on %s; request as many of gres/gpu as of gres/mig",
			total,
			slots,
			a.cfg.Node,
		)
	}
	return wants, nil
}

// noSize returns the error for a job with GPU slots and without slices.
func (a *Agent) noSize(job slurm.Job, gpus int) error {
	size := fmt.Sprintf("%s:%d", a.sizeOf(job), gpus)
	return &uncounted{
		fmt.Sprintf(
			"the job has %d of gres/gpu on %s and no slice; ask for one (--gres=gpu:%d,mig:%s) "+
				"or use a partition that Caelum manages",
			gpus,
			a.cfg.Node,
			gpus,
			size,
		),
		size,
	}
}

// sizeOf returns the profile of a job that names no profile: the profile that job_submit.lua chose at the submission,
// else the node's default.
func (a *Agent) sizeOf(job slurm.Job) string {
	if size := slurm.TagValue(job.AdminComment, slurm.TagSized); slices.Contains(a.profiles, size) {
		return size
	}
	return a.defaultProfile()
}

// equivalentProfiles returns the equivalent profiles of a profile that the node does not have, one per GPU model,
// without duplicates. The node offers slices of these profiles under the given name.
func (a *Agent) equivalentProfiles(profile string) (names []string) {
	for _, c := range a.cards {
		if !a.usable(c) {
			continue
		}
		if name, ok := c.Model.EquivalentProfile(profile, c.Offerable); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func asksForGPU(job slurm.Job) bool {
	for _, list := range []slurm.GRESList{job.PerNode, job.PerJob, job.PerTask, job.PerSocket} {
		if len(list.Named("gpu")) > 0 {
			return true
		}
	}
	return false
}

// asksForSlices reports whether a job can hold slices, according to its request.
func asksForSlices(job slurm.Job) bool { return asksForGPU(job) || len(job.PerNode.Named("mig")) > 0 }

// preparePending returns the job's pending lease, with spots. It uses the pending lease from the last reading of
// slurmctld's jobs, else it takes the spots from the offers in force. If the slices are not among the offers, a pass
// tries to find room. preparePending returns nil if there is no room, and api.NotNow if the pass failed before it found
// room.
func (a *Agent) preparePending(ctx context.Context, id uint32, wants []offer.Want, s *spent) (*pendingLease, error) {
	a.mu.Lock()
	pr := a.pending[id]
	if pr == nil || !reflect.DeepEqual(pr.wants, wants) {
		var ok bool
		if pr, ok = a.takeOffers(id, wants); !ok {
			pr = &pendingLease{wants: wants}
			a.pending[id] = pr
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
	case err != nil: // also errBusy: the pass ended before it had found room
		return nil, api.NotNow(err.Error())
	}
	return nil, nil
}

// dropPending removes a job's pending lease when its prolog has been answered.
func (a *Agent) dropPending(id uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending[id] != nil {
		delete(a.pending, id)
		a.version++
	}
}

// forget removes the spots of a pending lease, so that the next pass looks for other spots.
func (a *Agent) forget(id uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pr := a.pending[id]; pr != nil {
		pr.spots = nil
		a.version++
	}
}

// carveAll carves every slice of a pending lease. If it fails, the slices that were carved before stay as idle
// instances.
func (a *Agent) carveAll(
	id uint32,
	slots []int,
	pr *pendingLease,
	t *spent,
	search *search,
) (all []api.Slice, held []*instance, err error) {
	var at []placed
	created := false
	for k, s := range pr.spots {
		in, reused, err := a.carve(id, s, t)
		if err != nil {
			return nil, nil, err
		}
		model := a.cards[s.GPU].Model
		slice := api.Slice{
			Slot: slots[k], GPU: s.GPU, Profile: in.Profile, Start: in.Start, Size: in.Size,
			MemoryMiB: model.Profiles[model.Placements[s.Placement].Profile].MemoryMiB, UUID: in.UUID, Reused: reused,
		}
		if asked := offer.RequestedAs(pr.wants, in.Profile); asked != in.Profile {
			slice.AdvertisedAs = asked
		}
		all = append(all, slice)
		held = append(held, in)
		at = append(at, placed{s.GPU, in})
		created = created || !reused
	}
	// The files have belonged to root since the release or the creation. A descriptor that is found now is older.
	if used, err := a.setAsideBeforeGrant(at, created, search); len(used) > 0 || err != nil {
		for _, u := range used {
			err = errors.Join(usedError(u.gpu, u.in), err)
		}
		return nil, nil, err
	}
	return all, held, nil
}

// grant writes the lease: first the owners of the device files, then the ledger, then the lease file. In this order, a
// visible lease is always complete.
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
	delete(a.pending, lease.Job)
	a.version++
	a.mu.Unlock()
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
	a.publishSoon()
	return lease, nil
}

// refuse grants a lease without slices, with the reason in the lease file. task_init reads the reason and fails the
// job. The node is not drained.
func (a *Agent) refuse(lease api.Lease, reason string) (api.Lease, error) {
	lease.Error = reason
	a.log.WithField("job", lease.Job).Warn("no slice: " + reason)
	return a.grant(lease, nil)
}

// Release serves a job's epilog: the slices become idle, and new offers are published before Release returns. The call
// may be repeated, may be late, and may come without a prolog. A restart count below the lease's belongs to a late
// epilog of an earlier run and releases nothing.
func (a *Agent) Release(ctx context.Context, id uint32, restart int) error {
	return a.releaseJob(ctx, id, restart, false)
}

// releaseJob is like Release. gone means that there was no epilog, so that the end of the run is unknown.
func (a *Agent) releaseJob(ctx context.Context, id uint32, restart int, gone bool) error {
	unlock := a.jobs.lock(id)
	a.mu.Lock()
	lease := a.leases[id]
	if pr := a.pending[id]; pr != nil { // the prolog was killed before it had an answer
		delete(a.pending, id)
		a.version++
	}
	a.mu.Unlock()
	var err error
	again := false
	if lease != nil && restart >= lease.Restart {
		again, err = a.release(*lease, gone)
	}
	unlock()
	if err != nil {
		return err
	}
	if again {
		a.publishSoon()
		return nil
	}
	// If slurmctld does not answer, its counts are still safe, because it counts exactly the released slices as free.
	// The plugin hangs up after 5 s. Publishing continues, for 10 s in total.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := a.Publish(ctx); err != nil && !errors.Is(err, errBusy) {
		a.log.WithError(err).WithField("job", id).Warn("lease released, but couldn't publish the new offers")
	}
	return nil
}

// release closes the lease's slices to the user and ends the lease. again reports whether the slice is already offered
// again, for the next waiting job.
func (a *Agent) release(lease api.Lease, gone bool) (again bool, err error) {
	var closed []placed
	for _, s := range lease.Slices {
		if err := a.closeSlice(lease.Job, s); err != nil {
			return false, err
		}
		if in := a.held(lease.Job, s); in != nil {
			closed = append(closed, placed{s.GPU, in})
		}
	}
	if _, err := a.setHeldAside(closed); err != nil {
		return false, err
	}
	failpoint.Hit(failpoint.ReleaseClosed)
	if err := a.removeLeaseFile(lease.Job); err != nil {
		return false, err
	}
	failpoint.Hit(failpoint.ReleaseUnlinked)
	if err := a.ledger.Release(lease.Job); err != nil {
		return false, err
	}
	failpoint.Hit(failpoint.Released)
	a.usage.End(lease.Job, gone)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropLease(lease.Job)
	a.version++
	a.log.WithField("job", lease.Job).Info("released")
	return a.offerAgain(lease), nil
}
