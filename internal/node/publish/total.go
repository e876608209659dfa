package publish

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"caelum/internal/core/plan"
	"caelum/internal/node/inventory"
	"caelum/internal/slurm"
)

// learnTotal determines N, the node's constant total of gres/mig in slurm.conf, and stores it in the ledger. If
// AccountingStorageTRES includes gres/mig, slurmctld shows N in CfgTRES, which no update changes. Otherwise, learnTotal
// waits until slurmctld resets the node record to the counts in slurm.conf, where N is the count of the `closed` type.
// It detects a reset if the node previously had offers and now only `closed` has a count. Until N is in the ledger,
// inventory.GuessTotal estimates it.
//
// If only `closed` has a count when an agent starts, this does not necessarily mean that slurmctld has reset the
// record: CloseOffers may have written it. The counts in a record with offers do not always add up to N either: after a
// restart of slurmd, slurmctld 22.05 sets `closed` to N, but keeps the offers.
func (p *Publisher) learnTotal(node slurm.Node) error {
	if _, ok := node.Gres.Profiles()[slurm.ClosedType]; !ok {
		return fmt.Errorf(
			"node %s has no gres/mig:closed in slurm.conf; add the lines that `caelum slurm-config` prints",
			node.Name,
		)
	}
	reset := offering(p.status.Published) && !offering(node.Gres.Profiles())
	total := p.total
	switch {
	case node.MIGTotal > 0:
		total = node.MIGTotal
	case reset:
		total = node.Gres.Profiles()[slurm.ClosedType]
	case total == 0:
		total = inventory.GuessTotal(node)
	}
	if p.total == total {
		return nil
	}
	p.total = total
	return p.Ledger.SetMeta("total", strconv.Itoa(total))
}

// offering reports whether the count of any profile is above 0.
func offering(counts map[string]int) bool {
	for profile, n := range counts {
		if profile != slurm.ClosedType && n > 0 {
			return true
		}
	}
	return false
}

// CloseOffers withdraws all offers of a node. `caelumd close` calls it after the agent has stopped. The argument known
// is N according to the ledger, or 0. If slurmctld's CfgTRES shows N, that value takes precedence.
func CloseOffers(ctx context.Context, ctl Slurmctld, nodeName string, known int) error {
	node, err := ctl.Node(ctx, nodeName)
	if err != nil {
		return err
	}
	total := cmp.Or(node.MIGTotal, known)
	if total == 0 {
		total = inventory.GuessTotal(node)
	}
	line, _ := inventory.GRESLine(node, nil, total, nil)
	extra := plan.WithNVLink(plan.WithSettings(plan.WithBack(plan.WithState(node.Extra, ""), ""), ""), nil)
	extra = plan.WithJobs(extra, nil, nil)
	if node.Is("POWERING_DOWN") || node.Is("POWERED_DOWN") {
		extra = node.Extra // the planner needs the node's Extra to make offers
	}
	return ctl.UpdateNode(ctx, nodeName, line, extra)
}
