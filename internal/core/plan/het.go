package plan

import (
	"slices"
	"time"

	"caelum/internal/core/eligible"
	"caelum/internal/slurm"
)

// slurmctld starts the components of a het job together, and only if every submitted component is either running, or
// pending and able to start (_het_job_full in backfill.c, 22.05.8). If one component has ended or is held, the other
// components never start.

// hetJob is a het job with at least one pending component.
type hetJob struct {
	pending []slurm.Waiting
	ended   []uint32 // ids of the components that are neither pending nor running
	whole   bool     // slurmctld would start it if its slices were offered
}

// hetJobs returns the het jobs that have pending components, by het job id.
func (s Snapshot) hetJobs() map[uint32]*hetJob {
	all := map[uint32]*hetJob{}
	for k := range s.Queue.Waiting {
		w := s.Queue.Waiting[k]
		if w.HetJob == 0 {
			continue
		}
		if all[w.HetJob] == nil {
			all[w.HetJob] = &hetJob{whole: true}
		}
		h := all[w.HetJob]
		h.pending, h.whole = append(h.pending, w), h.whole && s.ready(w)
	}
	if len(all) == 0 {
		return nil
	}
	present := map[uint32]bool{}
	for k := range s.Queue.Waiting {
		present[s.Queue.Waiting[k].ID] = true
	}
	for k := range s.Queue.All {
		if j := &s.Queue.All[k]; j.Holds() {
			present[j.ID] = true
		}
	}
	for _, h := range all {
		for _, id := range h.pending[0].HetJobs {
			if !present[id] {
				h.ended, h.whole = append(h.ended, id), false
			}
		}
	}
	return all
}

// requeuing is the maximum time between the moments at which two components of a requeued het job become eligible.
const requeuing = 5 * time.Second

// Stray returns the components that slurmctld would start even though another component of their het job cannot start.
// When backfill plans a component, it does not check the others. While a stray component is waiting, backfill reserves
// nodes for it ahead of all jobs with lower priority (backfill.c, 22.05.8). Therefore, an agent holds stray components
// until the entire het job can start. Stray ignores het jobs that do not request slices.
func Stray(snapshot Snapshot) (all []slurm.Waiting) {
	jobs := snapshot.hetJobs()
	for _, w := range snapshot.Queue.Waiting {
		h := jobs[w.HetJob]
		if h == nil || h.whole || !eligible.WaitsForNodes(w) || snapshot.At.Sub(w.Job.Eligible) < requeuing {
			continue
		}
		if slices.ContainsFunc(h.pending, func(o slurm.Waiting) bool { return len(Job(o).Wants) > 0 }) {
			all = append(all, w)
		}
	}
	return all
}
