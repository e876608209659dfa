package offer

import (
	"math"
	"testing"

	"caelum/internal/core/place"
)

// counted is a policy that counts the calls to its methods.
type counted struct{ n *int }

func (c counted) Choose(s *place.Situation, r place.Request) place.Choice {
	*c.n++
	return place.Reach.Choose(s, r)
}

func emptyNodes(t *testing.T, n int) (nodes [][]place.GPU) {
	b := plain(t, "A100-40GB")
	for range n {
		nodes = append(nodes, []place.GPU{{Model: b, Offerable: everything(b)}, {Model: b, Offerable: everything(b)}})
	}
	return nodes
}

func het(id, het uint32, nodes int, profile string) *Job {
	j := &Job{ID: id, Het: het, Nodes: nodes, RunTime: math.Inf(1), TimeLimit: math.Inf(1)}
	if profile != "" {
		j.Wants = []Want{{Profile: profile, Count: 1}}
	}
	return j
}

// TestComponentOfAnySize checks that planning a component without slices that requests a million nodes outside the
// cluster costs no more than planning one that requests all nodes of the cluster.
func TestComponentOfAnySize(t *testing.T) {
	cost := func(nodes int) (n int) {
		jobs := []*Job{het(1, 1, 1, "1g.5gb"), het(2, 1, nodes, "")}
		jobs[1].OutsideCluster, jobs[1].EligibleNodes = true, []int{0, 1, 2}
		p := Make(NewCluster(counted{&n}, emptyNodes(t, 8)...), jobs, false)
		if p.Spots[0] == nil {
			t.Errorf("%d nodes: not served", nodes)
		}
		return n
	}
	if few, many := cost(8), cost(1_000_000); few != many {
		t.Errorf("%d questions for 8 nodes, %d for a million", few, many)
	}
}

// TestManyComponents checks that the plan searches only once for equal components of a het job, which has one
// component for each node. Each component may run on every node.
func TestManyComponents(t *testing.T) {
	const nodes = 64
	var jobs []*Job
	for k := range uint32(nodes) {
		jobs = append(jobs, het(k+1, 1, 1, "7g.40gb"))
	}
	n := 0
	p := Make(NewCluster(counted{&n}, emptyNodes(t, nodes)...), jobs, false)
	on := map[int]bool{}
	for k := range jobs {
		if len(p.Spots[k]) != 1 || on[p.Spots[k][0].GPU/2] {
			t.Fatalf("component %d is at %v", k, p.Spots[k])
		}
		on[p.Spots[k][0].GPU/2] = true
	}
	if n > 4*nodes {
		t.Errorf("%d questions for %d components on %d nodes", n, nodes, nodes)
	}
}

// TestCostlyJobsInFront checks that a plan for a queue that begins with jobs that need an expensive search and cannot
// be placed, followed by many jobs that can, does not repeat the search after every placed job.
func TestCostlyJobsInFront(t *testing.T) {
	const nodes, small = 64, 100
	all := emptyNodes(t, nodes)
	b := all[0][0].Model
	for n := range all { // each GPU has a free 3g.20gb, but none has a free 4g.20gb
		for k := range all[n] {
			for i := range everything(b).Indices() {
				if b.ProfileOf(i) == "4g.20gb" {
					all[n][k].Hold(i, 1000)
				}
			}
		}
	}
	for what, front := range map[string][]*Job{
		"a het job at the head": {het(1, 1, nodes, "4g.20gb"), het(2, 1, 1, "7g.40gb")},
		"het jobs behind it": {het(1, 0, 1, "7g.40gb"), het(2, 1, 1, "4g.20gb"), het(3, 1, nodes-1, "1g.5gb"),
			het(4, 2, 1, "4g.20gb"), het(5, 2, 1, "2g.10gb")},
		"jobs of many nodes": {het(1, 0, 1, "7g.40gb"), het(2, 0, nodes, "4g.20gb")},
	} {
		jobs := front
		for k := range uint32(small) {
			j := het(100+k, 0, 1, "3g.20gb")
			j.RunTime, j.TimeLimit = 10, 10
			jobs = append(jobs, j)
		}
		n := 0
		p := Make(NewCluster(counted{&n}, all...), jobs, false)
		served := 0
		for _, spots := range p.Spots {
			if spots != nil {
				served++
			}
		}
		if served != small {
			t.Errorf("%s: %d of %d small jobs are served", what, served, small)
		}
		if n > 40*nodes+3*small {
			t.Errorf("%s: %d questions for %d small jobs on %d nodes", what, n, small, nodes)
		}
	}
}
