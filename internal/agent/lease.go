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

// Lease serves a job's prolog. It may be repeated: the same job and restart count get the same lease.
//
// Only a defect of the node itself may fail a prolog, because Slurm drains the node then. So an error of Lease means
// that the ledger, the disk, a lease file, a capability file or a command of Slurm's on this node does not work. All
// else ends in a lease file, in whose text task_init finds the reason, or in a requeue: a user's mistake, a job record
// that cannot be read, a slice that cannot be had, and a slurmctld that does not answer. api.NotNow, "ask again", is
// for the last of these, and only until req.Wait is over.
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

// attempt is one try to serve a prolog, with what is known of the job so far.
type attempt struct {
	lease api.Lease
	job   slurm.Job // zero until slurmctld has answered
	spent spent
}

const (
	// maxPatience limits what a plugin may ask for: one hour is longer than any prolog should last.
	maxPatience = time.Hour
	// leastPatience is given to a call that comes late, for example because the agent was restarted meanwhile.
	// It is shorter than what the plugin keeps in reserve.
	leastPatience = 2 * time.Second
	// requeueTimeout limits the requeue of a job whose prolog cannot wait any longer.
	requeueTimeout = 2 * time.Second
)

func isNotNow(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == http.StatusServiceUnavailable
}

// giveUp ends the wait of a prolog whose time is over: a batch job is requeued if slurmctld answers, any other job is
// refused.
func (a *Agent) giveUp(ctx context.Context, t *attempt, cause error) (api.Lease, error) {
	reason := fmt.Sprintf("%s could not serve the job in time: %v", a.cfg.Node, cause)
	a.mu.Lock()
	old := a.leases[t.lease.Job]
	a.mu.Unlock()
	if old != nil { // granted, and its lease file could not be written: its slices must be closed to the user first
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

func (a *Agent) lease(ctx context.Context, t *attempt) (api.Lease, error) {
	id, lease := t.lease.Job, &t.lease
	a.mu.Lock()
	old := a.leases[id]
	a.mu.Unlock()
	if old != nil && old.Restart == lease.Restart {
		return *old, a.writeLeaseFile(*old)
	}
	if old != nil { // its epilog never came
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
			"the job's name or comment imitates Slurm's own account of an allocation; submit it under another",
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
	lease.Key, lease.Fingerprint = slurm.TagValue(
		job.AdminComment,
		slurm.TagKey,
	), slurm.TagValue(
		job.AdminComment,
		slurm.TagFingerprint,
	)
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
	case len(wants) == 0: // an --exclusive job that asked for no GPU
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
		if errors.Is(err, syscall.ENOSPC) { // nothing is wrong with the GPU: the ledger cannot take note of it
			return *lease, err
		}
		a.log.WithError(err).WithField("job", id).Error("couldn't carve; trying elsewhere")
		a.forget(id)
		if err := a.compareGPUs(); err != nil { // a GPU that is lost is out of the next plan
			a.log.WithError(err).Error("couldn't compare the GPUs with the ledger")
		}
	}
	if a.hasLeftovers() && !(job.Batch && job.Requeue) {
		return *lease, api.NotNow("no room on " + a.cfg.Node + " while processes of ended jobs keep slices in use")
	}
	return a.requeueOrRefuse(ctx, job, *lease, "no room on "+a.cfg.Node+" for "+list(wants), list(wants))
}

// carveTries is how many plans for a job are tried in one call. A plan fails when an instance turns out to be in use,
// or a GPU to be lost.
const carveTries = 3

// class is what an error of a question to slurmctld about a job means for the job's prolog.
type class int

const (
	none    class = iota // no error
	unclear              // the job's record is inconsistent or unreadable: any user can cause that
	later                // slurmctld does not answer: no defect of the node
	defect               // this node cannot ask
)

// classOf is the one place that decides it. Whatever is not known is unclear: it is the job's problem, not the node's.
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

// recordTries is how often an unclear record is read: with the pauses between, which double from recordPause, for 1.5
// s.
const (
	recordTries = 5
	recordPause = 100 * time.Millisecond
)

// readJob reads a job, again while its record is unclear: squeue and scontrol are two questions, and the job's user can
// change the job between them.
func (a *Agent) readJob(ctx context.Context, id uint32) (job slurm.Job, err error) {
	pause := a.recordPause
	for range recordTries {
		job, err = a.ctl.Job(ctx, id)
		if classOf(err) != unclear || errors.Is(err, slurm.ErrNoJob) || errors.Is(err, slurm.ErrAmbiguous) {
			break
		}
		a.log.WithError(err).WithField("job", id).Debug("read an unclear job record")
		select {
		case <-ctx.Done():
			return job, ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2
	}
	return job, err
}

// uncounted is a job that is to have slices which slurmctld has not counted for it: limits and billing would not see
// them.
type uncounted struct{ reason, sized string }

func (u *uncounted) Error() string { return u.reason }

// wants returns the slices that the job is to have on this node: what slurmctld allocated, or what the job requested
// where the allocation is the whole node. All of it is counted by slurmctld as this job's. Any error is the job's:
// *uncounted, or the text of the user's mistake. With slots = 0 the number of slots is not checked.
func (a *Agent) wants(job slurm.Job, slots int) (wants []offer.Want, err error) {
	here := job.Allocated[a.cfg.Node]
	allocated, requested := some(only(here, "mig")), some(only(job.PerNode, "mig"))
	wholeNode := slices.ContainsFunc(allocated, func(g slurm.GRES) bool { return g.Type == slurm.ClosedType })
	untyped := slices.ContainsFunc(requested, func(g slurm.GRES) bool { return g.Type == "" })
	take := allocated
	switch {
	case untyped:
		// slurmctld checks the limits by what the job asks for, gres/mig alone, and chooses a profile afterwards
		// (22.05.8): no limit on a profile holds for such a job.
		return nil, fmt.Errorf(
			"the job asked for gres/mig without a profile, and slurmctld has counted none; name one (--gres=mig:%s:1)",
			a.sizeOf(job),
		)
	case wholeNode:
		// --exclusive is allocated every GRES of the node, the filler too: only what was asked for is carved.
		take = requested
		if len(requested) == 0 && asksForGPU(job) {
			return nil, a.noSize(job, max(job.GPUsPerNode(), 1))
		}
	case len(allocated) == 0 && gpus(here) > 0:
		// job_submit.lua did not see this job, or its slices were removed: it has slots and no size.
		return nil, a.noSize(job, cmp.Or(job.GPUsPerNode(), gpus(here)))
	}
	if !covers(allocated, take) {
		return nil, &uncounted{
			"slurmctld has not counted what the job asked for, " + slurm.FormatGRES(take),
			slurm.FormatGRES(take),
		}
	}
	total := 0
	for _, g := range take {
		want := offer.Want{Profile: g.Type, Count: g.Count}
		if !slices.Contains(a.profiles, g.Type) {
			if want.Alternatives = a.equivalentProfiles(g.Type); want.Alternatives == nil {
				return nil, fmt.Errorf("no GPU of %s has the profile %q, or one for as much; it has %s",
					a.cfg.Node, g.Type, strings.Join(a.profiles, ", "))
			}
		}
		wants = append(wants, want)
		total += g.Count
	}
	if slots > 0 && total > slots {
		return nil, fmt.Errorf(
			"the job has %d slices and %d of gres/gpu on %s; ask for as many of gres/gpu as of gres/mig",
			total,
			slots,
			a.cfg.Node,
		)
	}
	return wants, nil
}

// noSize is the error for a job with GPUs and without slices.
func (a *Agent) noSize(job slurm.Job, gpus int) error {
	size := fmt.Sprintf("%s:%d", a.sizeOf(job), gpus)
	return &uncounted{
		fmt.Sprintf(
			"the job has %d of gres/gpu on %s and no slice; ask for one (--gres=gpu:%d,mig:%s) or use a partition that Caelum manages",
			gpus,
			a.cfg.Node,
			gpus,
			size,
		),
		size,
	}
}

// sizeOf is the profile of a job that names none: what job_submit.lua chose when it was submitted, else the node's
// default.
func (a *Agent) sizeOf(job slurm.Job) string {
	if size := slurm.TagValue(job.AdminComment, slurm.TagSized); slices.Contains(a.profiles, size) {
		return size
	}
	return a.defaultProfile()
}

// covers reports whether there is as much of every type in one list as in another.
func covers(all, part []slurm.GRES) bool {
	left := map[string]int{}
	for _, g := range all {
		left[g.Type] += g.Count
	}
	for _, g := range part {
		if left[g.Type] -= g.Count; left[g.Type] < 0 {
			return false
		}
	}
	return true
}

// some leaves out what counts nothing.
func some(list []slurm.GRES) []slurm.GRES {
	return slices.DeleteFunc(list, func(g slurm.GRES) bool { return g.Count <= 0 })
}

func gpus(list []slurm.GRES) (n int) {
	for _, g := range only(list, "gpu") {
		n += g.Count
	}
	return n
}

// equivalentProfiles are the node's own profiles for as much as one that it does not have: what it has put on offer
// under that name.
func (a *Agent) equivalentProfiles(profile string) (names []string) {
	for _, c := range a.cards {
		if !a.usable(c) {
			continue
		}
		if name, ok := c.Model.EquivalentProfile(profile, c.offerable); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
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

// preparePending answers the job's promise with spots: the one counted when slurmctld's jobs were read, else out of the
// offers in force, else, for a job whose slices were not on offer, as much room as a pass can make. nil means there is
// none.
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
	case err != nil: // also errBusy: room was not looked for to the end
		return nil, api.NotNow(err.Error())
	}
	return nil, nil
}

// dropPending drops what is left of a job's promise when its prolog has been answered.
func (a *Agent) dropPending(id uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending[id] != nil {
		delete(a.pending, id)
		a.version++
	}
}

// forget takes a promise's spots back, so that others are looked for.
func (a *Agent) forget(id uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pr := a.pending[id]; pr != nil {
		pr.spots = nil
		a.version++
	}
}

// carveAll makes every slice that a job was promised. Slices that were made before one fails stay as idle instances.
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
	// The files have been root's since the release or the creation: a descriptor that is found is from before.
	if used, err := a.setAsideBeforeGrant(at, created, search); len(used) > 0 || err != nil {
		for _, u := range used {
			err = errors.Join(usedError(u.gpu, u.in), err)
		}
		return nil, nil, err
	}
	return all, held, nil
}

// grant writes the lease: device files, ledger, lease file, in this order, so that a lease that anybody can see is
// whole.
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
	// slurmctld may be away: what stands there is sound, since the freed slices are the very ones it thinks free.
	// The plugin hangs up after 5 s; what is published by then or a little later is published all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := a.Publish(ctx); err != nil && !errors.Is(err, errBusy) {
		a.log.WithError(err).WithField("job", id).Warn("released, but couldn't publish")
	}
	return nil
}

// release takes a lease's slices back. again reports that its slice is on offer already, to the next job that waits.
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
	a.observed(lease.Job, gone)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropLease(lease.Job)
	a.version++
	a.log.WithField("job", lease.Job).Info("released")
	return a.offerAgain(lease), nil
}
