package watch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sirupsen/logrus"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/plan"
	"caelum/internal/node/inventory"
	"caelum/internal/slurm"
)

// offerPoweredDown publishes the plan's offers for the nodes that are powered down. No agent is running there, and
// slurmctld resumes a node only for a job that it has started there. While a job is using the node and while the node
// is booting, the offers remain unchanged. The agent replaces them in its first pass.
func (p *planner) offerPoweredDown(
	ctx context.Context, snapshot plan.Snapshot, v *plan.View, made offer.Plan,
) (failed error) {
	for _, n := range snapshot.Nodes {
		if !unattended(n) {
			continue
		}
		offers := map[string]int{} // no offers for a node that is also down or draining, or that has no state in Extra
		if k := v.Member(n.Name); k >= 0 {
			offers = v.Counts(made, k)
		}
		if !plan.Differs(n, offers) {
			continue
		}
		err := p.publish(ctx, n.Name, offers)
		switch {
		case errors.Is(err, slurm.ErrUnreachable):
			return err
		case err != nil && !errors.Is(err, slurm.ErrNoNode):
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// unattended reports whether a managed node is powered down and not used by any job.
func unattended(n slurm.Node) bool {
	return n.Is("POWERED_DOWN") && (n.Is("IDLE") || n.Is("DOWN")) && n.Managed() &&
		n.GresUsed.Total("mig") == 0
}

// allPoweredDown reports whether all of the named members are powered down.
func allPoweredDown(v *plan.View, names []string) bool {
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool {
		return !eligible.PoweredDown(v.Members[v.Member(name)])
	})
}

// offered reports whether all of the named members offer the job's slices.
func offered(v *plan.View, names []string, w slurm.Waiting) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return !eligible.HasFree(v.Members[v.Member(name)], w)
	})
}

// publish writes a node's offers. Like an agent, it first withdraws the offers that are not in the plan, and adds the
// others only if no job has started on the node since. It reads the node's record before each write, because the node
// can boot at any time, after which only its agent is permitted to write the offers. If slurmctld has restarted in the
// meantime, it no longer knows the node's slots (Unregistered), so publish makes no offers that would let a job start
// there.
func (p *planner) publish(ctx context.Context, name string, offers map[string]int) error {
	for _, lower := range []bool{true, false} {
		n, err := p.ctl.Node(ctx, name)
		if err != nil || !unattended(n) || n.Unregistered && len(offers) > 0 {
			return err
		}
		counts, has := maps.Clone(offers), n.Gres.Profiles()
		for profile := range counts {
			if lower {
				counts[profile] = min(counts[profile], has[profile])
			}
		}
		if !plan.Differs(n, positive(counts)) {
			continue
		}
		line, ok := inventory.GRESLine(n, nil, cmp.Or(n.MIGTotal, inventory.GuessTotal(n)), counts)
		log := p.log.WithFields(logrus.Fields{"node": name, "gres": line.String()})
		if !ok {
			log.Error("the offered gres/mig exceed the node's total; raise the count of mig:closed in slurm.conf and " +
				"gres.conf")
			return nil
		}
		if err := p.ctl.SetNodeGRES(ctx, name, line); err != nil {
			return err
		}
		log.Info("published the offers of a node that is powered down")
	}
	return nil
}

// positive returns the counts that are greater than zero.
func positive(counts map[string]int) map[string]int {
	all := maps.Clone(counts)
	maps.DeleteFunc(all, func(_ string, count int) bool { return count <= 0 })
	return all
}
