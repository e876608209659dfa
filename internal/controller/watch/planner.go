package watch

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/part"
	"caelum/internal/core/plan"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// maxHeld is the maximum number of waiting jobs whose records an agent must read because its part lists them. The limit
// applies separately to the held jobs that the agent must release and, on the first node, to the other jobs.
const maxHeld = 16

// planner writes the parts of a plan and the heartbeat into slurmctld's node records. It compares each part with the
// node's record, not with the part that it wrote last, because another planner may have written a part in the meantime.
type planner struct {
	ctl   Slurmctld
	log   *logrus.Entry
	id    string            // identifies the watcher's host and this run of the watcher in the heartbeat
	count int               // the number of heartbeats
	other part.HeartbeatAge // the heartbeat of another planner
	beat  time.Time         // the time of the last heartbeat
	now   func() time.Time
	yield bool // whether another planner was active in the last round

	deferred deferred     // the parts that were not written in the last round
	written  []slurm.Node // the members' records with their current parts, if the last round wrote a heartbeat

	started  bool   // whether the planner has read a heartbeat
	replaces string // the last heartbeat of an earlier watcher on this host, or empty
}

// newPlanner returns the planner of a watcher on the host with the given name. now is the clock, or nil for time.Now.
func newPlanner(ctl Slurmctld, log *logrus.Entry, host string, now func() time.Time) *planner {
	if now == nil {
		now = time.Now
	}
	var run [4]byte
	rand.Read(run[:]) // rand.Read never returns an error
	name := sha256.Sum256([]byte(host))
	id := slices.Concat(name[:hostBytes], run[:])
	return &planner{ctl: ctl, log: log, id: hex.EncodeToString(id), now: now}
}

// hostBytes is the length of the part of the id that is the same for all watchers on one host.
const hostBytes = 4

// beatNode returns the node whose Comment contains the heartbeat: the first managed node by name.
func beatNode(nodes []slurm.Node) (first slurm.Node, ok bool) {
	for _, n := range nodes {
		if n.Managed() && (!ok || n.Name < first.Name) {
			first, ok = n, true
		}
	}
	return first, ok
}

// mayPlan reports whether no other planner is active. If the heartbeat belongs to another planner, this planner waits
// until the heartbeat has not changed for Expiry. A watcher that has just started does not wait for an earlier watcher
// on the same host, but replaces it. If the earlier watcher is still running, it yields, because the heartbeat is no
// longer its own.
func (p *planner) mayPlan(heartbeat string, at time.Time) bool {
	if !p.started && strings.HasPrefix(heartbeat, p.id[:2*hostBytes]) {
		p.replaces = heartbeat
	}
	p.started = true
	if heartbeat == p.own() || heartbeat == p.replaces {
		return true
	}
	p.other.Read(heartbeat, at)
	active := p.other.Fresh(at, part.Expiry)
	if active != p.yield {
		p.log.WithField("active", !active).Info("another watcher has started or stopped making plans")
	}
	p.yield = active
	return !active
}

// active reports whether the snapshot contained this planner's heartbeat, in which case no other planner was active.
func (p *planner) active(snapshot plan.Snapshot) bool {
	beat, ok := beatNode(snapshot.Nodes)
	return ok && p.count > 0 && part.BeatIn(beat.Comment) == p.own()
}

// own returns the last heartbeat of this planner.
func (p *planner) own() string {
	if p.count == 0 {
		return ""
	}
	return part.BeatIn(part.WithBeat("", p.id, p.count))
}

// write writes the parts that differ from the node records and then a heartbeat, if one is due. Between heartbeats, it
// may defer parts (see deferParts). If it cannot write a part, it does not write the heartbeat either. If this lasts
// longer than Expiry, all agents make their own plans.
func (p *planner) write(
	ctx context.Context, snapshot plan.Snapshot, v *plan.View, made offer.Plan, of *notifications,
) error {
	beat, ok := beatNode(snapshot.Nodes)
	p.deferred, p.written = nil, nil
	if !ok || !p.mayPlan(part.BeatIn(beat.Comment), p.now()) {
		return nil
	}
	var failed error
	began := p.now()
	due := p.now().Sub(p.beat) >= part.Every-time.Second
	all := p.updates(snapshot, v, made, of, beat.Name)
	if !due {
		p.deferred = deferParts(v, made, all)
	}
	for _, u := range all {
		if u.node.Name == beat.Name && due {
			beat.Comment = u.comment // written with the heartbeat
			continue
		}
		if _, waits := p.deferred[u.node.Name]; waits || u.comment == u.node.Comment {
			continue
		}
		if p.now().Sub(began) > part.Expiry {
			return errors.New("writing the plan is taking too long; the rest of it is outdated")
		}
		err := p.ctl.SetNodeComment(ctx, u.node.Name, u.comment)
		if errors.Is(err, slurm.ErrUnreachable) {
			return err
		}
		if err != nil && failed == nil && !errors.Is(err, slurm.ErrNoNode) {
			failed = err
		}
	}
	if failed != nil || !due {
		return failed
	}
	if err := p.ctl.SetNodeComment(ctx, beat.Name, part.WithBeat(beat.Comment, p.id, p.count+1)); err != nil {
		return err
	}
	p.count++
	p.beat = p.now()
	for _, u := range all {
		if u.member >= 0 && !u.node.Is("POWERED_DOWN") {
			u.node.Comment = u.comment
			p.written = append(p.written, u.node)
		}
	}
	return nil
}

// updates returns all nodes with their new Comments. An unresponsive node, which the plan leaves out, gets no part: its
// agent then plans for itself. With an old part that it has already published, the node would remain left out.
func (p *planner) updates(
	snapshot plan.Snapshot, v *plan.View, made offer.Plan, of *notifications, beat string,
) (all []update) {
	for _, n := range snapshot.Nodes {
		u := update{node: n, comment: n.Comment, member: v.Member(n.Name)}
		if u.member >= 0 {
			u.own = p.partOf(snapshot, v, made, u.member, beat)
			u.comment = plan.WithBack(part.With(u.comment, u.own.Text()), of.unstarted.Back(n.Name, snapshot.At))
		} else if of.unresponsive.LeftOut(n, snapshot.At) {
			u.comment = part.With(u.comment, "")
		}
		all = append(all, u)
	}
	return all
}

// partOf returns the part of a member. The first member is also responsible for the jobs that need a tag, a profile or
// a hold, regardless of the nodes on which they run, and releases the held jobs whose nodes have no agent.
func (p *planner) partOf(
	snapshot plan.Snapshot, v *plan.View, made offer.Plan, member int, beat string,
) part.Part {
	var other []uint32 // jobs for which the first member is responsible
	own := part.Of(v, made, member)
	own.Beat = beat
	here := v.Members[member].Name
	for k, spots := range made.Spots {
		w := v.Waiting[k]
		on := v.On(spots)
		ready := func(name string) bool { return name == here || eligible.HasFree(v.Members[v.Member(name)], *w) }
		unattended := member == 0 && allPoweredDown(v, on)
		if !eligible.Releasable(*w, snapshot.At) || !unattended && !slices.Contains(on, here) ||
			slices.ContainsFunc(on, func(name string) bool { return !ready(name) }) {
			continue
		}
		own.Held = append(own.Held, w.ID)
		if unattended {
			own.Jobs = append(own.Jobs, part.Job{ID: w.ID, Array: w.ArrayJob})
		}
	}
	if member == 0 {
		for _, w := range snapshot.HeldElsewhere() {
			own.Held = append(own.Held, w.ID)
			own.Jobs = append(own.Jobs, part.Job{ID: w.ID, Array: w.ArrayJob})
		}
		for _, w := range snapshot.Queue.Waiting {
			released := w.Priority > 0 && tags.Has(w.AdminComment, tags.Held)
			bare := eligible.Releasable(w, snapshot.At) && len(w.PerNode.Named("mig")) == 0
			late := eligible.Releasable(w, snapshot.At) && eligible.TooLate(w, snapshot.At)
			if released || bare || late || tags.Needed(*w.Job) != "" {
				other = append(other, w.ID)
			}
		}
		for _, w := range plan.Stray(snapshot) {
			own.Stray = append(own.Stray, w.ID)
		}
		own.Stray = own.Stray[:min(len(own.Stray), maxHeld)]
	}
	own.Held = own.Held[:min(len(own.Held), maxHeld)]
	if n := len(other); n > 0 { // rotate the list, so that jobs that remain in it do not exclude others
		first := p.count * maxHeld % n
		own.Held = append(own.Held, slices.Concat(other[first:], other[:first])[:min(n, maxHeld)]...)
	}
	slices.Sort(own.Held)
	own.Held = slices.Compact(own.Held)
	return own
}
