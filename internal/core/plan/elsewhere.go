package plan

import (
	"slices"

	"caelum/internal/core/eligible"
	"caelum/internal/slurm"
)

// Elsewhere reports whether slurmctld accepts a waiting job because of nodes that Caelum does not manage. slurm.conf
// gives these nodes fixed counts of every profile, so that jobs with slices can also get their whole GPUs. No agent
// runs there, so an agent on another node must release the held jobs that can use them.
func (s Snapshot) Elsewhere(w slurm.Waiting) bool {
	wants, count := w.SlicesPerNode(), 0
	if len(wants) == 0 {
		return false
	}
	for _, n := range s.Nodes {
		if n.Unmanaged() && n.Gres.Named("mig").Covers(wants) && eligible.Accepts(n, w) {
			count++
		}
	}
	return count >= max(w.NumNodes, len(w.ReqNodes), 1)
}

// HeldElsewhere lists the held jobs that can use such nodes.
func (s Snapshot) HeldElsewhere() (held []slurm.Waiting) {
	managed := func(n slurm.Node) bool { return !n.Unmanaged() }
	others := Snapshot{Nodes: slices.DeleteFunc(slices.Clone(s.Nodes), managed)}
	if len(others.Nodes) == 0 {
		return nil
	}
	for _, w := range s.Queue.Waiting {
		if eligible.Releasable(w, s.At) && others.Elsewhere(w) {
			held = append(held, w)
		}
	}
	return held
}
