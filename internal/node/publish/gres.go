package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/core/offer"
	"caelum/internal/core/plan"
	"caelum/internal/node/inventory"
	"caelum/internal/slurm"
)

// write updates the node's gres/mig counts and the agent's entries in the node's Extra field. The count of a profile
// without a total is set to 0, and the count of the `closed` type is set to the remainder of the constant total. If
// slurmctld already has the counts, the update contains only Extra. If it also has the entries, no update is sent. The
// log entry for an update includes the published plan, so that tests can check it. The result check is true if the
// caller must read the node again, either because an update of the counts was sent, successfully or not, or because
// slurmd may have registered in the meantime.
func (p *Publisher) write(
	ctx context.Context,
	phase string,
	node slurm.Node,
	totals map[string]int,
	d nodePlan,
) (check bool, err error) {
	gres, ok := inventory.GRESLine(node, p.Node.Profiles, p.total, totals)
	if !ok {
		return false, fmt.Errorf(
			"node %s: the used and offered gres/mig exceed the node's total of %d; "+
				"raise the count of mig:closed in slurm.conf and gres.conf",
			node.Name,
			p.total,
		)
	}
	extra := p.extra(node, d)
	counts := !sameCounts(gres, node.Gres)
	if !counts && extra == node.Extra {
		return false, nil
	}
	if err := p.unchanged(ctx, node); err != nil {
		return false, err
	}
	entry := p.Log.WithFields(logrus.Fields{
		"phase": phase, "gres": gres.String(), "used": node.GresUsed.String(),
		"plan": p.planFields(d), "read": node.Asked.UnixNano(), "at": time.Now().UnixNano(), "extra_only": !counts,
	})
	if counts {
		err = p.Slurmctld.UpdateNode(ctx, p.Config.Node, gres, extra)
	} else {
		err = p.Slurmctld.SetNodeExtra(ctx, p.Config.Node, extra)
	}
	if err != nil {
		entry.WithError(err).Error("couldn't write the offers")
		return counts, err
	}
	p.changes.Add(1)
	entry.WithField("done", time.Now().UnixNano()).Info("published")
	if phase == "raise" || p.following.Load() {
		p.unnotified = true
	}
	return counts || d.withheld, nil
}

// extra returns the node's Extra with the state on which a plan is based.
func (p *Publisher) extra(node slurm.Node, d nodePlan) string {
	extra := plan.WithBack(plan.WithState(node.Extra, d.text), d.back)
	extra = plan.WithNVLink(plan.WithSettings(extra, p.Node.Settings.Text), d.gpus)
	return plan.WithJobs(extra, d.gpus, d.holders)
}

// Fresh is the maximum age of a node's record that a write can use without rereading it. A restart of slurmctld takes
// longer than that.
const Fresh = 250 * time.Millisecond

// ErrOutdated ends a pass whose input may differ from slurmctld's current counts.
var ErrOutdated = errors.New(
	"slurmctld's counts for this node changed during the pass, for example because slurmctld restarted",
)

// unchanged returns ErrOutdated if the node has changed since the caller read it. It rereads the node's record if the
// caller's copy is older than Fresh. This detects a restart of slurmctld, after which the used counts are lost and
// slurmd has not registered yet. If the agent then wrote totals from before the restart, slurmctld would offer slices
// that are not free, and jobs would start without slots. If slurmctld stops while a Slurm command is reading the node's
// record, the command takes up to 9 s and then succeeds with old data, because it requests the partitions last
// (22.05.8). The second read may therefore return old data, but a third read returns current data.
func (p *Publisher) unchanged(ctx context.Context, node slurm.Node) error {
	last := node
	for range 2 {
		if time.Since(last.Asked) < Fresh {
			break
		}
		var err error
		if last, err = p.Slurmctld.Node(ctx, p.Config.Node); err != nil {
			return err
		}
	}
	if last.Unregistered != node.Unregistered || !sameCounts(last.Gres, node.Gres) {
		return ErrOutdated
	}
	return nil
}

// lowers reports whether writing these totals would withdraw offers.
func lowers(node slurm.Node, low map[string]int) bool {
	for profile, total := range node.Gres.Profiles() {
		if profile != slurm.ClosedType && low[profile] < total {
			return true
		}
	}
	return false
}

// sameCounts reports whether two GRES lists contain the same entries, in any order. A type that is not in slurm.conf is
// listed after `closed`, regardless of its position in the update (22.05.8).
func sameCounts(x, y slurm.GRESList) bool {
	order := func(a, b slurm.GRES) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Count, b.Count))
	}
	return slices.Equal(slices.SortedFunc(slices.Values(x), order), slices.SortedFunc(slices.Values(y), order))
}

// taken returns the counts to which the caller adds the offers. The count of a profile is slurmctld's used count,
// limited to the number of slices that jobs hold or will hold, both at the time of the plan and at the time of the
// call. This limit is necessary because slurmctld allocates every offered slice to an --exclusive job, and the
// requested slices to a job that is not granted a lease. If taken included all of these slices, slurmctld would treat
// them as free, in addition to the offers, from the end of the job until its epilog publishes. Moreover, if a job
// releases a slice after the agent has read the node, the plan may offer the slice, and it may be allocated to another
// job before the write; taken must not include that slice, because the offers already do. A total below the used count
// is always safe. The result extra is the part of the excess that these counts do not include.
func (p *Publisher) taken(node slurm.Node, d nodePlan) (taken, extra map[string]int) {
	p.Node.Lock()
	defer p.Node.Unlock()
	held := p.Node.SlicesHeld()
	taken, extra = node.GresUsed.Profiles(), map[string]int{}
	for profile, used := range taken {
		taken[profile] = min(used, d.held[profile], held[profile])
		if n := min(used-taken[profile], p.status.Excess[profile]); n > 0 {
			extra[profile] = n
		}
	}
	return taken, extra
}

// exceeds reports whether slurmctld shows more free slices of a profile than the plan offers.
func exceeds(node slurm.Node, offers map[string]int) bool {
	used := node.GresUsed.Profiles()
	for profile, total := range node.Gres.Profiles() {
		if profile != slurm.ClosedType && total > used[profile]+offers[profile] {
			return true
		}
	}
	return false
}

// planFields returns the log fields that show the busy and the offered placements of each GPU in a plan.
func (p *Publisher) planFields(d nodePlan) []map[string]string {
	var all []map[string]string
	for i, g := range d.gpus {
		card := p.Node.Cards[i]
		if g.Model == nil {
			all = append(all, map[string]string{"gpu": card.UUID, "problem": p.Node.Problem(card)})
			continue
		}
		entry := map[string]string{
			"gpu": card.UUID, "busy": g.Model.List(g.Busy), "offer": g.Model.List(d.mine.Offers[i]),
			"blocked": strconv.FormatUint(g.Blocked, 2),
		}
		var as []string
		for at := range d.mine.Offers[i].Indices() {
			if name, ok := d.mine.AdvertisedAs[offer.Spot{GPU: i, Placement: at}]; ok {
				as = append(as, g.Model.Label(at)+"="+name)
			}
		}
		if as != nil {
			entry["as"] = strings.Join(as, " ")
		}
		all = append(all, entry)
	}
	return all
}
