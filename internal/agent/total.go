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

// learnTotal finds N, the node's constant total of gres/mig in slurm.conf, and stores it in the ledger. slurmctld shows
// N in CfgTRES, which no update changes. CfgTRES contains gres/mig only if AccountingStorageTRES does. Otherwise,
// learnTotal waits for a node record that slurmctld has reset to the values in slurm.conf, where N is the count of the
// type closed. It detects such a reset if the node had offers and now only closed has a count. As long as the ledger
// does not contain N, guessTotal estimates N.
//
// If only closed has a count when an agent starts, this does not prove a reset, because CloseOffers may have written
// the record. The sum of the counts in a record with offers is not always N either: Slurm 22.05 sets closed back to N
// after a restart of slurmd, but keeps the offers.
func (p *publisher) learnTotal(node slurm.Node) error {
	if _, ok := node.Gres.Profiles()[slurm.ClosedType]; !ok {
		return fmt.Errorf(
			"node %s has no gres/mig:closed in slurm.conf; `caelum slurm-config` prints the lines it needs",
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
// for the node's slots, as after a restart of slurmd, guessTotal returns this count. Otherwise, it returns the sum of
// all types.
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

// CloseOffers withdraws all offers of a node. The command `caelumd close` calls it after the agent has stopped. known
// is N according to the ledger, or 0. If slurmctld's CfgTRES contains N, CloseOffers uses that value instead.
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
	return ctl.UpdateNode(ctx, nodeName, line, plan.WithBack(plan.WithState(node.Extra, ""), ""))
}
