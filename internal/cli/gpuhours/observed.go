package gpuhours

import (
	"slices"
	"strings"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// Observed holds the agents' summaries from accounting records.
type Observed struct {
	runs  map[uint32][]predict.Run // by job
	nodes nodes
}

// Observe returns the summaries in the records. The records must include all runs of a job, because slurmdbd stores the
// summaries of all runs of a requeued job in the job's newest record.
func Observe(records []slurm.Allocation) Observed {
	o := Observed{runs: map[uint32][]predict.Run{}, nodes: nodes{}}
	for _, r := range records {
		for _, s := range append(predict.Summaries(r.Text), predict.Summaries(r.Comment)...) {
			o.nodes.seen(s)
			if !slices.ContainsFunc(o.runs[r.ID], func(other predict.Run) bool { return same(other, s) }) {
				o.runs[r.ID] = append(o.runs[r.ID], s)
			}
		}
	}
	return o
}

// same reports whether two summaries describe the same run on the same node.
func same(a, b predict.Run) bool {
	return strings.EqualFold(a.Node, b.Node) && a.Restart == b.Restart && a.Start == b.Start
}

// Runs returns the summaries of the run that a record describes, one for each node and profile. A run that has not
// ended is counted up to now.
func (o Observed) Runs(r slurm.Allocation, now time.Time) (runs []predict.Run) {
	if r.Start.IsZero() {
		return nil
	}
	for _, s := range o.runs[r.ID] {
		// The run received its slices after slurmctld had started it, and the clocks of the hosts may differ.
		at := time.Unix(s.Start, 0)
		if !at.Before(r.Start.Add(-clocks)) && !at.After(endOf(r, now).Add(clocks)) {
			runs = append(runs, s)
		}
	}
	return runs
}

// clocks is the maximum allowed difference between a node's clock and slurmctld's.
const clocks = 5 * time.Second

// endOf returns the end time of the run that a record describes, or now if it has not ended.
func endOf(r slurm.Allocation, now time.Time) time.Time {
	if r.End.IsZero() {
		return now
	}
	return r.End
}

// Models returns the GPU models that a node may have according to the summaries, or nil if no summary describes a run
// on the node.
func (o Observed) Models(node string) []*mig.Model { return o.nodes[strings.ToLower(node)].models }
