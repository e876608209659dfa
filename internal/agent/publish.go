package agent

import (
	"context"
	"errors"
	"os"
	"time"

	"caelum/internal/failpoint"
	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/place"
	"caelum/internal/slurm"
)

// retryInterval is how soon a pass that failed is tried again.
const retryInterval = time.Second

// A pass is repeated when jobs take something while it runs; this often, then the node stays lowered until the next one.
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

// publisher runs the passes: on request, and at every poll.
func (a *Agent) publisher(ctx context.Context) {
	poll := time.NewTicker(a.cfg.PollInterval)
	defer poll.Stop()
	var retry <-chan time.Time
	for {
		var waiting []chan error
		select {
		case <-ctx.Done():
			return
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
		err := a.pass(ctx)
		retry = nil
		if err != nil && ctx.Err() == nil {
			a.log.WithError(err).Warn("couldn't publish; trying again")
			retry = time.After(retryInterval)
		}
		for _, answer := range waiting {
			answer <- err
		}
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
	node, err := a.read(ctx)
	if err != nil {
		return err
	}
	a.noteStale(node)
	waiting, err := a.ctl.Waiting(ctx)
	if err != nil {
		return err
	}
	a.retype(ctx, waiting)
	demands := a.demands(node, waiting)
	for range maxReplans {
		d := a.plan(demands, node.Unregistered)
		pause()
		taken := a.taken(node)
		low := map[string]int{}
		for profile, total := range count(node.Gres) {
			low[profile] = min(total, taken[profile]+d.offers[profile])
		}
		if err := a.write(ctx, "lower", node, low, d); err != nil {
			return err
		}
		failpoint.Hit(failpoint.Lowered)
		again, err := a.read(ctx)
		if err != nil {
			return err
		}
		node = again
		if node.Unregistered != d.withheld || !a.adopt(d) {
			continue // slurmd registered, or something was taken, since the plan was made
		}
		pause()
		taken = a.taken(node)
		high := map[string]int{}
		for _, profile := range a.profiles {
			high[profile] = taken[profile] + d.offers[profile]
		}
		if err := a.write(ctx, "raise", node, high, d); err != nil {
			return err
		}
		failpoint.Hit(failpoint.Raised)
		// What is used may have dropped between read and write with no epilog to publish anew: a job with a slice and no
		// slot came and went, or slurmctld forgot (`scontrol reconfigure`). Then more is free than was planned.
		if node, err = a.ctl.Node(ctx, a.cfg.Node); err != nil {
			return err
		}
		if exceeds(node, d.offers) {
			if node, err = a.read(ctx); err != nil {
				return err
			}
			continue
		}
		if d.withheld {
			return errUnregistered
		}
		a.mu.Lock()
		a.published, a.publishedAt = count(node.Gres), a.now()
		a.mu.Unlock()
		a.releaseHeld(ctx, waiting, d.served)
		return nil
	}
	return errBusy
}

// draft is a plan with what it was made from.
type draft struct {
	version  int
	withheld bool // nothing is on offer: slurmd has not registered
	gpus     []offer.GPU
	plan     offer.Plan
	served   []uint32 // jobs that find all that they want here on offer
	offers   map[string]int
	claims   map[uint32][]offer.Spot
}

// plan makes a draft of the state as it is. Withheld, it keeps what jobs hold and offers nothing. Prologs go on meanwhile: adopt finds
// out whether the state still is what the draft was made from.
func (a *Agent) plan(demands []*offer.Job, withheld bool) draft {
	a.mu.Lock()
	d := draft{version: a.version, withheld: withheld, gpus: a.view()}
	d.claims = a.settleClaims(d.gpus)
	a.mu.Unlock()
	nothing := offer.Plan{Offers: make([]mig.Layout, len(d.gpus))}
	d.plan = nothing
	if !withheld {
		d.plan = offer.Make(offer.NewCluster(d.gpus, nil, place.Reach), demands, false)
	}
	if err := d.plan.Check(d.gpus); err != nil {
		// It cannot be; if it is, the queue waits rather than two jobs sharing a slice.
		a.log.WithError(err).Error("the plan is unsound; offering nothing; please report this")
		d.plan = nothing
	}
	for k, spots := range d.plan.Spots {
		if spots != nil {
			d.served = append(d.served, demands[k].ID)
		}
	}
	d.offers = d.plan.Counts(d.gpus)
	return d
}

// adopt puts a draft in force, unless something was taken since it was made.
func (a *Agent) adopt(d draft) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.version != d.version {
		return false
	}
	a.offers = d.plan.Offers
	for job, spots := range d.claims {
		a.promised[job].spots = spots
	}
	return true
}

// read asks slurmctld for the node, then for its jobs, and counts every job without a lease as holding what it took.
// The order matters: a job that starts between the two reads is then among the jobs; read the other way round it would
// only be in GresUsed, and its slice would be offered once more.
func (a *Agent) read(ctx context.Context) (slurm.Node, error) {
	node, err := a.ctl.Node(ctx, a.cfg.Node)
	if err != nil {
		return node, err
	}
	if err := a.learnTotal(node); err != nil {
		return node, err
	}
	jobs, err := a.ctl.OnNode(ctx, a.cfg.Node)
	if err != nil {
		return node, err
	}
	present := map[uint32]bool{}
	for _, j := range jobs {
		present[j.ID] = true
		// A job that is ending takes nothing any more: a prolog that still comes is refused.
		if !j.Holds() || !asksForSlices(j.Job) || a.accounted(j.ID, j.Restarts) {
			continue
		}
		if err := a.preLease(ctx, j.ID); err != nil {
			return node, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for job, pr := range a.promised {
		if !present[job] && !pr.leasing {
			delete(a.promised, job)
			a.version++
		}
	}
	return node, nil
}

func (a *Agent) accounted(job uint32, restarts int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.leases[job]; l != nil && l.Restart >= restarts {
		return true
	}
	return a.promised[job] != nil
}

// preLease counts a job that slurmctld has started here and that has no lease yet.
func (a *Agent) preLease(ctx context.Context, id uint32) error {
	job, err := a.ctl.Job(ctx, id)
	switch {
	case errors.Is(err, slurm.ErrNoJob):
		return nil
	case errors.Is(err, slurm.ErrAmbiguous): // then what it requested counts, and its prolog will be refused
		job.Allocated = map[string][]slurm.GRES{a.cfg.Node: job.PerNode}
	case err != nil:
		return err
	}
	wants, _ := a.wants(job, 0)
	if len(wants) == 0 || !job.Holds() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.leases[id]; a.promised[id] != nil || l != nil && l.Restart >= job.Restarts {
		return nil
	}
	if _, ok := a.take(id, wants); !ok {
		a.promised[id] = &promise{wants: wants}
		a.version++
	}
	return nil
}

// pause sleeps where a test asks for it, between a read and the write that builds on it: CAELUM_TEST_PUBLISH_PAUSE=100ms.
func pause() {
	if d, err := time.ParseDuration(os.Getenv("CAELUM_TEST_PUBLISH_PAUSE")); err == nil {
		time.Sleep(d)
	}
}
