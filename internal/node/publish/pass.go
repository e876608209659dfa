package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"caelum/internal/core/eligible"
	"caelum/internal/core/plan"
	"caelum/internal/failpoint"
	"caelum/internal/slurm"
)

// maxReplans limits the number of plans that a pass makes. A new plan is necessary whenever the state changes before
// the plan has been published. After maxReplans plans, the pass gives up, and the offers stay lowered until the next
// pass.
const maxReplans = 6

// ErrUnregistered is the result of a pass on a node whose slurmd has not registered. A job that started there before
// the registration would not be assigned any slot numbers.
var ErrUnregistered = errors.New(
	"slurmd has not registered since slurmctld started; this node offers no slices until it does")

// ErrBusy is the result of a pass that gave up after maxReplans plans. The published offers are correct, but the node
// could offer more slices.
var ErrBusy = errors.New("jobs kept starting while offers were being published; " +
	"the next pass will publish the remaining offers")

// pass publishes a new plan in two phases (docs/internals/publication.md): it lowers the totals of the offers that the
// plan withdraws and then, if the plan is still valid, raises the other totals.
func (p *Publisher) pass(ctx context.Context) (err error) {
	p.atRest = slurm.Node{}
	p.Prepare()
	writes := p.changes.Load()
	defer func() { p.set(func(s *Status) { s.Err = err }) }()
	config, err := p.SlurmConfig(ctx)
	if err != nil {
		return err
	}
	in, err := p.readInput(ctx)
	if err != nil {
		return err
	}
	node := in.node
	p.noteStale(node)
	p.noteClosed(node)
	p.noteWaiting(in)
	p.assignProfile(ctx, in.Queue.Waiting, config)
	p.preempts = config.Preempts()
	for range maxReplans {
		d := p.plan(in, node)
		if err := p.recordAdvertised(d.offers); err != nil {
			return err
		}
		done, err := p.publishPlan(ctx, d, node)
		if err != nil {
			return err
		}
		if done {
			err := p.finish(ctx, d, in)
			if err == nil && p.changes.Load() == writes {
				p.noteRead(in)
			}
			return err
		}
		if in, err = p.readInput(ctx); err != nil {
			return err
		}
		node = in.node
	}
	return ErrBusy
}

// publishPlan lowers the totals, checks the plan, and raises the totals. If the state has changed since the plan was
// made, it returns false: the counts in slurmctld are safe, but a new plan is needed.
func (p *Publisher) publishPlan(ctx context.Context, d nodePlan, node slurm.Node) (done bool, err error) {
	p.Pause()
	if node, err = p.lower(ctx, d, node); err != nil {
		return false, err
	}
	// Since the plan was made, slurmd may have registered, or a job may have been given slices.
	if node.Unregistered != d.withheld || !p.Node.Apply(d.version, d.part(), d.pending) {
		return false, nil
	}
	p.Pause()
	node, short, err := p.raise(ctx, d, node)
	if err != nil {
		return false, err
	}
	// slurmctld's used counts may have decreased between the read and the write even though no epilog has published new
	// totals, because a job with a slice but no slot has ended or slurmctld has lost its counts (`scontrol
	// reconfigure`). slurmctld then shows more free slices than the plan offers.
	if node.Unregistered != d.withheld || exceeds(node, d.offers) {
		return false, nil
	}
	if p.unnotified && p.concernsWatcher(d) {
		p.Raised()
	}
	p.unnotified = false
	p.published = d.version
	if !d.withheld {
		p.set(func(s *Status) { s.Published, s.At, s.Short = node.Gres.Profiles(), p.Node.Now(), short })
	}
	return true, nil
}

// lower withdraws the offers that are not in the plan. It returns the node's record in slurmctld after the write.
func (p *Publisher) lower(ctx context.Context, d nodePlan, node slurm.Node) (slurm.Node, error) {
	low := map[string]int{}
	high, _ := p.totals(node, d)
	for profile, total := range node.Gres.Profiles() {
		low[profile] = min(total, high[profile])
	}
	if !lowers(node, low) {
		return node, nil
	}
	if _, err := p.write(ctx, "lower", node, low, d); err != nil {
		return node, err
	}
	failpoint.Hit(failpoint.Lowered)
	return p.recount(ctx, low)
}

// raise publishes the plan's offers. It returns the node's record in slurmctld after the write, and the part of the
// excess that does not fit into N.
func (p *Publisher) raise(
	ctx context.Context, d nodePlan, node slurm.Node,
) (after slurm.Node, short map[string]int, err error) {
	high, short := p.totals(node, d)
	d.hide(high)
	check, err := p.write(ctx, "raise", node, high, d)
	if err != nil {
		return node, nil, err
	}
	failpoint.Hit(failpoint.Raised)
	if check {
		node, err = p.Slurmctld.Node(ctx, p.Config.Node)
	}
	return node, short, err
}

// finish releases the held jobs whose slices are offered. It is called after a plan has been published.
func (p *Publisher) finish(ctx context.Context, d nodePlan, in input) error {
	if d.withheld {
		return ErrUnregistered
	}
	p.releaseHeld(ctx, in.Queue.Waiting, d.served)
	switch {
	case in.part != nil:
		p.holdStray(ctx, in.stray())
	case d.first:
		p.holdStray(ctx, plan.Stray(in.Snapshot))
	}
	return nil
}

// noteClosed records the Slurm state of a node on which slurmctld does not start jobs. `caelum status` shows it as the
// reason why the node offers no slices.
func (p *Publisher) noteClosed(node slurm.Node) {
	closed := ""
	if !eligible.Schedulable(node) {
		closed = strings.Join(node.States, "+")
	}
	p.set(func(s *Status) { s.Closed = closed })
}

// noteWaiting records the number of waiting jobs that request slices, for the metrics. The number is unknown if the
// agent follows the watcher's plan.
func (p *Publisher) noteWaiting(in input) {
	if in.part != nil {
		p.set(func(s *Status) { s.Read, s.Waiting = false, 0 })
		return
	}
	n := 0
	for _, w := range in.Queue.Waiting {
		if len(w.SlicesPerNode()) > 0 {
			n += max(w.Elements, 1)
		}
	}
	p.set(func(s *Status) { s.Read, s.Waiting = true, n })
}

// read reads the nodes and the jobs from slurmctld, and records a pending lease for every job on this node that does
// not have a lease yet.
func (p *Publisher) read(ctx context.Context) (snapshot plan.Snapshot, node slurm.Node, err error) {
	p.startListing()
	if snapshot.Nodes, snapshot.Queue, err = slurm.List(ctx, p.Slurmctld); err != nil {
		return snapshot, node, err
	}
	snapshot.At = p.Node.Now()
	own := slices.IndexFunc(snapshot.Nodes, func(n slurm.Node) bool { return n.Name == p.Config.Node })
	if own < 0 {
		return snapshot, node, fmt.Errorf("%s: %w; set the `node` key to the NodeName in slurm.conf",
			p.Config.Node, slurm.ErrNoNode)
	}
	node = snapshot.Nodes[own]
	if err := p.learnTotal(node); err != nil {
		return snapshot, node, err
	}
	p.listed = p.Clock()
	if err := p.account(ctx, snapshot.Queue.On(p.Config.Node)); err != nil {
		return snapshot, node, err
	}
	return snapshot, node, p.findExcess(ctx, node)
}

// recount rereads this node's record and the jobs after the totals have been lowered to low. Like read, it updates the
// pending leases.
func (p *Publisher) recount(ctx context.Context, low map[string]int) (node slurm.Node, err error) {
	if node, err = p.Slurmctld.Node(ctx, p.Config.Node); err != nil {
		return node, err
	}
	if p.following.Load() && !node.Unregistered && p.explained(node, low) {
		return node, nil
	}
	return node, p.list(ctx)
}
