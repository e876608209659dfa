package agent

import (
	"caelum/internal/failpoint"
	"caelum/internal/slurm"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sirupsen/logrus"
)

// slurmctld 22.05.8 may count slices as used that no job holds. After `scontrol reconfigure` and after a restart,
// slurmctld counts the count-only GRES of running jobs again. If the count of a type in slurm.conf is 0, slurmctld
// counts the slices of a job on k nodes k times on each of these nodes. When the job ends, slurmctld subtracts the
// job's allocation only once, and the rest remains in GresUsed. This rest is called the excess. If the published totals
// did not include the excess, slurmctld would show too few free slices. No update of the node clears an excess. A
// restart of slurmctld always clears an excess, and `scontrol reconfigure` sometimes clears an excess.
//
// The agent computes the excess as GresUsed minus slurmctld's allocations to the jobs on the node. The agent does not
// use the leases, because slurmctld also counts slices for jobs that hold no slices (--exclusive jobs, jobs without GPU
// slots). With or without an excess, the totals never exceed the sum of the used and the offered slices. The excess
// must not contain the allocation of a job, because the allocation becomes free when the job ends. If the job has no
// GPU slots, no epilog publishes new totals.

// allocation contains the gres/mig on this node that slurmctld has allocated to one run of a job.
type allocation struct {
	restarts int            // the job's restart count, which identifies the run
	counts   map[string]int // by profile
	known    bool           // false if slurmctld's record does not determine the counts
}

// findExcess compares slurmctld's used counts with slurmctld's allocations to the jobs on this node, and stores the
// excess. The caller has read the node before the jobs. If a job started between the two readings, the excess is too
// small until the next pass. If a job ended between the two readings, the excess is too large. findExcess therefore
// stores a new excess only if confirmExcess confirms the excess.
func (p *publisher) findExcess(ctx context.Context, node slurm.Node) error {
	p.mu.Lock()
	here, held, before := slices.Collect(maps.Values(p.here)), p.slicesHeld(), p.status.excess
	p.mu.Unlock()
	if len(before) == 0 && len(beyond(node, held)) == 0 {
		return nil
	}
	found := map[string]int{}
	allocated, known, err := p.allocated(ctx, here)
	if err != nil {
		return err
	}
	if known {
		found = beyond(node, allocated)
	}
	if len(found) > 0 && !maps.Equal(found, before) {
		second, same, err := p.confirmExcess(ctx, here, allocated)
		if err != nil {
			return err
		}
		for profile, n := range found {
			switch {
			case same:
				found[profile] = min(n, second[profile])
			case n < before[profile]:
				found[profile] = 0
			default:
				found[profile] = before[profile]
			}
		}
		maps.DeleteFunc(found, func(_ string, n int) bool { return n == 0 })
	}
	switch {
	case maps.Equal(found, before):
	case len(found) == 0:
		p.log.Info("slurmctld no longer counts slices as used that no job holds")
	default:
		p.log.WithFields(logrus.Fields{"before": before, "now": found}).
			Warn("slurmctld counts slices as used that no job holds; raised the totals by the same number")
	}
	p.set(func(s *publishStatus) { s.excess = found })
	return nil
}

// confirmExcess reads the node and the jobs again and returns the excess. here contains the jobs of the first reading,
// and allocated contains their allocations. same is false if the runs on the node have changed since the first reading.
// If the runs have changed, the excess is unknown: a job may have ended before the first reading of the jobs, and
// another job may have started on the released slice before the second reading of the node. The second job can start
// before the next pass, because the epilog of the first job may offer the slice again (reoffer.go).
func (p *publisher) confirmExcess(
	ctx context.Context, here []slurm.Job, allocated map[string]int,
) (excess map[string]int, same bool, err error) {
	failpoint.Pause()
	node, err := p.ctl.Node(ctx, p.cfg.Node)
	if err != nil {
		return nil, false, err
	}
	jobs, err := p.ctl.Jobs(ctx)
	if err != nil {
		return nil, false, err
	}
	return beyond(node, allocated), sameRuns(here, slurm.On(jobs, p.cfg.Node)), nil
}

// sameRuns reports whether two lists of the jobs on a node contain the same runs that hold resources, and whether no
// other run has started and ended between the two lists.
func sameRuns(before, after []slurm.Job) bool {
	type run struct {
		job      uint32
		restarts int
	}
	holds := map[run]bool{}
	for _, j := range before {
		holds[run{j.ID, j.Restarts}] = j.Holds()
	}
	for _, j := range after {
		r := run{j.ID, j.Restarts}
		if held, known := holds[r]; !known || held != j.Holds() {
			return false
		}
		delete(holds, r)
	}
	return !slices.Contains(slices.Collect(maps.Values(holds)), true)
}

// beyond returns, by profile, the number by which the node's used counts exceed the given counts.
func beyond(node slurm.Node, counts map[string]int) map[string]int {
	more := map[string]int{}
	for profile, n := range node.GresUsed.Profiles() {
		if profile != slurm.ClosedType && n > counts[profile] {
			more[profile] = n - counts[profile]
		}
	}
	return more
}

// allocated returns, by profile, the total that slurmctld has allocated to the jobs that run here. known is false if
// the allocation of any of these jobs is unknown.
func (p *publisher) allocated(ctx context.Context, here []slurm.Job) (sum map[string]int, known bool, err error) {
	sum, known = map[string]int{}, true
	for _, j := range here {
		if !j.Holds() && j.State != "COMPLETING" { // a job state that this package does not handle
			known = false
		}
		if !j.Holds() || !asksForSlices(j) && !j.Exclusive && j.Problem == "" {
			continue
		}
		// The allocation is not in the cache if the job started before this agent, or was requeued after its allocation
		// was cached.
		if has, cached := p.allocations[j.ID]; !cached || has.restarts != j.Restarts {
			job, err := p.ctl.Job(ctx, j.ID)
			if err != nil && classOf(err) != unclear {
				return nil, false, err
			}
			p.noteAllocation(j, job, err)
		}
		has := p.allocations[j.ID]
		known = known && has.known && has.restarts == j.Restarts
		for profile, n := range has.counts {
			sum[profile] += n
		}
	}
	return sum, known, nil
}

// noteAllocation caches the allocation that slurmctld reports for a listed job. If the job's record is unclear,
// noteAllocation uses the request instead, because slurmctld allocates exactly the requested slices to a job without
// --exclusive. If the job has ended after the listing, noteAllocation caches no allocation, because the used counts may
// or may not contain the allocation.
func (p *publisher) noteAllocation(listed, job slurm.Job, err error) {
	has := allocation{restarts: listed.Restarts}
	switch {
	case errors.Is(err, slurm.ErrNoJob) || err == nil && (!job.Holds() || job.Restarts != listed.Restarts):
		delete(p.allocations, listed.ID)
		return
	case err == nil:
		has.counts, has.known = job.Allocated[p.cfg.Node].Profiles(), true
	case !listed.Exclusive && listed.Problem == "":
		has.counts = listed.PerNode.Profiles()
		_, untyped := has.counts[""]
		has.known = !untyped
	}
	p.allocations[listed.ID] = has
}

// totals returns the count that the agent publishes for each profile: the used slices, the excess and the offers. short
// is the part of the excess that totals omits, because the sum would otherwise exceed the node's total N.
func (p *publisher) totals(node slurm.Node, d nodePlan) (totals, short map[string]int) {
	taken, extra := p.taken(node, d)
	totals, short = maps.Clone(taken), map[string]int{}
	for profile, n := range d.offers {
		totals[profile] += n
	}
	room := p.total
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
