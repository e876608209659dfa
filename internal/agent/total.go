package agent

import (
	"caelum/internal/inventory"
	"caelum/internal/plan"
	"caelum/internal/slurm"
	"cmp"
	"context"
	"fmt"
	"strconv"
)

// learnTotal determines N, the node's constant total of gres/mig in slurm.conf, and stores N in the ledger. slurmctld
// shows N in CfgTRES, which no update changes. CfgTRES contains gres/mig only if AccountingStorageTRES contains
// gres/mig. If CfgTRES does not contain N, learnTotal waits until slurmctld resets the node record to the counts in
// slurm.conf, where N is the count of the type closed. learnTotal detects a reset if the node had offers and now only
// closed has a count. While the ledger does not contain N, guessTotal estimates N.
//
// If only closed has a count when an agent starts, slurmctld has not necessarily reset the record, because CloseOffers
// may have written the record. If a record contains offers, the sum of its counts is not always N: after a restart of
// slurmd, slurmctld 22.05 sets closed to N, but keeps the offers.
func (p *publisher) learnTotal(node slurm.Node) error {
	if _, ok := node.Gres.Profiles()[slurm.ClosedType]; !ok {
		return fmt.Errorf(
			"node %s has no gres/mig:closed in slurm.conf; add the lines that `caelum slurm-config` prints",
			node.Name,
		)
	}
	reset := offering(p.status.published) && !offering(node.Gres.Profiles())
	total := p.total
	switch {
	case node.MIGTotal > 0:
		total = node.MIGTotal
	case reset:
		total = node.Gres.Profiles()[slurm.ClosedType]
	case total == 0:
		total = guessTotal(node)
	}
	if p.total == total {
		return nil
	}
	p.total = total
	return p.ledger.SetMeta("total", strconv.Itoa(total))
}

// guessTotal estimates N from a node's record. If the count of closed is the count that `caelum slurm-config` prints
// for the node's slots, as after a restart of slurmd, guessTotal returns this count. Otherwise, guessTotal returns the
// sum of the counts of all types.
func guessTotal(node slurm.Node) int {
	has := node.Gres.Profiles()
	if has[slurm.ClosedType] == inventory.Total(node.Gres.Total("gpu")) {
		return has[slurm.ClosedType]
	}
	sum := 0
	for _, n := range has {
		sum += n
	}
	return sum
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

// CloseOffers withdraws all offers of a node. The command `caelumd close` calls CloseOffers after the agent has
// stopped. known is N according to the ledger, or 0. If slurmctld's CfgTRES contains N, CloseOffers uses N from CfgTRES
// instead of known.
func CloseOffers(ctx context.Context, ctl Controller, nodeName string, known int) error {
	node, err := ctl.Node(ctx, nodeName)
	if err != nil {
		return err
	}
	total := cmp.Or(node.MIGTotal, known)
	if total == 0 {
		total = guessTotal(node)
	}
	line, _ := gresLine(node, nil, total, nil)
	extra := plan.WithNVLink(plan.WithSettings(plan.WithBack(plan.WithState(node.Extra, ""), ""), ""), nil)
	return ctl.UpdateNode(ctx, nodeName, line, extra)
}
