package plan

import (
	"maps"
	"time"

	"caelum/internal/core/offer"
	"caelum/internal/slurm"
)

// Unresponsive records the nodes that are behind the plan. A node is behind for as long as its agent has not published
// the offers that the plan contains for the node.
type Unresponsive struct {
	// Patience is the time that a node can be behind the plan before it is excluded from plans.
	Patience time.Duration

	behind map[string]lag
}

// Patience returns the time that a node can be behind the plan before other agents exclude it: two polls plus 5 s. With
// a watcher, agents can poll much less often, because the watcher notifies the agents of changes. A poll interval above
// 15 s is therefore treated as 15 s.
func Patience(poll time.Duration) time.Duration {
	return 2*min(poll, 15*time.Second) + 5*time.Second
}

type lag struct {
	shows string // the node's counts and Extra at that time; every change restarts the period
	since time.Time
}

func shows(n slurm.Node) string { return n.Gres.String() + n.Extra }

// LeftOut reports whether a plan that is made at the given time must exclude the node.
func (l *Unresponsive) LeftOut(n slurm.Node, at time.Time) bool {
	b, ok := l.behind[n.Name]
	return ok && b.shows == shows(n) && at.Sub(b.since) > l.Patience
}

// Record records the nodes that have not published the planned offers as of the given time, except for the node named
// by but.
func (l *Unresponsive) Record(v *View, p offer.Plan, but string, at time.Time) {
	if l.behind == nil {
		l.behind = map[string]lag{}
	}
	for k, n := range v.Members {
		if n.Name == but || !lacks(n, v.Counts(p, k)) {
			delete(l.behind, n.Name)
			continue
		}
		if b, ok := l.behind[n.Name]; !ok || b.shows != shows(n) {
			l.behind[n.Name] = lag{shows(n), at}
		}
	}
}

// lacks reports whether a node has fewer free slices than the plan offers on it.
func lacks(n slurm.Node, planned map[string]int) bool {
	free := n.Free("mig")
	for profile, count := range planned {
		if free[profile] < count {
			return true
		}
	}
	return false
}

// Differs reports whether a node's offers differ from the planned offers.
func Differs(n slurm.Node, planned map[string]int) bool {
	free := n.Free("mig")
	delete(free, slurm.ClosedType)
	maps.DeleteFunc(free, func(_ string, count int) bool { return count <= 0 })
	return !maps.Equal(free, planned)
}
