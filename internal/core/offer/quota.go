package offer

import (
	"math"

	"caelum/internal/core/mig"
)

// The code in this file limits the number of full GPUs while jobs are waiting for slices (Cluster.WholeShare). A GPU is
// full while a job holds its mig.Full instance.
//
// If WholeShare is above 0, the limit is this fraction of the GPUs and applies while any job is waiting for slices. If
// WholeShare is 0, a job that requests n full GPUs exceeds the limit while the jobs that are waiting for slices need at
// least n GPUs. Emptying a node for such a job would delay many other jobs. After MaxDeferral, this limit no longer
// applies to a job.
//
// Make first places the queue as if there were no quota, except that a job that needs full GPUs is denied if it would
// exceed the quota while a job that needs slices has no spots yet. A denied job is given neither spots nor a
// reservation, and all later jobs that need full GPUs are denied too. Otherwise, a sequence of small jobs could use up
// the quota, and a large job would never start. Then Make places the denied jobs on the GPUs that are still free. By
// then, all jobs that need slices and can start have their spots, so the denied jobs do not take a GPU on which one of
// them could have started.

// MaxDeferral is the maximum time, in seconds, for which jobs that need slices are placed ahead of a job that needs
// full GPUs, regardless of queue order, if WholeShare is 0. Without this limit, a user who always has many jobs that
// need slices in the queue could block jobs that need full GPUs forever. If this time were shorter, jobs that need
// slices would wait longer under high load.
const MaxDeferral = 2 * 86400

// quota is the state of the quota in a plan.
type quota struct {
	limit int          // the maximum number of full GPUs
	left  int          // the limit minus the number of full GPUs; below 0 if the quota is exceeded
	off   bool         // the quota does not apply
	shut  bool         // a job has been denied, so later jobs that need full GPUs are denied too
	over  map[int]bool // the denied jobs, by the index of the first job of their group
	need  []float64    // the number of GPUs that each job needs for slices; nil unless WholeShare is 0
}

// newQuota returns the quota for a cluster. If WholeShare is 1 or no GPU is allowed to be full, there is no quota.
func (c *Cluster) newQuota(jobs []*Job) quota {
	q := quota{off: c.WholeShare == 1, over: map[int]bool{}}
	if q.off {
		return q
	}
	gpus, full := 0, 0
	for k := range c.Pool.Len() {
		if c.switchable(k) {
			gpus++
			if g := c.Pool.GPU(k); g.Busy&g.Model.Full() != 0 {
				full++
			}
		}
	}
	q.off = gpus == 0
	q.limit = int(math.Ceil(c.WholeShare*float64(gpus) - 1e-9))
	q.left = q.limit - full
	if c.WholeShare == 0 && !q.off {
		q.need = c.needs(jobs)
	}
	return q
}

// needs returns, for each job, the number of GPUs that it needs for slices. A slice counts as the fraction of a GPU
// that it occupies.
func (c *Cluster) needs(jobs []*Job) []float64 {
	share := map[string]float64{mig.Full: 0}
	for k := range c.Pool.Len() {
		if b := c.Pool.GPU(k).Model; b != nil {
			for _, p := range b.Profiles {
				if _, known := share[p.Name]; !known {
					share[p.Name] = float64(p.Size) / float64(b.Grid)
				}
			}
		}
	}
	all := make([]float64, len(jobs))
	for k, j := range jobs {
		for _, w := range j.Wants {
			all[k] += share[w.Profile] * float64(w.Count*j.nodes())
		}
	}
	return all
}

// switchable reports whether a GPU is allowed to be full and also allowed to hold slices. The quota counts only such
// GPUs.
func (c *Cluster) switchable(gpu int) bool {
	g := c.Pool.GPU(gpu)
	return g.Model != nil && g.Offerable&g.Model.Full() != 0 && g.Offerable&^g.Model.Full() != 0
}

// becomesFull reports whether a spot turns a GPU that could hold slices into a full GPU.
func (c *Cluster) becomesFull(s Spot) bool {
	return c.switchable(s.GPU) && c.Pool.GPU(s.GPU).Model.Full().Has(s.Placement)
}

// deny reports whether the quota denies n more full GPUs to the group of jobs that begins at index k, and records the
// denial.
func (p *planner) deny(k, n int) bool {
	q := &p.quota
	if q.off || n == 0 || n <= q.left && !q.shut || !p.slicesWait(n) ||
		p.jobs[k].First || p.WholeShare == 0 && (p.jobs[k].Waited >= MaxDeferral || p.jobs[k].lastChance(p.Now)) {
		return false
	}
	q.over[k] = true
	q.shut = q.shut || n <= q.limit // a job that exceeds the quota by itself must not block the other jobs
	return true
}

// slicesWait reports whether any job that needs slices has no spots yet. If WholeShare is 0, it reports whether such
// jobs together need at least n GPUs for their slices.
func (p *planner) slicesWait(n int) bool {
	sum := 0.0
	for k, j := range p.jobs {
		switch {
		case j.fullGPUs() == j.slices() || p.decided(k):
		case p.WholeShare > 0:
			return true
		default:
			if sum += p.quota.need[k]; sum >= float64(n) {
				return true
			}
		}
	}
	return false
}

// fullGPUs returns the number of full GPUs that the job needs on all its nodes.
func (j *Job) fullGPUs() (n int) {
	for _, w := range j.Wants {
		if w.Profile == mig.Full {
			n += w.Count * j.nodes()
		}
	}
	return n
}

// fullGPUs returns the number of full GPUs that the jobs need.
func fullGPUs(jobs []*Job) (n int) {
	for _, j := range jobs {
		n += j.fullGPUs()
	}
	return n
}

// becomeFull returns the number of spots that turn a GPU that could hold slices into a full GPU.
func (c *Cluster) becomeFull(all [][]Spot) (n int) {
	for _, spots := range all {
		for _, s := range spots {
			if c.becomesFull(s) {
				n++
			}
		}
	}
	return n
}

// placeDenied places the denied jobs, in queue order, on the GPUs that are still free. If a job does not fit, it is
// given a reservation unless another job already has one, in which case no later job that needs full GPUs is placed. If
// the order is strict, no job is placed behind the first job that has to wait.
func (p *planner) placeDenied() {
	if p.quota.off {
		return
	}
	p.quota.off = true
	defer func() { p.quota.off = false }()
	earlier := newDemand()
	for k, group := range byStart(p.jobs) {
		r := p.plan.Reserved
		switch {
		case p.decided(k):
			continue
		case r != nil && r.Job < k && p.strict:
			return
		case p.quota.over[k] && r == nil:
			p.mustWait(k, group)
		case p.quota.over[k]:
			placed := false
			if left := earlier.restrictAll(p.Cluster, &p.plan, group); left != nil {
				placed, _ = p.place(k, left, r)
			}
			if !placed && !p.deferred(group) && fullGPUs(group) <= p.quota.limit {
				return
			}
		}
		if !p.decided(k) {
			earlier.addAll(group)
		}
	}
}

// overQuota reports, for each job, whether it has no spots because of the quota. It returns nil if no job was denied.
func (p *planner) overQuota() (all []bool) {
	for k := range p.quota.over {
		_, group := Components(p.jobs, k)
		for i := range group {
			if p.plan.Spots[k+i] != nil || p.plan.Reserved != nil && p.plan.Reserved.Job == k {
				continue
			}
			if all == nil {
				all = make([]bool, len(p.jobs))
			}
			all[k+i] = true
		}
	}
	return all
}
