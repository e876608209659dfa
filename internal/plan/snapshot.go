package plan

import (
	"context"
	"math"
	"time"

	"caelum/internal/offer"
	"caelum/internal/slurm"
)

// Snapshot holds slurmctld's answers to one reading: the nodes first, then the queue.
type Snapshot struct {
	Nodes []slurm.Node
	Queue slurm.Queue
	At    time.Time // the time of the reading, by the clock of the host that read

	paused map[uint32]bool // users for whose jobs no room is reserved while they lack something other than slices
}

// ready reports whether a waiting job could start if it had its slices: slurmctld would start it, or an agent would
// release it.
func (s Snapshot) ready(w slurm.Waiting) bool {
	return (w.Eligible() || w.Releasable(s.At)) && s.Queue.LacksLicense(w) == ""
}

// Controller is the part of slurmctld that Read needs. *slurm.Client implements it.
type Controller interface {
	Nodes(ctx context.Context) ([]slurm.Node, error)
	Queue(ctx context.Context) (slurm.Queue, error)
}

// Read reads the nodes from slurmctld, then the jobs. The order matters to an agent: a job that starts between the two
// is then among the jobs. In the other order, it would appear only in GresUsed, and its slice would be offered again.
func Read(ctx context.Context, ctl Controller, now func() time.Time) (snapshot Snapshot, err error) {
	if snapshot.Nodes, err = ctl.Nodes(ctx); err != nil {
		return snapshot, err
	}
	snapshot.Queue, err = ctl.Queue(ctx)
	snapshot.At = now()
	return snapshot, err
}

// startable returns the waiting jobs that could start if they had their slices, in order. Jobs that start together form
// a group. All components of a het job start at the same time, or none does. Their place is that of the last component
// that is not held, because backfill considers the het job there with bf_hetjob_prio=min (backfill.c, 22.05.8). If all
// components are held, their place is that of the first. Slices that were offered to a het job earlier would go to the
// jobs between its components, and the het job would keep GPUs idle without getting them.
func startable(snapshot Snapshot) (all [][]slurm.Waiting) {
	het := snapshot.hetJobs()
	order := snapshot.Queue.InOrder()
	place := map[*hetJob]uint32{} // the component at whose place the het job is planned
	for _, w := range order {
		if h := het[w.HetJob]; h != nil && (w.Priority > 0 || place[h] == 0) {
			place[h] = w.ID
		}
	}
	for _, w := range order {
		switch h := het[w.HetJob]; {
		case w.HetJob == 0 && snapshot.ready(w):
			all = append(all, []slurm.Waiting{w})
		case h != nil && h.whole && place[h] == w.ID:
			all = append(all, h.pending)
		}
	}
	return all
}

// Job returns the needs of a waiting job in the form of package offer.
func Job(w slurm.Waiting) *offer.Job {
	j := &offer.Job{
		ID:        w.ID,
		Het:       w.HetJob,
		Nodes:     max(w.NumNodes, 1),
		RunTime:   seconds(w.Expected()),
		TimeLimit: seconds(w.TimeLimit),
	}
	for _, g := range w.SlicesPerNode() {
		if g.Type != "" && g.Type != slurm.ClosedType {
			j.Wants = append(j.Wants, offer.Want{Profile: g.Type, Count: g.Count})
		}
	}
	return j
}

// seconds returns a duration in seconds; +Inf for 0.
func seconds(d time.Duration) float64 {
	if d == 0 {
		return math.Inf(1)
	}
	return d.Seconds()
}
