package offer

import (
	"slices"

	"caelum/internal/core/place"
)

// FindAll finds spots for jobs that start at the same time. It returns nil unless it finds spots for all of them. Each
// job is assigned its own nodes, and the policy chooses the spots there.
func (c *Cluster) FindAll(jobs []*Job, r *Reservation) (all [][]Spot, why place.Choice) {
	if len(jobs) > 1 {
		return c.AssignNodes(jobs, alike(jobs, func(j *Job, n int) []Spot {
			spots, _ := c.Find(j.onNode(n), r)
			return spots
		})), why
	}
	spots, why := c.Find(jobs[0], r)
	if spots == nil {
		return nil, why
	}
	return [][]Spot{spots}, why
}

// alike returns a function that returns the result of find for the k-th job on node n, but calls find only once per
// node for all jobs that are alike.
func alike[T any](jobs []*Job, find func(j *Job, n int) T) func(k, n int) T {
	first := make([]int, len(jobs))
	for k, j := range jobs {
		first[k] = slices.IndexFunc(jobs, j.Alike)
	}
	type place struct{ first, node int }
	found := map[place]T{}
	return func(k, n int) T {
		at := place{first[k], n}
		answer, known := found[at]
		if !known {
			answer = find(jobs[first[k]], n)
			found[at] = answer
		}
		return answer
	}
}

// AssignNodes assigns disjoint sets of nodes to the jobs and returns the spots of each job. Like slurmctld, it
// processes the jobs in order. Each job is assigned the first nodes that leave enough nodes for the later jobs. room
// returns the spots of the k-th job on node n, or nil if the job does not fit; it is called once for each job and node.
// A job whose OutsideCluster is true is assigned the nodes that the other jobs leave free. The result is nil if no
// assignment exists.
func (c *Cluster) AssignNodes(jobs []*Job, room func(k, n int) []Spot) [][]Spot {
	m := matching{rooms: make([][]int, len(jobs)), holder: slices.Repeat([]int{vacant}, len(c.Nodes))}
	spots := make([]map[int][]Spot, len(jobs))
	for k, j := range jobs {
		spots[k] = map[int][]Spot{}
		for _, n := range c.nodesNow(j) {
			if len(j.Wants) == 0 {
				spots[k][n] = []Spot{}
			} else if found := room(k, n); found != nil {
				spots[k][n] = found
			} else {
				continue
			}
			m.rooms[k] = append(m.rooms[k], n)
		}
		slices.Sort(m.rooms[k])
		if len(m.rooms[k]) < j.nodes() && !j.OutsideCluster {
			return nil
		}
	}
	for k, j := range jobs {
		for range j.nodes() {
			if !j.OutsideCluster && !m.augment(k, make([]bool, len(jobs))) {
				return nil
			}
		}
	}
	all := make([][]Spot, len(jobs))
	for k, j := range jobs {
		all[k] = []Spot{}
		for _, n := range m.settle(k, min(j.nodes(), len(m.rooms[k])), j.OutsideCluster) {
			all[k] = append(all[k], spots[k][n]...)
		}
	}
	if !c.starts(jobs, all) {
		return nil
	}
	return all
}

// matching assigns nodes to jobs, each node to at most one job. To assign a node, it visits the candidate nodes of
// each job at most once.
type matching struct {
	rooms  [][]int // for each job, the nodes that have room for its slices, in ascending order
	holder []int   // for each node, the job to which it is assigned, or vacant or settled
}

// vacant marks a node that is not assigned to any job, and settled marks a node whose assignment is final.
const (
	vacant  = -1
	settled = -2
)

// augment assigns one more node to the k-th job. If necessary, it reassigns nodes of other jobs. seen marks the jobs
// whose nodes must not change. If augment fails, it marks all jobs whose nodes it has tried to change.
func (m *matching) augment(k int, seen []bool) bool {
	seen[k] = true
	for _, n := range m.rooms[k] {
		if m.holder[n] == vacant {
			m.holder[n] = k
			return true
		}
	}
	for _, n := range m.rooms[k] {
		if other := m.holder[n]; other != settled && !seen[other] && m.augment(other, seen) {
			m.holder[n] = k
			return true
		}
	}
	return false
}

// settle makes the final assignment for the k-th job and returns its nodes. The job is assigned the first nodes that
// leave enough nodes for the other jobs, up to need nodes. If extra is false, the job already has as many nodes as it
// needs, and settle releases one of them for each node that it assigns.
func (m *matching) settle(k, need int, extra bool) (kept []int) {
	seen := make([]bool, len(m.rooms))
	for _, n := range m.rooms[k] {
		if len(kept) == need {
			break
		}
		holder := m.holder[n]
		if holder == settled {
			continue
		}
		m.holder[n] = settled
		back := vacant // a node that the job releases in exchange
		if !extra && holder != k {
			back = m.last(k)
			m.holder[back] = vacant
		}
		if holder >= 0 && holder != k && (seen[holder] || !m.augment(holder, seen)) {
			if m.holder[n] = holder; back != vacant {
				m.holder[back] = k
			}
			continue
		}
		kept = append(kept, n)
		clear(seen)
	}
	return kept
}

// last returns the last node that is assigned to the k-th job.
func (m *matching) last(k int) int {
	for _, n := range slices.Backward(m.rooms[k]) {
		if m.holder[n] == k {
			return n
		}
	}
	return vacant
}

// starts reports whether slurmctld would start each job on its spots in all if these spots were offered. slurmctld
// processes the jobs in order and starts each job on the first nodes that offer its slices and are not used by an
// earlier job (backfill.c, 22.05.8).
func (c *Cluster) starts(jobs []*Job, all [][]Spot) bool {
	nodeOf := c.nodeOf()
	free := map[wanted]int{}
	for k, spots := range all {
		for _, s := range spots {
			free[wanted{RequestedAs(jobs[k].Wants, c.Pool.GPU(s.GPU).Model.ProfileOf(s.Placement)), nodeOf[s.GPU]}]++
		}
	}
	taken := map[int]bool{}
	for _, j := range jobs {
		need := j.nodes()
		for _, n := range c.nodesNow(j) {
			if need == 0 || taken[n] ||
				slices.ContainsFunc(j.Wants, func(w Want) bool { return free[wanted{w.Profile, n}] < w.Count }) {
				continue
			}
			taken[n] = true
			need--
		}
		if need > 0 && !j.OutsideCluster {
			return false
		}
	}
	return true
}
