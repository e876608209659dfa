package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/offer"
	"caelum/internal/plan"
	"caelum/internal/slurm"
)

// write sets the node's gres/mig counts; what is not named is 0, and closed takes the rest of the constant total.
// Nothing is written when it stands so already, what stands on the GPUs too. Every write is logged with its plan, so
// that it can be checked later.
func (a *Agent) write(
	ctx context.Context,
	phase string,
	node slurm.Node,
	totals map[string]int,
	d nodePlan,
) (wrote bool, err error) {
	gres, ok := a.gresLine(node, totals)
	if !ok {
		return false, fmt.Errorf(
			"node %s: more of gres/mig in use and on offer than its total of %d; raise the count of mig:closed in slurm.conf and gres.conf",
			node.Name,
			a.total,
		)
	}
	extra := plan.IntoBack(plan.Into(node.Extra, d.text), d.back)
	if sameCounts(gres, node.Gres) && extra == node.Extra {
		return false, nil
	}
	if err := a.unchanged(ctx, node); err != nil {
		return false, err
	}
	entry := a.log.WithFields(logrus.Fields{
		"phase": phase, "gres": slurm.FormatGRES(gres), "used": slurm.FormatGRES(node.GresUsed),
		"plan": a.describe(d), "read": node.Asked.UnixNano(), "at": time.Now().UnixNano(),
	})
	if err := a.ctl.UpdateNode(ctx, a.cfg.Node, gres, extra); err != nil {
		entry.WithError(err).Error("couldn't write the offers")
		return true, err
	}
	a.changes.Add(1)
	entry.WithField("done", time.Now().UnixNano()).Info("published")
	if phase == "raise" {
		a.wakeWatcher()
	}
	return true, nil
}

// fresh is the age up to which a reading of the node is written on: slurmctld takes longer to end and to start.
const fresh = 250 * time.Millisecond

// errOutdated is a pass whose write would not fit what slurmctld has by now.
var errOutdated = errors.New("slurmctld's counts of this node changed during the pass, as at its restart")

// unchanged reads a node again that was read some time ago. If slurmctld was restarted since, it has forgotten what is
// used, and slurmd has not registered: a write that fits what was read would offer slices that are not free, to jobs
// that get no slots. Slurm's commands take up to 9 s, and succeed, if slurmctld goes away in the midst of a reading
// (22.05.8: they ask for the partitions last). So the second reading may be an old one too, and the third one is not.
func (a *Agent) unchanged(ctx context.Context, node slurm.Node) error {
	last := node
	for range 2 {
		if time.Since(last.Asked) < fresh {
			break
		}
		var err error
		if last, err = a.ctl.Node(ctx, a.cfg.Node); err != nil {
			return err
		}
	}
	if last.Unregistered != node.Unregistered || !sameCounts(last.Gres, node.Gres) {
		return errOutdated
	}
	return nil
}

// lowers reports whether a write of these totals takes anything off offer.
func lowers(node slurm.Node, low map[string]int) bool {
	for profile, total := range count(node.Gres) {
		if profile != slurm.ClosedType && low[profile] < total {
			return true
		}
	}
	return false
}

// sameCounts compares two lists in any order: slurmctld shows a type that slurm.conf does not have behind closed,
// wherever it was written (22.05.8).
func sameCounts(x, y []slurm.GRES) bool {
	order := func(a, b slurm.GRES) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Count, b.Count))
	}
	return slices.Equal(slices.SortedFunc(slices.Values(x), order), slices.SortedFunc(slices.Values(y), order))
}

// taken is what the offers are added to: by profile, what slurmctld counts as used, as far as jobs really hold it. An
// --exclusive job is allocated everything that was on offer, and a refused one what it asked for: counted in full, that
// would be free on top of the offers from their end until the epilog has published. Less than used is always sound.
// extra is the part of the excess that is used on top of that.
func (a *Agent) taken(node slurm.Node) (taken, extra map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.slicesHeld()
	taken, extra = count(node.GresUsed), map[string]int{}
	for profile, used := range taken {
		taken[profile] = min(used, held[profile])
		if n := min(used-taken[profile], a.excess[profile]); n > 0 {
			extra[profile] = n
		}
	}
	return taken, extra
}

// slicesHeld counts what jobs hold or will hold here, by the profile that slurmctld counts it as. The caller holds
// a.mu.
func (a *Agent) slicesHeld() map[string]int {
	held := map[string]int{}
	for _, l := range a.leases {
		for _, s := range l.Slices {
			held[cmp.Or(s.AdvertisedAs, s.Profile)]++
		}
	}
	for _, pr := range a.pending {
		for _, w := range pr.wants {
			held[w.Profile] += w.Count
		}
	}
	return held
}

// exceeds reports whether slurmctld has more free of a profile than a plan offers.
func exceeds(node slurm.Node, offers map[string]int) bool {
	used := count(node.GresUsed)
	for profile, total := range count(node.Gres) {
		if profile != slurm.ClosedType && total > used[profile]+offers[profile] {
			return true
		}
	}
	return false
}

// gresLine is the node's whole GRES list with new counts of gres/mig: an update replaces the list, so what else the
// node has must be named as it stands. It is not ok if the counts exceed the node's total.
func (a *Agent) gresLine(node slurm.Node, totals map[string]int) (line []slurm.GRES, ok bool) {
	names := slices.Clone(a.profiles)
	for _, g := range node.Gres {
		if g.Name == "mig" && g.Type != slurm.ClosedType && !slices.Contains(names, g.Type) {
			names = append(names, g.Type)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(totals)) {
		if name != slurm.ClosedType && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, g := range node.Gres {
		if g.Name != "mig" {
			line = append(line, g)
		}
	}
	rest := a.total
	for _, name := range names {
		line = append(line, slurm.GRES{Name: "mig", Type: name, Count: totals[name]})
		rest -= totals[name]
	}
	return append(line, slurm.GRES{Name: "mig", Type: slurm.ClosedType, Count: max(rest, 0)}), rest >= 0
}

// learnTotal finds N, the node's constant total of gres/mig, which is slurm.conf's. slurmctld shows it as CfgTRES,
// which no update changes. CfgTRES lacks it where AccountingStorageTRES lacks gres/mig. Then N is what closed has after
// slurmctld has set the record to slurm.conf's: the ledger has no N yet, or this agent had something on offer and
// everything is closed now. Everything closed at the start of an agent may be what the last one wrote (CloseOffers),
// and the sum beside offers is not N either (after a restart of slurmd, 22.05 puts the filler back to N beside what is
// on offer).
func (a *Agent) learnTotal(node slurm.Node) error {
	if _, ok := count(node.Gres)[slurm.ClosedType]; !ok {
		return fmt.Errorf(
			"node %s has no gres/mig:closed in slurm.conf; `caelum slurm-config` prints the lines it needs",
			node.Name,
		)
	}
	a.mu.Lock()
	reset := offering(a.published) && !offering(count(node.Gres))
	a.mu.Unlock()
	total := a.total
	switch {
	case node.MIGTotal > 0:
		total = node.MIGTotal
	case reset:
		total = count(node.Gres)[slurm.ClosedType]
	case total == 0:
		total = guessTotal(node)
	}
	if a.total == total {
		return nil
	}
	a.total = total
	return a.ledger.SetMeta("total", strconv.Itoa(total))
}

// guessTotal guesses N from a node's record alone: the sum of all types, or, after a restart of slurmd, the filler
// beside what is on offer. If these differ, the one that `caelum slurm-config` would have printed is taken.
func guessTotal(node slurm.Node) int {
	has := count(node.Gres)
	if has[slurm.ClosedType] == Total(gpus(node.Gres)) {
		return has[slurm.ClosedType]
	}
	sum := 0
	for _, n := range has {
		sum += n
	}
	return sum
}

// offering reports whether any profile has a count.
func offering(counts map[string]int) bool {
	for profile, n := range counts {
		if profile != slurm.ClosedType && n > 0 {
			return true
		}
	}
	return false
}

// count sums gres/mig by type.
func count(gres []slurm.GRES) map[string]int {
	n := map[string]int{}
	for _, g := range gres {
		if g.Name == "mig" {
			n[g.Type] += g.Count
		}
	}
	return n
}

// describe is a plan for the log: per GPU what is busy and what is on offer, as placements.
func (a *Agent) describe(d nodePlan) []map[string]string {
	var all []map[string]string
	for i, g := range d.gpus {
		if g.Model == nil {
			all = append(all, map[string]string{"gpu": a.cards[i].UUID, "problem": a.problem(a.cards[i])})
			continue
		}
		entry := map[string]string{
			"gpu": a.cards[i].UUID, "busy": g.Model.List(g.Busy), "offer": g.Model.List(d.mine.Offers[i]),
			"blocked": strconv.FormatUint(g.Blocked, 2),
		}
		var as []string
		for p := range d.mine.Offers[i].Indices() {
			if name, ok := d.mine.AdvertisedAs[offer.Spot{GPU: i, Placement: p}]; ok {
				as = append(as, g.Model.Label(p)+"="+name)
			}
		}
		if as != nil {
			entry["as"] = strings.Join(as, " ")
		}
		all = append(all, entry)
	}
	return all
}

// CloseOffers takes everything off offer: what the command `caelumd close` does when the agent has stopped. known is N
// as the ledger has it, or 0; what slurmctld has of slurm.conf comes first.
func CloseOffers(ctx context.Context, ctl Controller, nodeName string, known int) error {
	node, err := ctl.Node(ctx, nodeName)
	if err != nil {
		return err
	}
	a := &Agent{total: cmp.Or(node.MIGTotal, known)}
	if a.total == 0 {
		a.total = guessTotal(node)
	}
	line, _ := a.gresLine(node, nil)
	return ctl.UpdateNode(ctx, nodeName, line, plan.IntoBack(plan.Into(node.Extra, ""), ""))
}
