package publish

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sirupsen/logrus"

	"caelum/internal/failpoint"
	"caelum/internal/node/state"
	"caelum/internal/slurm"
)

// slurmctld 22.05.8 can count slices as used even though no job holds them. After `scontrol reconfigure` and after a
// restart, it recounts the count-only GRES of running jobs. If a type's count in slurm.conf is 0, it counts the slices
// of a job on k nodes k times on each of them. When the job ends, slurmctld subtracts its allocation only once, and the
// rest, called the excess, remains in GresUsed. If the published totals did not include it, slurmctld would show too
// few free slices. No update of the node clears an excess. A restart of slurmctld always clears it, and `scontrol
// reconfigure` sometimes does.
//
// The agent computes the excess as GresUsed minus slurmctld's allocations to the jobs on the node. It cannot use the
// leases instead, because slurmctld also counts slices for jobs that hold none (--exclusive jobs, jobs without GPU
// slots). With or without an excess, the totals never exceed the sum of the used and the offered slices. The excess
// must not include any job's allocation, because the allocation becomes free when the job ends. If the job has no GPU
// slots, no epilog publishes new totals at that point.

// allocation is the gres/mig on this node that slurmctld has allocated to one run of a job.
type allocation struct {
	restarts int            // the job's restart count, which identifies the run
	counts   map[string]int // by profile
	known    bool           // false if the counts cannot be determined from slurmctld's record
}

// findExcess compares slurmctld's used counts with its allocations to the jobs on this node, and stores the excess. The
// caller must have read the node before the jobs. If a job started in between, the excess is too small until the next
// pass. If a job ended in between, it is too large, so a new excess is stored only if confirmExcess confirms it.
func (p *Publisher) findExcess(ctx context.Context, node slurm.Node) error {
	p.Node.Lock()
	here, held, before := slices.Collect(maps.Values(p.Node.Here)), p.Node.SlicesHeld(), p.status.Excess
	p.Node.Unlock()
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
		p.Log.Info("slurmctld no longer counts slices as used that no job holds")
	default:
		p.Log.WithFields(logrus.Fields{"before": before, "now": found}).
			Warn("slurmctld counts as used some slices that no job holds; raised the totals by the same number")
	}
	p.set(func(s *Status) { s.Excess = found })
	return nil
}

// confirmExcess rereads the node and the jobs and returns the excess. The argument here lists the jobs found by the
// first reading; the argument allocated holds their allocations. The result same is false if the runs on the node have
// changed since then. The excess is then unknown: a job may have ended before the jobs were first read, and another job
// may have started on its slice before the node was reread. This can happen before the next pass, because the epilog of
// the first job may offer the slice again (state.Node.OfferAgain).
func (p *Publisher) confirmExcess(
	ctx context.Context, here []slurm.Job, allocated map[string]int,
) (excess map[string]int, same bool, err error) {
	failpoint.Pause()
	node, err := p.Slurmctld.Node(ctx, p.Config.Node)
	if err != nil {
		return nil, false, err
	}
	jobs, err := p.Slurmctld.Jobs(ctx)
	if err != nil {
		return nil, false, err
	}
	return beyond(node, allocated), sameRuns(here, slurm.On(jobs, p.Config.Node)), nil
}

// sameRuns reports whether the same runs hold resources in two lists of a node's jobs, and the lists rule out that
// another run started and ended between the two readings.
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

// beyond returns, by profile, the amount by which the node's used counts exceed the given counts.
func beyond(node slurm.Node, counts map[string]int) map[string]int {
	more := map[string]int{}
	for profile, n := range node.GresUsed.Profiles() {
		if profile != slurm.ClosedType && n > counts[profile] {
			more[profile] = n - counts[profile]
		}
	}
	return more
}

// allocated returns, by profile, the total number of slices that slurmctld has allocated to the jobs running on this
// node. The result known is false if the allocation of any of these jobs is unknown.
func (p *Publisher) allocated(ctx context.Context, here []slurm.Job) (sum map[string]int, known bool, err error) {
	sum, known = map[string]int{}, true
	for _, j := range here {
		if !j.Holds() && j.State != "COMPLETING" { // a job state unknown to this package
			known = false
		}
		if !j.Holds() || !state.AsksForSlices(j) && !j.Exclusive && j.Problem == "" {
			continue
		}
		// The cache does not contain the allocation if the job started before this agent or was requeued after its
		// allocation was cached.
		if has, cached := p.allocations[j.ID]; !cached || has.restarts != j.Restarts {
			job, err := p.Slurmctld.Job(ctx, j.ID)
			if err != nil && slurm.ClassOf(err) != slurm.Unclear {
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

// noteAllocation caches the allocation that slurmctld reports for a listed job. If the job's record cannot be
// interpreted, it uses the request instead, because a job without --exclusive is allocated exactly the slices that it
// requests. If the job has ended since it was listed, nothing is cached, because the used counts may or may not
// include the allocation.
func (p *Publisher) noteAllocation(listed, job slurm.Job, err error) {
	has := allocation{restarts: listed.Restarts}
	switch {
	case errors.Is(err, slurm.ErrNoJob) || err == nil && (!job.Holds() || job.Restarts != listed.Restarts):
		delete(p.allocations, listed.ID)
		return
	case err == nil:
		has.counts, has.known = job.Allocated[p.Config.Node].Profiles(), true
	case !listed.Exclusive && listed.Problem == "":
		has.counts = listed.PerNode.Profiles()
		_, untyped := has.counts[""]
		has.known = !untyped
	}
	p.allocations[listed.ID] = has
}

// totals returns the count that the agent publishes for each profile: the used slices, the excess and the offers. The
// result short is the part of the excess that the counts omit, because their sum would otherwise exceed the node's
// total N.
func (p *Publisher) totals(node slurm.Node, d nodePlan) (totals, short map[string]int) {
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
