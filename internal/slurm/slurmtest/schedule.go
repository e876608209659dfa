package slurmtest

import (
	"maps"
	"slices"
	"strings"

	"caelum/internal/core/eligible"
	"caelum/internal/slurm"
)

type kind struct{ name, typ string }

// used returns the number of units that slurmctld counts as used for each of the node's GRES.
func (f *Fake) used(n *node) map[kind]int {
	used := maps.Clone(n.excess)
	if used == nil {
		used = make(map[kind]int)
	}
	for _, j := range f.jobs {
		if j.Holds() && !j.forgotten {
			for _, g := range j.alloc[n.Name] {
				used[kind{g.Name, g.Type}] += g.Count
			}
		}
	}
	return used
}

// wants returns the GRES that a job needs on each node.
func (j *job) wants() slurm.GRESList {
	list := slices.Clone(j.PerNode)
	if !slices.ContainsFunc(list, func(g slurm.GRES) bool { return g.Name == "gpu" }) {
		if n := j.GPUsPerNode(); n > 0 {
			list = append(list, slurm.GRES{Name: "gpu", Count: n})
		}
	}
	return list
}

// fit allocates the requested GRES from those that are not used. It returns false if there are not enough of them.
func fit(gres slurm.GRESList, used map[kind]int, wants slurm.GRESList) (slurm.GRESList, bool) {
	left := make([]int, len(gres))
	for i, g := range gres {
		left[i] = max(0, g.Count-used[kind{g.Name, g.Type}])
	}
	taken := make([]int, len(gres))
	for _, w := range wants {
		need := w.Count
		for i, g := range gres {
			if g.Name == w.Name && (w.Type == "" || w.Type == g.Type) {
				n := min(need, left[i])
				need, left[i], taken[i] = need-n, left[i]-n, taken[i]+n
			}
		}
		if need > 0 {
			return nil, false
		}
	}
	var alloc slurm.GRESList
	for i, g := range gres {
		if taken[i] > 0 {
			alloc = append(alloc, slurm.GRES{Name: g.Name, Type: g.Type, Count: taken[i]})
		}
	}
	return alloc, true
}

// named reports whether the job's partition, features and excluded nodes allow it to use the node.
func (j *job) named(n *node) bool {
	if !slices.ContainsFunc(
		strings.Split(j.Partition, ","),
		func(p string) bool { return slices.Contains(n.Partitions, p) },
	) {
		return false
	}
	if eligible.LacksFeatures(j.Features, n.Features, j.NumNodes) != "" {
		return false
	}
	return !slices.Contains(j.ExcNodes, n.Name)
}

// largeEnough returns the real and the catalogue nodes whose total GRES, whether used or not, are sufficient for the
// job.
func (f *Fake) largeEnough(j *job) (up, catalogue []*node) {
	for _, n := range f.nodes {
		if _, ok := fit(n.gres, nil, j.wants()); !ok || !j.named(n) {
			continue
		}
		if n.Catalogue {
			catalogue = append(catalogue, n)
		} else {
			up = append(up, n)
		}
	}
	return up, catalogue
}

// possible reports whether the nodes' current totals are sufficient for the job.
func (f *Fake) possible(j *job) bool {
	up, catalogue := f.largeEnough(j)
	all := append(up, catalogue...)
	for _, name := range j.ReqNodes {
		if !slices.ContainsFunc(all, func(n *node) bool { return n.Name == name }) {
			return false
		}
	}
	return len(all) >= j.NumNodes
}

// place returns the job's GRES on each node, the names of these nodes, and whether the job can start now.
func (f *Fake) place(j *job) (map[string]slurm.GRESList, []string, bool) {
	alloc := make(map[string]slurm.GRESList)
	var names []string
	try := func(n *node) {
		if _, twice := alloc[n.Name]; twice || len(names) == j.NumNodes || !j.named(n) || !f.open(n) {
			return
		}
		got, ok := fit(n.gres, f.used(n), j.wants())
		if !ok {
			return
		}
		if j.Exclusive {
			if !f.empty(n) {
				return
			}
			got = slices.DeleteFunc(slices.Clone(n.gres), func(g slurm.GRES) bool { return g.Count == 0 })
		}
		alloc[n.Name] = got
		names = append(names, n.Name)
	}
	for _, n := range f.nodes {
		if slices.Contains(j.ReqNodes, n.Name) {
			try(n)
		}
	}
	if len(names) < len(j.ReqNodes) {
		return nil, nil, false
	}
	for _, n := range f.nodes {
		try(n)
	}
	slices.Sort(names)
	return alloc, names, len(names) == j.NumNodes
}

// open reports whether slurmctld starts jobs on the node.
func (f *Fake) open(n *node) bool {
	if n.Catalogue || len(n.drain) > 0 {
		return false
	}
	for _, j := range f.jobs {
		if !slices.Contains(j.Nodes, n.Name) {
			continue
		}
		if j.State == "COMPLETING" || j.Holds() && j.Exclusive {
			return false
		}
	}
	return true
}

func (f *Fake) empty(n *node) bool {
	for _, j := range f.jobs {
		if j.Present() && slices.Contains(j.Nodes, n.Name) {
			return false
		}
	}
	return true
}

// Tick simulates one cycle of slurmctld's scheduler: every pending job for which there are enough resources starts,
// highest priority first. It then calls the prolog hook for the started jobs and returns their ids.
func (f *Fake) Tick() []uint32 {
	f.mu.Lock()
	var started []slurm.Job
	passed := false
	for _, j := range f.sorted() {
		if j.State != "PENDING" || j.held || j.Priority == 0 {
			continue
		}
		if j.Eligible.After(f.now) {
			j.Reason = "BeginTime"
			continue
		}
		if !f.possible(j) {
			j.Priority, j.Reason = 0, "BadConstraints"
			continue
		}
		alloc, names, ok := f.place(j)
		if !ok {
			j.Reason = f.waitReason(j, passed)
			passed = true
			continue
		}
		j.alloc, j.Nodes, j.forgotten = alloc, names, false
		j.State, j.Reason, j.Start = "RUNNING", "None", f.now
		if j.TimeLimit > 0 {
			j.End = f.now.Add(j.TimeLimit)
		}
		if f.prolog != nil {
			j.Reason = "Prolog"
		}
		started = append(started, j.view(true))
	}
	prolog := f.prolog
	f.mu.Unlock()

	var ids []uint32
	for _, s := range started {
		ids = append(ids, s.ID)
		if prolog == nil {
			continue
		}
		for _, n := range s.Nodes {
			prolog(s, n)
		}
		f.mu.Lock()
		if j := f.jobs[s.ID]; j.State == "RUNNING" && j.Restarts == s.Restarts && j.Reason == "Prolog" {
			j.Reason = "None"
		}
		f.mu.Unlock()
	}
	return ids
}

// waitReason returns the reason that squeue shows for a job that is waiting for nodes.
func (f *Fake) waitReason(j *job, passed bool) string {
	up, _ := f.largeEnough(j)
	switch {
	case len(up) < j.NumNodes: // slurmctld names only unavailable nodes that are not in the FUTURE state
		return "ReqNodeNotAvail, May be reserved for other job"
	case passed:
		return "Priority"
	}
	return "Resources"
}
