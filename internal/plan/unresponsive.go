package plan

import (
	"maps"
	"time"

	"caelum/internal/offer"
	"caelum/internal/slurm"
)

// Unresponsive are the nodes that have not had on offer for a while what the plan has them offer.
type Unresponsive struct {
	// Patience is how long that may last before a node is left out.
	Patience time.Duration

	behind map[string]lag
}

// Patience is how long that is for agents that look at the queue so often: two polls, but not of those that look rarely
// because a watcher tells them to, and some.
func Patience(poll time.Duration) time.Duration {
	return 2*min(poll, 15*time.Second) + 5*time.Second
}

type lag struct {
	shows string // what the node showed then: it is given another chance when it shows something else
	since time.Time
}

func shows(n slurm.Node) string { return slurm.FormatGRES(n.Gres) + n.Extra }

// Out reports whether a node is to be left out at this time.
func (l *Unresponsive) Out(n slurm.Node, at time.Time) bool {
	b, ok := l.behind[n.Name]
	return ok && b.shows == shows(n) && at.Sub(b.since) > l.Patience
}

// Follow notes which nodes do not have on offer at this time what the plan has them offer, but for one.
func (l *Unresponsive) Follow(v *View, p offer.Plan, but string, at time.Time) {
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

// lacks reports whether a node has less free than the plan would have it offer.
func lacks(n slurm.Node, planned map[string]int) bool {
	free := n.Free("mig")
	for profile, count := range planned {
		if free[profile] < count {
			return true
		}
	}
	return false
}

// Differs reports whether a node has not exactly on offer what the plan would have it offer.
func Differs(n slurm.Node, planned map[string]int) bool {
	free := n.Free("mig")
	delete(free, slurm.ClosedType)
	maps.DeleteFunc(free, func(_ string, count int) bool { return count <= 0 })
	return !maps.Equal(free, planned)
}
