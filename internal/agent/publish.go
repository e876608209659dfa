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

// retryInterval is how soon a pass that failed is tried again.
const retryInterval = time.Second

// A pass is repeated when jobs take something while it runs; this often, then the node stays lowered until the next
// one.
const maxReplans = 6

// errUnregistered is a node on which jobs would start without the numbers of their slots.
var errUnregistered = errors.New("slurmd has not registered since slurmctld's start; nothing is on offer until it has")

// errBusy is a pass that gave up: sound, but with less on offer than there could be.
var errBusy = errors.New("jobs kept starting while publishing; the rest follows with the next pass")

// Publish runs a pass that begins after the call and answers its result. Calls that wait at the same time share one.
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

// settling is how long a change of what stands on the node may wait for others before it is published.
const settling = 200 * time.Millisecond

// slowdown bounds what a slow slurmctld is asked for: between looks that nobody asked for passes this many times what
// the last pass took. maxPause limits that pause: however long a pass took, another one begins within about a minute.
const (
	slowdown = 20
	maxPause = time.Minute
)

// publisher runs the passes: on request, when something stands otherwise than was published, and when none has been for
// the poll interval or up to a tenth longer. Polls begin anywhere in the first: the agents of a cluster are often
// started together.
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
		// agents that were woken together do not poll together, nor just after the comparison of every minute
		poll.Reset(next + rand.N(next/10))
		for _, answer := range waiting {
			answer <- err
		}
	}
}

// pauseAfter is the time from a pass that took so long to the next one that nothing asks for.
func pauseAfter(took, poll time.Duration) time.Duration {
	return max(poll, min(slowdown*took, maxPause))
}

// publishSoon has what stands on the node published in a moment.
func (a *Agent) publishSoon() {
	select {
	case a.changed <- struct{}{}:
	default: // it will be
	}
}

// pass publishes in two phases (docs/internals.md): lower what the new plan withdraws, read again, and only then raise.
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
		for profile, total := range count(node.Gres) {
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
		// slurmd registered, or something was taken, since the plan was made
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
		// What is used may have dropped between read and write with no epilog to publish anew: a job with a slice and
		// no slot came and went, or slurmctld forgot (`scontrol reconfigure`). Then more is free than was planned.
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
		a.published, a.publishedAt, a.short = count(node.Gres), a.now(), short
		a.mu.Unlock()
		a.releaseHeld(ctx, snapshot.Queue.Waiting, d.served)
		if d.first {
			a.holdStray(ctx, snapshot)
		}
		return nil
	}
	return errBusy
}

// noteClosed keeps the state of a node on which slurmctld starts nothing, for whoever asks why nothing is on offer.
func (a *Agent) noteClosed(node slurm.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = ""
	if !node.Schedulable() {
		a.closed = strings.Join(node.States, "+")
	}
}

// draft is a plan with what it was made from.
type nodePlan struct {
	version  int
	withheld bool // nothing is on offer: slurmd has not registered
	first    bool // of all nodes that are planned for
	gpus     []offer.GPU
	text     string     // what stands on them, for the other agents
	back     string     // the jobs that stand behind the others, for caelum explain
	mine     offer.Plan // this node's part of the plan
	served   []uint32   // jobs that find on offer here all that they want on this node
	reserved *api.Reservation
	offers   map[string]int
	claims   map[uint32][]offer.Spot
	next     next
}

// plan makes a draft of the state as it is, as this node's part of the cluster's plan. Withheld, it keeps what jobs
// hold and offers nothing; so it does on a node that slurmctld starts nothing on. Prologs go on meanwhile: adopt finds
// out whether the state still is what the draft was made from.
func (a *Agent) plan(snapshot plan.Snapshot, node slurm.Node) nodePlan {
	a.mu.Lock()
	d := nodePlan{version: a.version, withheld: node.Unregistered, gpus: a.view()}
	d.claims = a.settleClaims(d.gpus)
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
		d.served, d.reserved = a.share(v, all, me, d)
		d.next = nextOn(v, all, me)
	} else if node.Schedulable() && !node.Unregistered {
		a.log.WithField("extra", d.text).Error("what this node publishes of itself cannot be read; offering nothing; please report this")
	}
	if err := d.mine.Check(d.gpus); err != nil {
		// It cannot be; if it is, the queue waits rather than two jobs sharing a slice.
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

// text is the node's state as every user may read it in slurmctld. The plan is made from the same text, since other
// agents plan from it too.
func (a *Agent) text(gpus []offer.GPU) string {
	return plan.Text(plan.State{GPUs: gpus, Since: a.offersSince, Private: a.hidesJobs()})
}

// carry translates a member's part of the plan to its own GPU models, which may have profiles that are not published.
// What does not fit beside an instance of one of these is left out.
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

// share is whom a plan serves on a member with what a draft offers there, and what it reserves there.
func (a *Agent) share(v *plan.View, all offer.Plan, me int, d nodePlan) (served []uint32, reserved *api.Reservation) {
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

// apply puts a plan in force, unless something was taken since it was made.
func (a *Agent) apply(d nodePlan) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.version != d.version {
		return false
	}
	a.offers, a.as, a.reserved, a.next = d.mine.Offers, d.mine.AdvertisedAs, d.reserved, d.next
	for job, spots := range d.claims {
		a.pending[job].spots = spots
	}
	return true
}

// read asks slurmctld for the nodes and the jobs, and counts every job here without a lease as holding what it took.
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

// recount asks for what a plan that is made already needs to know: this node, then the jobs.
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

// account counts the jobs that are on the node.
func (a *Agent) account(ctx context.Context, jobs []slurm.Job) error {
	here := map[uint32]slurm.Job{}
	for _, j := range jobs {
		here[j.ID] = j
		// A job that is ending takes nothing any more: a prolog that still comes is refused. What a job with an
		// unreadable record asked for is not known, and slurmctld may have given it slices.
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

// preLease counts a job that slurmctld has started here and that has no lease yet. Of a job whose record is unclear the
// request counts: one user's job must not keep the node from publishing. Its promise ends with its prolog, so a job
// without GPU slots, which has no prolog, gets no promise.
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
		job.Allocated = map[string][]slurm.GRES{a.cfg.Node: some(slices.Clone(job.PerNode))}
		slots = a.slotsAsked(job)
	case err != nil:
		return err
	default:
		slots = gpus(job.Allocated[a.cfg.Node])
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
	if err != nil || len(wants) == 0 || slots == 0 { // there will be no prolog, or one that carves nothing
		if slots == 0 && len(wants) > 0 {
			a.log.WithField("job", id).
				Warn("job has slices and no gres/gpu, so it gets no device; slurmctld starts as many fewer jobs until it ends")
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

// slotsAsked is the most GPU slots of this node that a job can have by its request.
func (a *Agent) slotsAsked(job slurm.Job) int {
	if job.Exclusive {
		return a.slotCount()
	}
	return min(job.GPUsPerNode(), a.slotCount())
}

// pause sleeps where a test asks for it, between a read and the write that builds on it:
// CAELUM_TEST_PUBLISH_PAUSE=100ms.
func pause() {
	if d, err := time.ParseDuration(os.Getenv("CAELUM_TEST_PUBLISH_PAUSE")); err == nil {
		time.Sleep(d)
	}
}
