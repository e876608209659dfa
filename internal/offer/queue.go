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

// wants reports whether somebody waits for anything that a job wants.
func (q queue) wants(j *Job) bool {
	for w := range j.wanted {
		if w.node != everywhere && q.has(w.profile, w.node) || w.node == everywhere && q.anywhere(w.profile) {
			return true
		}
	}
	return false
}

// has reports whether somebody waits for a profile who could have it on this node.
func (q queue) has(profile string, node int) bool {
	return q[wanted{profile, everywhere}] || q[wanted{profile, node}]
}

func (q queue) anywhere(profile string) bool {
	for w := range q {
		if w.profile == profile {
			return true
		}
	}
	return false
}

// wanted yields what a job wants and where.
func (j *Job) wanted(yield func(wanted) bool) {
	nodes := j.On
	if nodes == nil {
		nodes = []int{everywhere}
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n int) bool { return slices.Contains(j.Later, n) })
	for _, w := range j.Wants {
		for _, n := range nodes {
			if !yield(wanted{w.Profile, n}) {
				return
			}
		}
	}
}
