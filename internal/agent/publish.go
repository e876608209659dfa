package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"caelum/internal/api"
	"caelum/internal/failpoint"
	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/plan"
	"caelum/internal/slurm"
)

// retryInterval is the pause before a failed pass is repeated.
const retryInterval = time.Second

// maxReplans limits how often a pass plans again because jobs took slices while it ran. After that the pass gives up,
// and the offers stay lowered until the next pass.
const maxReplans = 6

// errUnregistered is the result of a pass on a node whose slurmd has not registered: a job that started there would not
// get the numbers of its slots.
var errUnregistered = errors.New(
	"slurmd has not registered since slurmctld started; this node offers nothing until slurmd registers")

// errBusy is the result of a pass that gave up after maxReplans plans. The published offers are correct, but there are
// fewer than possible.
var errBusy = errors.New("jobs kept starting during the pass; the next pass publishes the remaining offers")

// Publish runs a pass that begins after the call, and returns its result. Calls that wait at the same time share a
// pass.
func (a *Agent) Publish(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case a.publish <- answer:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settling is the time from a change on the node to the pass that publishes it. Further changes in this time need no
// pass of their own.
const settling = 200 * time.Millisecond

// slowdown limits the load on a slow slurmctld: the pause before the next poll is at least slowdown times the duration
// of the last pass. maxPause limits this pause, so that after a pass of any duration the next one begins within about a
// minute.
const (
	slowdown = 20
	maxPause = time.Minute
)

// publisher runs the passes: on request, after a change on the node, and as a poll when there was no pass for the poll
// interval plus up to a tenth. The first poll begins at a random time within the poll interval, since the agents of a
// cluster are often started together.
func (a *Agent) publisher(ctx context.Context) {
	poll := time.NewTimer(rand.N(a.cfg.PollInterval))
	defer poll.Stop()
	var retry, settled <-chan time.Time
	for {
		var waiting []chan error
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
			if settled == nil {
				settled = time.After(settling)
			}
			continue
		case <-settled:
		case <-poll.C:
		case <-retry:
		case answer := <-a.publish:
			waiting = append(waiting, answer)
		}
		for more := true; more; {
			select {
			case answer := <-a.publish:
				waiting = append(waiting, answer)
			default:
				more = false
			}
		}
		began := time.Now()
		err := a.pass(ctx)
		retry, settled = nil, nil
		if err != nil && ctx.Err() == nil {
			a.log.WithError(err).Warn("couldn't publish; trying again")
			retry = time.After(retryInterval)
		}
		next := pauseAfter(time.Since(began), a.cfg.PollInterval)
		// The random part keeps agents that were notified together from polling together, and keeps the polls apart
		// from the comparison that runs every minute.
		poll.Reset(next + rand.N(next/10))
		for _, answer := range waiting {
			answer <- err
		}
	}
}

// pauseAfter returns the time from a pass that took this long to the next poll.
func pauseAfter(took, poll time.Duration) time.Duration {
	return max(poll, min(slowdown*took, maxPause))
}

// publishSoon schedules a pass that publishes the node's state after the settling time.
func (a *Agent) publishSoon() {
	select {
	case a.changed <- struct{}{}:
	default: // a pass is scheduled already
	}
}

// pass publishes a new plan in two phases (docs/internals.md): it lowers the totals that the plan withdraws, reads
// slurmctld's state again, and only then raises the other totals.
func (a *Agent) pass(ctx context.Context) (err error) {
	defer func() {
		a.mu.Lock()
		a.publishErr = err
		a.mu.Unlock()
	}()
	if _, err := a.slurmConfig(ctx); err != nil {
		return err
	}
	snapshot, node, err := a.read(ctx)
	if err != nil {
		return err
	}
	a.noteStale(node)
	a.noteClosed(node)
	a.assignProfile(ctx, snapshot.Queue.Waiting)
	for range maxReplans {
		d := a.plan(snapshot, node)
		if err := a.recordAdvertised(d.offers); err != nil {
			return err
		}
		pause()
		low := map[string]int{}
		high, _ := a.totals(node, d.offers)
		for profile, total := range node.Gres.Profiles() {
			low[profile] = min(total, high[profile])
		}
		lowered := lowers(node, low)
		if lowered {
			if _, err := a.write(ctx, "lower", node, low, d); err != nil {
				return err
			}
			failpoint.Hit(failpoint.Lowered)
			if node, err = a.recount(ctx); err != nil {
				return err
			}
		}
		// Since the plan was made, slurmd may have registered, or a job may have taken slices.
		if node.Unregistered != d.withheld || !a.apply(d) {
			if snapshot, node, err = a.read(ctx); err != nil {
				return err
			}
			continue
		}
		pause()
		high, short := a.totals(node, d.offers)
		wrote, err := a.write(ctx, "raise", node, high, d)
		if err != nil {
			return err
		}
		failpoint.Hit(failpoint.Raised)
		// slurmctld's used counts may have dropped between read and write without an epilog that would publish again: a
		// job with a slice and no slot ended, or slurmctld lost its counts (`scontrol reconfigure`). Then more is free
		// than the plan offers.
		if wrote {
			if node, err = a.ctl.Node(ctx, a.cfg.Node); err != nil {
				return err
			}
		}
		if node.Unregistered != d.withheld || exceeds(node, d.offers) {
			if snapshot, node, err = a.read(ctx); err != nil {
				return err
			}
			continue
		}
		if d.withheld {
			return errUnregistered
		}
		a.mu.Lock()
		a.published, a.publishedAt, a.short = node.Gres.Profiles(), a.now(), short
		a.mu.Unlock()
		a.releaseHeld(ctx, snapshot.Queue.Waiting, d.served)
		if d.first {
			a.holdStray(ctx, snapshot)
		}
		return nil
	}
	return errBusy
}

// noteClosed records the state of a node on which slurmctld starts no job, so that the status can show why the node
// offers nothing.
func (a *Agent) noteClosed(node slurm.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = ""
	if !node.Schedulable() {
		a.closed = strings.Join(node.States, "+")
	}
}

// nodePlan is this node's part of the cluster's plan, with the state from which it was made.
type nodePlan struct {
	version  int  // Agent.version when the plan was made
	withheld bool // the node offers nothing, since slurmd has not registered
	first    bool // this node is the first of the plan's nodes
	gpus     []offer.GPU
	text     string     // the state of the GPUs, for the other agents
	back     string     // the jobs that the plan puts behind the others, for caelum explain
	mine     offer.Plan // this node's part of the plan
	served   []uint32   // the jobs for which this node offers all slices that they are to get here
	reserved *api.Reservation
	offers   map[string]int
	pending  map[uint32][]offer.Spot // places found for pending leases that had none
	next     next
}

// plan plans from the present state for all nodes, and returns this node's part. If slurmd has not registered, or if
// slurmctld starts no job on the node, the plan keeps the slices that jobs hold and offers nothing. Prologs run in the
// meantime. apply therefore checks whether the state is still the one from which the plan was made.
func (a *Agent) plan(snapshot plan.Snapshot, node slurm.Node) nodePlan {
	a.mu.Lock()
	d := nodePlan{version: a.version, withheld: node.Unregistered, gpus: a.view()}
	d.pending = a.placePending(d.gpus)
	a.mu.Unlock()
	d.text = a.text(d.gpus)
	nothing := offer.Plan{Offers: make([]mig.Layout, len(d.gpus))}
	d.mine = nothing
	snapshot.Nodes = slices.Clone(snapshot.Nodes)
	for k := range snapshot.Nodes {
		if snapshot.Nodes[k].Name == node.Name {
			snapshot.Nodes[k].Extra = plan.Into(node.Extra, d.text)
		}
	}
	v := plan.New(
		a.unstarted.Behind(snapshot),
		a.policy,
		func(n slurm.Node) bool { return n.Name != node.Name && a.unresponsive.Out(n, snapshot.At) },
	)
	all := v.Plan()
	a.unresponsive.Follow(v, all, node.Name, snapshot.At)
	a.unstarted.Follow(v, all, snapshot.At)
	d.back = a.unstarted.Back(node.Name, snapshot.At)
	if me := v.Member(node.Name); me >= 0 {
		d.first = me == 0
		d.mine = a.carry(d.gpus, v, all, me)
		d.served, d.reserved = a.servedAndReserved(v, all, me, d)
		d.next = nextOn(v, all, me)
	} else if node.Schedulable() && !node.Unregistered {
		a.log.WithField("extra", d.text).
			Error("couldn't read back the state that this node publishes; offering nothing; please report this")
	}
	if err := d.mine.Check(d.gpus); err != nil {
		// This would be a defect of the planner. Then jobs must wait, so that no two jobs get the same slice.
		a.log.WithError(err).Error("the plan is unsound; offering nothing; please report this")
		d.mine, d.served, d.next = nothing, nil, next{}
	}
	d.offers = d.mine.Counts(d.gpus)
	if !maps.Equal(d.offers, a.offered) {
		a.offered, a.offersSince = d.offers, a.now()
		d.text = a.text(d.gpus)
	}
	return d
}

// text returns the node's state in the form that every user can read in slurmctld. This agent plans from the same text,
// since the other agents plan from it too.
func (a *Agent) text(gpus []offer.GPU) string {
	return plan.Text(plan.State{GPUs: gpus, Since: a.offersSince, Private: a.hidesJobs()})
}

// carry translates this node's part of the plan to the GPU models of its driver, which may have profiles that the node
// does not publish. It omits an offer that does not fit beside an instance of such a profile.
func (a *Agent) carry(gpus []offer.GPU, v *plan.View, all offer.Plan, me int) offer.Plan {
	mine := offer.Plan{Offers: make([]mig.Layout, len(gpus)), AdvertisedAs: map[offer.Spot]string{}}
	for k, on := range v.Offers(all, me) {
		g := gpus[k]
		if g.Model == nil {
			continue
		}
		from := v.Pool.GPU(v.Nodes[me][k]).Model
		for i := range on.Indices() {
			there, _ := g.Model.Carry(from, mig.Layout(0).With(i))
			for j := range there.Indices() {
				if !g.Model.Fits(g.Busy|mine.Offers[k], j) || g.Model.Units(j)&g.Blocked != 0 {
					continue
				}
				mine.Offers[k] = mine.Offers[k].With(j)
				if name, ok := all.AdvertisedAs[offer.Spot{GPU: v.Nodes[me][k], Placement: i}]; ok {
					mine.AdvertisedAs[offer.Spot{GPU: k, Placement: j}] = name
				}
			}
		}
	}
	return mine
}

// servedAndReserved returns the jobs for which node me offers all slices that the plan gives them on that node, and the
// slices that the plan reserves there.
func (a *Agent) servedAndReserved(
	v *plan.View, all offer.Plan, me int, d nodePlan,
) (served []uint32, reserved *api.Reservation) {
	on := v.Nodes[me]
	here := func(s offer.Spot) bool { return slices.Contains(on, s.GPU) }
	missing := func(s offer.Spot) bool {
		if !here(s) {
			return false
		}
		k := s.GPU - on[0]
		own, _ := d.gpus[k].Model.Carry(v.Pool.GPU(s.GPU).Model, mig.Layout(0).With(s.Placement))
		return own == 0 || d.mine.Offers[k]&own == 0
	}
	for k, spots := range all.Spots {
		if slices.ContainsFunc(spots, here) && !slices.ContainsFunc(spots, missing) {
			served = append(served, v.Jobs[k].ID)
		}
	}
	r := all.Reserved
	if r == nil || math.IsInf(r.At, 1) || !slices.ContainsFunc(r.Spots, here) {
		return served, nil
	}
	reserved = &api.Reservation{Job: v.Jobs[r.Job].ID, At: int64(r.At)}
	for _, s := range r.Spots {
		if here(s) {
			b := v.Pool.GPU(s.GPU).Model
			pl := b.Placements[s.Placement]
			reserved.Slices = append(
				reserved.Slices,
				api.ReservedSlice{
					GPU:       s.GPU - on[0],
					Placement: api.Placement{Profile: b.Profiles[pl.Profile].Name, Start: pl.Start, Size: pl.Size},
				},
			)
		}
	}
	return served, reserved
}

// apply puts a plan into force. It returns false, and changes nothing, if the state has changed since the plan was
// made.
func (a *Agent) apply(d nodePlan) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.version != d.version {
		return false
	}
	a.offers, a.as, a.reserved, a.next = d.mine.Offers, d.mine.AdvertisedAs, d.reserved, d.next
	for job, spots := range d.pending {
		a.pending[job].spots = spots
	}
	return true
}

// read reads the nodes and the jobs from slurmctld. It records a pending lease for every job on this node that has no
// lease yet.
func (a *Agent) read(ctx context.Context) (snapshot plan.Snapshot, node slurm.Node, err error) {
	if snapshot, err = plan.Read(ctx, a.ctl, a.now); err != nil {
		return snapshot, node, err
	}
	own := slices.IndexFunc(snapshot.Nodes, func(n slurm.Node) bool { return n.Name == a.cfg.Node })
	if own < 0 {
		return snapshot, node, fmt.Errorf("%s: %w; is this the NodeName in slurm.conf?", a.cfg.Node, slurm.ErrNoNode)
	}
	node = snapshot.Nodes[own]
	if err := a.learnTotal(node); err != nil {
		return snapshot, node, err
	}
	if err := a.account(ctx, snapshot.Queue.On(a.cfg.Node)); err != nil {
		return snapshot, node, err
	}
	return snapshot, node, a.findExcess(ctx, node)
}

// recount reads this node and the jobs again after the lowering write. It updates the pending leases like read.
func (a *Agent) recount(ctx context.Context) (node slurm.Node, err error) {
	if node, err = a.ctl.Node(ctx, a.cfg.Node); err != nil {
		return node, err
	}
	jobs, err := a.ctl.Jobs(ctx)
	if err != nil {
		return node, err
	}
	return node, a.account(ctx, slurm.On(jobs, a.cfg.Node))
}

// account compares the pending leases with the jobs that slurmctld has on the node: it adds those of new jobs and
// removes those of jobs that are gone.
func (a *Agent) account(ctx context.Context, jobs []slurm.Job) error {
	here := map[uint32]slurm.Job{}
	for _, j := range jobs {
		here[j.ID] = j
		// A job that is ending takes no slices: its prolog is refused if it still comes. The request of a job with an
		// unreadable record is not known, so slurmctld may have given it slices.
		if !j.Holds() || !asksForSlices(j) && j.Problem == "" || a.accounted(j.ID, j.Restarts) {
			continue
		}
		if err := a.preLease(ctx, j); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.here = here
	for job, pr := range a.pending {
		if _, present := here[job]; !present && !pr.leasing {
			delete(a.pending, job)
			a.version++
		}
	}
	maps.DeleteFunc(a.allocations, func(job uint32, _ allocation) bool { _, present := here[job]; return !present })
	for job := range a.unserved {
		if _, present := here[job]; !present {
			delete(a.unserved, job)
		}
	}
	return nil
}

// accounted reports whether a run of a job has a lease or a pending lease, or is known to need none.
func (a *Agent) accounted(job uint32, restarts int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.leases[job]; l != nil && l.Restart >= restarts {
		return true
	}
	if restart, ok := a.unserved[job]; ok && restart >= restarts {
		return true
	}
	return a.pending[job] != nil
}

// preLease records a pending lease for a job that slurmctld has started here and that has no lease yet. If the job's
// record is unclear, the listed request counts instead, since one user's job must not keep the node from publishing.
// The job's prolog ends the pending lease. A job without GPU slots has no prolog that asks for a lease, and therefore
// gets no pending lease.
func (a *Agent) preLease(ctx context.Context, listed slurm.Job) error {
	id, slots := listed.ID, 0
	job, err := a.ctl.Job(ctx, id)
	if err == nil || classOf(err) == unclear {
		a.noteAllocation(listed, job, err)
	}
	switch {
	case errors.Is(err, slurm.ErrNoJob):
		return nil
	case classOf(err) == unclear:
		job = listed
		job.Allocated = map[string]slurm.GRESList{a.cfg.Node: job.PerNode.Positive()}
		slots = a.slotsAsked(job)
	case err != nil:
		return err
	default:
		slots = job.Allocated[a.cfg.Node].Total("gpu")
	}
	if !job.Holds() {
		return nil
	}
	wants, err := a.wants(job, slots)
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.leases[id]; a.pending[id] != nil || l != nil && l.Restart >= job.Restarts {
		return nil
	}
	if err != nil || len(wants) == 0 || slots == 0 { // no prolog will carve slices for the job
		if slots == 0 && len(wants) > 0 {
			a.log.WithField("job", id).
				Warn("job has gres/mig but no gres/gpu, so it gets no device; its slices count as used until it ends")
		}
		a.unserved[id] = job.Restarts
		return nil
	}
	if _, ok := a.takeOffers(id, wants); !ok {
		a.pending[id] = &pendingLease{wants: wants}
		a.version++
	}
	return nil
}

// slotsAsked returns the highest number of GPU slots of this node that a job can have by its request.
func (a *Agent) slotsAsked(job slurm.Job) int {
	if job.Exclusive {
		return a.slotCount()
	}
	return min(job.GPUsPerNode(), a.slotCount())
}

// pause sleeps between a read and the write that relies on it, for the duration in CAELUM_TEST_PUBLISH_PAUSE (100ms).
// Only tests set this variable.
func pause() {
	if d, err := time.ParseDuration(os.Getenv("CAELUM_TEST_PUBLISH_PAUSE")); err == nil {
		time.Sleep(d)
	}
}
