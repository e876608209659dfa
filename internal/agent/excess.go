package agent

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sirupsen/logrus"

	"caelum/internal/slurm"
)

// After `scontrol reconfigure` or its own restart, slurmctld counts the count-only GRES of a job on several nodes once
// for each of these nodes, on every one of them, if slurm.conf gives the type as 0 (22.05.8). At the job's end it
// subtracts the job's allocation once, and the rest stays in GresUsed: the excess. Without the excess in the published
// totals as many jobs would not start. No update of the node clears it, and `scontrol reconfigure` does not always; a
// restart of slurmctld does.
//
// An excess is what slurmctld counts as used beyond the allocations of the jobs that run here, both by slurmctld's own
// word: what the leases hold says nothing, because slurmctld also counts slices of jobs that get none (--exclusive, no
// GPU slots). The totals never exceed what is used and on offer, with or without an excess. It must not contain the
// allocation of a job, because that becomes free at the job's end, which without GPU slots has no epilog to publish.

// allocation is what slurmctld has allocated of the node's gres/mig to one run of a job.
type allocation struct {
	restarts int
	counts   map[string]int
	known    bool
}

// findExcess compares what slurmctld counts as used with what it has allocated to the jobs here. The node was read
// before the jobs: a job that started in between makes the excess too small until the next pass. One that ended in
// between would make it too large, so an excess that is larger than before counts only if the node, read again, shows
// it too.
func (a *Agent) findExcess(ctx context.Context, node slurm.Node) error {
	a.mu.Lock()
	here, held, before := slices.Collect(maps.Values(a.here)), a.slicesHeld(), a.excess
	a.mu.Unlock()
	if len(before) == 0 && len(beyond(node, held)) == 0 {
		return nil
	}
	found := map[string]int{}
	allocated, known, err := a.allocated(ctx, here)
	if err != nil {
		return err
	}
	if known {
		found = beyond(node, allocated)
	}
	if !within(found, before) {
		again, err := a.ctl.Node(ctx, a.cfg.Node)
		if err != nil {
			return err
		}
		second := beyond(again, allocated)
		for profile, n := range found {
			if found[profile] = min(n, second[profile]); found[profile] == 0 {
				delete(found, profile)
			}
		}
	}
	switch {
	case maps.Equal(found, before):
	case len(found) == 0:
		a.log.Info("slurmctld cleared its count of slices that no job has")
	default:
		a.log.WithFields(logrus.Fields{"before": before, "now": found}).
			Warn("slurmctld counts slices as used that no job has; raised the totals by as many")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.excess = found
	return nil
}

// beyond returns what a node counts as used of each profile beyond the given counts.
func beyond(node slurm.Node, counts map[string]int) map[string]int {
	more := map[string]int{}
	for profile, n := range count(node.GresUsed) {
		if profile != slurm.ClosedType && n > counts[profile] {
			more[profile] = n - counts[profile]
		}
	}
	return more
}

// within reports whether no count of part exceeds that of all.
func within(part, all map[string]int) bool {
	for profile, n := range part {
		if n > all[profile] {
			return false
		}
	}
	return true
}

// allocated sums up what slurmctld has allocated of each profile to the jobs that run here. It is not known while that
// of one job is not.
func (a *Agent) allocated(ctx context.Context, here []slurm.Job) (sum map[string]int, known bool, err error) {
	sum, known = map[string]int{}, true
	for _, j := range here {
		if !j.Holds() && j.State != "COMPLETING" { // of a state that is not known here
			known = false
		}
		if !j.Holds() || !asksForSlices(j) && !j.Exclusive && j.Problem == "" {
			continue
		}
		// the job began under another agent
		if has, cached := a.allocations[j.ID]; !cached || has.restarts != j.Restarts {
			job, err := a.ctl.Job(ctx, j.ID)
			if err != nil && classOf(err) != unclear {
				return nil, false, err
			}
			a.noteAllocation(j, job, err)
		}
		has := a.allocations[j.ID]
		known = known && has.known && has.restarts == j.Restarts
		for profile, n := range has.counts {
			sum[profile] += n
		}
	}
	return sum, known, nil
}

// noteAllocation keeps what slurmctld answered for a listed job. If the job's record is unclear, the request counts,
// which is what a job without --exclusive is allocated. A job that has ended meanwhile may have been counted as used:
// nothing is known of it.
func (a *Agent) noteAllocation(listed, job slurm.Job, err error) {
	has := allocation{restarts: listed.Restarts}
	switch {
	case errors.Is(err, slurm.ErrNoJob) || err == nil && (!job.Holds() || job.Restarts != listed.Restarts):
		delete(a.allocations, listed.ID)
		return
	case err == nil:
		has.counts, has.known = count(job.Allocated[a.cfg.Node]), true
	case !listed.Exclusive && listed.Problem == "":
		has.counts = count(listed.PerNode)
		_, untyped := has.counts[""]
		has.known = !untyped
	}
	a.allocations[listed.ID] = has
}

// totals returns the count to publish of each profile: what is used and what is on offer. An excess is left out as far
// as the node's total has no room for it; short is that part.
func (a *Agent) totals(node slurm.Node, offers map[string]int) (totals, short map[string]int) {
	taken, extra := a.taken(node)
	totals, short = maps.Clone(taken), map[string]int{}
	for profile, n := range offers {
		totals[profile] += n
	}
	room := a.total
	for _, n := range totals {
		room -= n
	}
	for _, profile := range slices.Sorted(maps.Keys(extra)) {
		added := max(0, min(extra[profile], room))
		totals[profile] += added
		room -= added
		if left := extra[profile] - added; left > 0 {
			short[profile] = left
		}
	}
	return totals, short
}
