package offer

import "slices"

// demand holds the smallest number of slices per node that an earlier job is waiting for. For jobs that can use every
// node, the numbers are stored by profile name. For other jobs, they are stored by profile name and node.
type demand struct {
	everywhere map[string]int
	on         map[wanted]int
}

// wanted is a node and the name under which a profile is offered. If node is everywhere, it represents all nodes.
type wanted struct {
	profile string
	node    int
}

const everywhere = -1

func newDemand() demand { return demand{everywhere: map[string]int{}, on: map[wanted]int{}} }

func (d demand) add(j *Job) {
	for w, n := range j.wanted {
		switch least := d.on[w]; {
		case w.node == everywhere:
			if least := d.everywhere[w.profile]; least == 0 || n < least {
				d.everywhere[w.profile] = n
			}
		case least == 0 || n < least:
			d.on[w] = n
		}
	}
}

func (d demand) addAll(jobs []*Job) {
	for _, j := range jobs {
		d.add(j)
	}
}

// restrict returns a copy of the job without the eligible nodes on which slurmctld could allocate the job's slices to
// an earlier job, or nil if too few nodes remain. An earlier job that needs more slices of a profile than a node would
// offer cannot start there.
func (d demand) restrict(c *Cluster, plan *Plan, j *Job) *Job {
	if len(j.Wants) == 0 || len(d.everywhere)+len(d.on) == 0 {
		return j
	}
	wanted := len(d.on) > 0
	for _, w := range j.Wants { // handle the most common cases without visiting the nodes
		least := d.everywhere[w.Profile]
		if least > 0 && least <= w.Count {
			return nil
		}
		wanted = wanted || least > 0
	}
	if !wanted && j.EligibleNodes == nil && len(j.DeferredNodes) == 0 && len(c.Nodes) >= j.nodes() {
		return j
	}
	nodes := c.nodesNow(j)
	on := slices.DeleteFunc(slices.Clone(nodes), func(n int) bool {
		return slices.ContainsFunc(j.Wants, func(w Want) bool {
			least := d.least(w.Profile, n)
			return least > 0 && (least <= w.Count || least <= w.Count+c.Offered(plan, w.Profile, n))
		})
	})
	switch {
	case len(on) < j.nodes():
		return nil
	case len(on) == len(nodes):
		return j
	}
	left := *j
	left.EligibleNodes = on
	return &left
}

// restrictAll applies restrict to jobs that start together. It returns nil if restrict returns nil for any of them.
func (d demand) restrictAll(c *Cluster, plan *Plan, jobs []*Job) (all []*Job) {
	for _, j := range jobs {
		left := d.restrict(c, plan, j)
		if left == nil {
			return nil
		}
		all = append(all, left)
	}
	return all
}

// has reports whether an earlier job is waiting for the profile and could use it on the node.
func (d demand) has(profile string, node int) bool { return d.least(profile, node) > 0 }

// least returns the smallest number of slices of the profile that a job is waiting for on the node, or 0 if there is no
// such job.
func (d demand) least(profile string, node int) int {
	anywhere := d.everywhere[profile]
	if len(d.on) == 0 {
		return anywhere
	}
	here := d.on[wanted{profile, node}]
	if here == 0 || anywhere == 0 {
		return max(here, anywhere)
	}
	return min(here, anywhere)
}

// Offered returns the number of slices of a profile that a plan offers on a node.
func (c *Cluster) Offered(plan *Plan, profile string, node int) (n int) {
	for _, g := range c.Nodes[node] {
		b := c.Pool.GPU(g).Model
		for at := range plan.Offers[g].Indices() {
			if plan.Name(b, Spot{GPU: g, Placement: at}) == profile {
				n++
			}
		}
	}
	return n
}

// wanted yields the profiles and nodes that a job can use, each with the number of slices that it needs per node.
func (j *Job) wanted(yield func(wanted, int) bool) {
	nodes := j.EligibleNodes
	if nodes == nil {
		nodes = []int{everywhere}
	}
	nodes = without(slices.Clone(nodes), j.DeferredNodes)
	for _, w := range j.Wants {
		for _, n := range nodes {
			if !yield(wanted{w.Profile, n}, w.Count) {
				return
			}
		}
	}
}
