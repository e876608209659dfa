package plan

import (
	"math"
	"time"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// Snapshot holds the nodes and the queue as slurmctld returned them: first the nodes, then the queue.
type Snapshot struct {
	Nodes []slurm.Node
	Queue slurm.Queue
	At    time.Time // the time of the snapshot, from the clock of the host that queried slurmctld

	paused map[uint32]bool          // the users for whose jobs reservations are suspended (see maxPause)
	behind func(slurm.Waiting) bool // whether Unstarted has moved the job behind all others; nil if it has moved none
}

// ready reports whether a waiting job could start if its slices were free, because slurmctld would start it or an
// agent would release it.
func (s Snapshot) ready(w slurm.Waiting) bool {
	return s.readyIf(eligible.WaitsForNodes(w), &w)
}

// readyIf is like ready, but takes the argument waits, which is true if the job is waiting only for nodes.
func (s Snapshot) readyIf(waits bool, w *slurm.Waiting) bool {
	return (waits || eligible.Releasable(*w, s.At)) && (w.Licenses == "" || eligible.LacksLicense(s.Queue, *w) == "")
}

// Job converts the requirements of a waiting job to an [offer.Job].
func Job(w slurm.Waiting) *offer.Job {
	j := &offer.Job{
		ID:        w.ID,
		User:      w.UID,
		Het:       w.HetJob,
		Nodes:     max(w.NumNodes, 1),
		RunTime:   seconds(tags.Expected(*w.Job)),
		Learned:   tags.Learned(*w.Job) > 0,
		TimeLimit: seconds(w.TimeLimit),
	}
	if latest := w.LatestStart(); !latest.IsZero() {
		j.Deadline, j.LatestStart = float64(w.Deadline.Unix()), float64(latest.Unix())
	}
	grown := tags.Needed(*w.Job) // once, because a request may list thousands of slices
	for _, g := range w.SlicesPerNode() {
		if g.Type != "" && g.Type != slurm.ClosedType {
			j.Wants = append(j.Wants, offer.Want{Profile: g.Type, Count: g.Count, Grown: grown})
		}
	}
	return j
}

// seconds returns a duration in seconds, or +Inf for 0.
func seconds(d time.Duration) float64 {
	if d == 0 {
		return math.Inf(1)
	}
	return d.Seconds()
}
