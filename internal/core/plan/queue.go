package plan

import (
	"crypto/sha256"
	"iter"
	"slices"
	"strings"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/slurm"
)

// entryKey identifies an entry of the queue. When a task of an array starts, the remaining pending tasks become a new
// entry.
type entryKey struct {
	id    uint32
	tasks string
}

// waitingJob holds the information that a Planner has about an entry of the queue.
type waitingJob struct {
	record slurm.Waiting
	round  uint64 // the last round in which a snapshot contained the entry
	waits  bool   // eligible.WaitsForNodes
	job    *offer.Job
	hash   [sha256.Size]byte // see requestHash
	shared bool              // the job can run on the same nodes as any job with an equal request
	asked  [2]*request       // the requests with paused false and true; nil if not yet known
	sized  bool              // sizes is known
	sizes  []offer.Size
}

// entry returns the information about an entry of the queue, after updating it from the entry's record.
func (p *Planner) entry(record *slurm.Waiting) *waitingJob {
	j := p.jobs[entryKey{record.ID, record.ArrayTask}]
	if j == nil || j.round == p.round {
		j = &waitingJob{}
		p.jobs[entryKey{record.ID, strings.Clone(record.ArrayTask)}] = j
	}
	j.round = p.round
	if j.job == nil || !j.record.Same(record) {
		j.update(record)
	}
	// The record's strings may be part of slurmctld's reply; an older copy would keep that entire reply in memory.
	j.record = *record
	return j
}

// update sets the information about an entry whose record has changed.
func (j *waitingJob) update(record *slurm.Waiting) {
	old := j.record
	j.waits = eligible.WaitsForNodes(*record)
	if j.job != nil {
		old = old.Clone()
		// slurmctld changes these fields of many jobs at the same time.
		old.Priority, old.LastSchedEval, old.Start = record.Priority, record.LastSchedEval, record.Start
		if record.Reason != "Resources" && old.Same(record) {
			return
		}
	}
	j.job, j.sized, j.shared, j.asked = Job(*record), false, false, [2]*request{}
	for k := range j.job.Wants {
		w := &j.job.Wants[k]
		w.Profile, w.Grown = strings.Clone(w.Profile), strings.Clone(w.Grown)
	}
	if len(j.job.Wants) > 0 {
		j.hash, j.shared = requestHash(j.job, *record)
	}
}

// queue sets Jobs and Waiting in queue order. nodes lists the snapshot's nodes in slurmctld's order.
func (v *View) queue(snapshot Snapshot, nodes []slurm.Node) {
	p := v.planner
	v.Jobs, v.Waiting = p.planned[:0], p.waiting[:0]
	slots := 0
	for k := range v.Members {
		slots += v.Members[k].Gres.Total("gpu")
	}
	for waiting := range startable(snapshot, p) {
		if !slices.ContainsFunc(waiting, func(j *waitingJob) bool { return len(j.job.Wants) > 0 }) {
			continue
		}
		if !v.place(snapshot, waiting, nodes) { // a job that can never run would block its profile for other jobs
			continue
		}
		// The number of tasks of an array that can start is at most the number of slots in the cluster.
		for range min(waiting[0].record.Elements, slots) {
			for _, j := range waiting {
				v.Jobs, v.Waiting = append(v.Jobs, j.job), append(v.Waiting, &j.record)
			}
		}
	}
	clear(p.planned[min(len(v.Jobs), len(p.planned)):])
	clear(p.waiting[min(len(v.Waiting), len(p.waiting)):])
	p.planned, p.waiting = v.Jobs, v.Waiting
}

// place takes jobs that start together and sets those of their properties that depend on the nodes and the time. It
// returns false if they could not start even on empty GPUs.
func (v *View) place(snapshot Snapshot, waiting []*waitingJob, nodes []slurm.Node) bool {
	jobs := make([]*offer.Job, len(waiting))
	for k, j := range waiting {
		jobs[k] = j.job
		j.job.Waited = max(0, snapshot.At.Sub(eligible.WaitsSince(j.record.Job)).Seconds())
		if j.job.SingletonKey = 0; waiting[0].record.Priority == 0 {
			j.job.SingletonKey = uint64(waiting[0].record.UID) + 1
		}
		j.job.OutsideCluster, j.job.Priority = false, 0
		if j.job.First = snapshot.Preempts(*j.record.Job); !j.record.Expedited && !j.job.First {
			j.job.Priority = j.record.Priority
		}
		if len(j.job.Wants) > 0 {
			j.job.Wants[0].Sizes = nil
			v.setNodes(j)
		} else {
			j.job.DeferredNodes = nil
			v.setNodesWithoutSlices(j.job, &j.record, nodes)
		}
	}
	if len(jobs) == 1 && waiting[0].shared {
		if !v.request(waiting[0]).feasible {
			return false
		}
	} else if !v.feasible(jobs) {
		return false
	}
	for k, j := range jobs {
		if len(j.Wants) == 1 {
			j.Wants[0].Sizes = v.sizes(waiting[k])
		}
		if len(j.EligibleNodes) == len(v.Members) && len(j.Wants) > 0 && len(j.DeferredNodes) == 0 {
			j.EligibleNodes = nil
		}
	}
	return true
}

// sizes returns the larger profiles that the job can be given.
func (v *View) sizes(j *waitingJob) []offer.Size {
	if !j.sized {
		j.sizes, j.sized = Sizes(*j.record.Job, v.kinds), true
	}
	return j.sizes
}

// request returns the planner's information about the request of a job that can run on the same nodes as any job with
// an equal request.
func (v *View) request(j *waitingJob) *request {
	paused := v.paused[j.record.UID]
	at := &j.asked[0]
	if paused {
		at = &j.asked[1]
	}
	if *at == nil || (*at).round+1 < v.planner.round { // forget may have removed the request
		*at = v.planner.request(requestKey{j.hash, paused})
	}
	return *at
}

// setNodes sets the members on which a job can run. Jobs with equal requests share these sets; otherwise, with many
// jobs and nodes, most of the planning time would be spent here.
func (v *View) setNodes(j *waitingJob) {
	r := &request{}
	if j.shared {
		r = v.request(j)
	}
	r.find(v, j.job, &j.record)
}

// startable yields the waiting jobs that could start if their slices were free, in the order of the queue. Each yielded
// list is a group of jobs that start together, such as the components of a het job. The group takes the position of its
// last component that is not held, because backfill with bf_hetjob_prio=min considers the het job at that position
// (backfill.c, 22.05.8). If all components are held, it takes the position of the first one. At an earlier position,
// the slices offered for the het job would be allocated to the jobs between its components, and other GPUs would remain
// idle without any benefit to the het job.
func startable(snapshot Snapshot, p *Planner) iter.Seq[[]*waitingJob] {
	het := snapshot.hetJobs()
	order := snapshot.preemptorsFirst(eligible.Order(snapshot.Queue))
	place := map[*hetJob]int{} // the component that determines the position of the het job
	for _, k := range order {
		w := &snapshot.Queue.Waiting[k]
		if h := het[w.HetJob]; h != nil {
			if _, known := place[h]; w.Priority > 0 || !known {
				place[h] = k
			}
		}
	}
	return func(yield func([]*waitingJob) bool) {
		for _, k := range order {
			w := &snapshot.Queue.Waiting[k]
			var all []*waitingJob
			switch h := het[w.HetJob]; {
			case w.HetJob == 0:
				if j := p.entry(w); snapshot.readyIf(j.waits, w) {
					all = append(all, j)
				}
			case h != nil && h.whole && place[h] == k:
				for i := range h.pending {
					all = append(all, p.entry(&h.pending[i]))
				}
			}
			if all != nil && !yield(all) {
				return
			}
		}
	}
}
