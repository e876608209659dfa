package publish

import (
	"context"
	"errors"
	"slices"
	"time"

	"caelum/internal/core/part"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// If the watcher makes plans, it writes each node's part to the node's Comment, and a heartbeat to
// the Comment of one node (package part). While the heartbeat is fresh, the agent follows its part: a pass reads only
// this node's record, and lists the jobs only if the agent's leases do not account for the node's used counts.
// Otherwise, the agent makes the plan itself.

// input is the data that a pass reads. If the agent follows the watcher's plan, part is the node's part of the plan,
// and the queue contains only the waiting jobs named in the part.
type input struct {
	plan.Snapshot
	node slurm.Node
	part *part.Part
}

// stray returns the het job components that, according to the part, the agent must hold.
func (in input) stray() (all []slurm.Waiting) {
	for _, id := range in.part.Stray {
		all = append(all, slurm.Waiting{Job: &slurm.Job{ID: id}})
	}
	return all
}

const (
	// relist is the time after which a pass lists all jobs even if the leases account for the used counts. This updates
	// the expected end times of the jobs, for example after a change to a time limit.
	relist = 10 * time.Minute
	// RelistConfirmed replaces relist while the watcher confirms the node's record. On a large cluster, a shorter time
	// would cost slurmctld more than the watcher does.
	RelistConfirmed = time.Hour
	// patienceFactor adapts the expiry of the heartbeat to a slow slurmctld, which also delays the watcher. A heartbeat
	// expires only after patienceFactor times the duration of the request that read it.
	patienceFactor = 8
)

// readInput reads the data for a pass from slurmctld: only this node if the agent follows the watcher's plan, and all
// nodes and jobs otherwise.
func (p *Publisher) readInput(ctx context.Context) (in input, err error) {
	if p.following.Load() {
		if in, err = p.readOwn(ctx); err != nil || in.part != nil {
			return in, err
		}
		p.Log.Warn("the watcher's plan has expired; this node makes its own plan")
		p.following.Store(false)
	}
	if in.Snapshot, in.node, err = p.read(ctx); err != nil {
		return in, err
	}
	if p.following.Load() || !p.sees(in) {
		return in, nil
	}
	p.Log.Info("following the watcher's plan")
	p.Node.Lock()
	p.following.Store(true)
	p.Node.Here = p.Node.WithNoted(p.Node.Here)
	p.Node.Unlock()
	return p.readOwn(ctx)
}

// sees reports whether the snapshot contains a part for this node and a fresh heartbeat. A heartbeat that the agent
// reads for the first time is considered fresh, so an agent that has just started can follow a plan for up to Expiry
// after the planner has ended.
func (p *Publisher) sees(in input) bool {
	own, err := part.Parse(part.In(in.node.Comment))
	if err != nil {
		return false
	}
	k := slices.IndexFunc(in.Nodes, func(n slurm.Node) bool { return n.Name == own.Beat })
	if k < 0 {
		return false
	}
	p.hear(in.Nodes[k])
	return p.heartbeat.Fresh(p.heard, part.Expiry)
}

// readOwn reads this node's record and its part of the plan. If the node has no part, or if the heartbeat has expired,
// in.part is nil.
func (p *Publisher) readOwn(ctx context.Context) (in input, err error) {
	limit := part.Expiry
	began := p.Clock()
	in.node, err = p.readNodes(ctx)
	if err != nil {
		return in, err
	}
	own, err := part.Parse(part.In(in.node.Comment))
	if err != nil {
		return in, nil
	}
	if own.Beat != p.beatNode { // the planner has chosen another node for its heartbeat
		beat, err := p.Slurmctld.Node(ctx, own.Beat)
		if errors.Is(err, slurm.ErrNoNode) {
			return in, nil
		} else if err != nil {
			return in, err
		}
		p.hear(beat)
	}
	if p.heard.After(began) {
		limit = max(limit, patienceFactor*p.heard.Sub(began))
	}
	if !p.heartbeat.Fresh(p.Clock(), limit) {
		return in, nil
	}
	if err := p.learnTotal(in.node); err != nil {
		return in, err
	}
	if !p.explained(in.node, p.status.Published) {
		if err := p.list(ctx); err != nil {
			return in, err
		}
		if err := p.findExcess(ctx, in.node); err != nil {
			return in, err
		}
	}
	in.part, in.At = &own, p.Node.Now()
	in.Queue.Waiting, err = p.readHeld(ctx, own.Held)
	return in, err
}

// readNodes reads this node's record. If the heartbeat was last read longer ago than the time between heartbeats, the
// same request also reads the record of the node that carries the heartbeat.
func (p *Publisher) readNodes(ctx context.Context) (own slurm.Node, err error) {
	other := p.beatNode != "" && p.beatNode != p.Config.Node && p.Clock().Sub(p.heard) >= part.Every
	if other {
		nodes, err := p.Slurmctld.NamedNodes(ctx, p.Config.Node, p.beatNode)
		if err == nil {
			p.hear(nodes[1])
			return nodes[0], nil
		} else if !errors.Is(err, slurm.ErrNoNode) {
			return own, err
		}
		p.beatNode = "" // the node may have been removed
	}
	if own, err = p.Slurmctld.Node(ctx, p.Config.Node); err == nil && own.Name == p.beatNode {
		p.hear(own)
	}
	return own, err
}

// confirmation is the last confirmation from the watcher.
type confirmation struct {
	beat, digest string
	at           time.Time // the time at which the watcher sent it or, if that is earlier, the agent received it
}

// Confirm stores a confirmation that was sent at the given time. It may be called at any time.
func (p *Publisher) Confirm(text string, sent time.Time) {
	if beat, digest, ok := part.ParseConfirmation(text); ok {
		at := p.Clock()
		if sent.Before(at) {
			at = sent
		}
		p.confirmed.Store(&confirmation{beat, digest, at})
	}
}

// noteRead records the node's record after a pass that wrote nothing to slurmctld. It records nothing if the next poll
// may have work to do: if the agent makes its own plan, if the part names jobs to process, or if the node has an excess
// of used slices.
func (p *Publisher) noteRead(in input) {
	if in.part != nil && len(in.part.Held) == 0 && len(in.part.Stray) == 0 && len(p.status.Excess) == 0 {
		p.atRest = in.node
	}
}

// isConfirmed reports whether the agent may omit a poll: according to the watcher's last confirmation, the node's
// record is the one that the last pass read, slurmctld's configuration is the one that the agent last read, and the
// node's state, with the expected ends of its jobs, is the published one. It returns false if the confirmation is older
// than part.Expiry, or the last listing of the jobs older than RelistConfirmed.
func (p *Publisher) isConfirmed() bool {
	c, config := p.confirmed.Load(), p.Privacy.Load()
	now := p.Clock()
	if c == nil || config == nil || p.atRest.Name == "" || c.digest != part.Digest(p.atRest, *config) ||
		now.Sub(c.at).Abs() >= part.Expiry || now.Sub(p.listed) >= RelistConfirmed || !p.following.Load() ||
		!p.isPublished() {
		return false
	}
	if c.at.After(p.heard) {
		p.heartbeat.Read(c.beat, c.at)
	}
	p.set(func(s *Status) { s.At = p.Node.Now() })
	return true
}

// isPublished reports whether the state of the node that a pass would publish now is the one in the record that the
// last pass read. An expected end that was learned from earlier runs can change without an event.
func (p *Publisher) isPublished() bool {
	d := nodePlan{back: plan.BackIn(p.atRest.Comment)}
	p.Node.Lock()
	same := p.Node.Version == p.published && len(p.Node.Pending) == 0
	d.gpus = p.Node.View()
	if p.PublishesJobs() {
		d.holders = p.Node.Holders()
	}
	p.Node.Unlock()
	d.text = p.text(d.gpus)
	return same && p.extra(p.atRest, d) == p.atRest.Extra
}

// hear stores the heartbeat found in a node's record.
func (p *Publisher) hear(beat slurm.Node) {
	p.beatNode, p.heard = beat.Name, p.Clock()
	p.heartbeat.Read(part.BeatIn(beat.Comment), p.heard)
}

// explained reports whether two conditions are met: the leases and pending leases account for the node's used counts,
// and the totals are the published ones. If both are met, no job has started without the agent's knowledge: slurmctld
// does not start jobs on a node with a COMPLETING job, whose lease may still exist (_pick_best_nodes in
// node_scheduler.c, 22.05.8 and 24.11.5), and a restart of slurmctld, after which slurmctld may no longer count a
// running job, resets the totals.
func (p *Publisher) explained(node slurm.Node, published map[string]int) bool {
	if p.Clock().Sub(p.listed) >= relist || len(p.status.Excess) > 0 {
		return false
	}
	p.Node.Lock()
	defer p.Node.Unlock()
	return sameProfiles(node.Gres.Profiles(), published) && sameProfiles(node.GresUsed.Profiles(), p.Node.SlicesHeld())
}

// sameProfiles reports whether two counts are equal for all profiles, without the type closed.
func sameProfiles(a, b map[string]int) bool {
	within := func(a, b map[string]int) bool {
		for profile, n := range a {
			if profile != slurm.ClosedType && b[profile] != n {
				return false
			}
		}
		return true
	}
	return within(a, b) && within(b, a)
}

// readHeld reads the records of the waiting jobs named in the part.
func (p *Publisher) readHeld(ctx context.Context, ids []uint32) (waiting []slurm.Waiting, err error) {
	for _, id := range ids {
		job, err := p.Slurmctld.Job(ctx, id)
		switch {
		case err == nil && job.State == "PENDING":
			waiting = append(waiting, slurm.Waiting{Job: &job, Elements: 1})
		case err != nil && slurm.ClassOf(err) != slurm.Unclear && !errors.Is(err, slurm.ErrNoJob):
			return nil, err
		}
	}
	return waiting, nil
}

// list lists all jobs and compares the pending leases with the jobs on this node.
func (p *Publisher) list(ctx context.Context) error {
	p.startListing()
	jobs, err := p.Slurmctld.Jobs(ctx)
	if err != nil {
		return err
	}
	p.listed = p.Clock()
	return p.account(ctx, slurm.On(jobs, p.Config.Node))
}

// startListing clears the noted jobs before slurmctld lists the jobs, because the list will include them.
func (p *Publisher) startListing() {
	p.Node.Lock()
	defer p.Node.Unlock()
	clear(p.Node.Noted)
}

// NoteLeased adds a job that has been granted a lease to the jobs on the node, because the passes of an agent that
// follows the watcher's plan do not list the jobs. It also notes the job for a listing that began before the job
// started.
func (p *Publisher) NoteLeased(job slurm.Job) {
	p.Node.Lock()
	defer p.Node.Unlock()
	p.Node.Noted[job.ID] = job
	if p.following.Load() {
		p.Node.Here = p.Node.WithNoted(p.Node.Here)
	}
}

// concernsWatcher reports whether the watcher must be notified of a publication. If the agent follows the watcher's
// plan, the watcher already knows the offers, and only a change in the GPUs' state can affect the plan.
func (p *Publisher) concernsWatcher(d nodePlan) bool {
	state := plan.Text(plan.State{GPUs: d.gpus, Private: p.HidesJobs()})
	changed := state != p.notified
	p.notified = state
	return changed || !p.following.Load()
}
