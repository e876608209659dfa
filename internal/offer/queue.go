package offer

import "slices"

// queue is what is waited for.
type queue map[wanted]bool

// wanted is a profile on a node, by the name that it is on offer as; anywhere if it is everywhere.
type wanted struct {
	profile string
	node    int
}

const everywhere = -1

func (q queue) add(j *Job) {
	for w := range j.wanted {
		q[w] = true
	}
}

// leaves is what a job may have without overtaking anybody: it, on the nodes on which nobody waits for what it wants; nil if these are too few.
func (q queue) leaves(c *Cluster, j *Job) *Job {
	if len(j.Wants) == 0 {
		return j
	}
	nodes := c.now(j)
	on := slices.DeleteFunc(slices.Clone(nodes), func(n int) bool {
		return slices.ContainsFunc(j.Wants, func(w Want) bool { return q.has(w.Profile, n) })
	})
	switch {
	case len(on) < j.nodes():
		return nil
	case len(on) == len(nodes):
		return j
	}
	left := *j
	left.On = on
	return &left
}

// leavesAll is leaves for jobs that start at the same time; nil if it is for one of them.
func (q queue) leavesAll(c *Cluster, jobs []*Job) (all []*Job) {
	for _, j := range jobs {
		left := q.leaves(c, j)
		if left == nil {
			return nil
		}
		all = append(all, left)
	}
	return all
}

// has reports whether somebody waits for a profile who could have it on this node.
func (q queue) has(profile string, node int) bool {
	return q[wanted{profile, everywhere}] || q[wanted{profile, node}]
}

// wanted yields what a job wants and where.
func (j *Job) wanted(yield func(wanted) bool) {
	nodes := j.On
	if nodes == nil {
		nodes = []int{everywhere}
	}
	nodes = without(slices.Clone(nodes), j.Later)
	for _, w := range j.Wants {
		for _, n := range nodes {
			if !yield(wanted{w.Profile, n}) {
				return
			}
		}
	}
}
