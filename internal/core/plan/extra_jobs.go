package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// jobsPrefix is the prefix of the `caelum-jobs` entry in a node's Extra, which lists the leased slices and the jobs
// that hold them, for example "caelum-jobs=0:1g.5gb@6/17,0:1g.5gb@5/18". The watcher needs it to find the jobs whose
// end would make room for another job. Agents write the entry only if Slurm is configured to preempt jobs or
// moves_per_day is set, and only if users are allowed to see other users' jobs. The entry is not part of the node
// state, because agents of earlier releases reject a node state that contains an unknown item.
const jobsPrefix = "caelum-jobs="

// WithJobs returns a node's Extra with its `caelum-jobs` entry set to the jobs that hold the node's slices. The other
// entries remain unchanged. If there are no jobs, WithJobs removes the entry.
func WithJobs(extra string, gpus []place.GPU, holders map[offer.Spot]uint32) string {
	var all []string
	for k, g := range gpus {
		if g.Model == nil {
			continue
		}
		for i := range g.Busy.Indices() {
			if job := holders[offer.Spot{GPU: k, Placement: i}]; job != 0 {
				all = append(all, fmt.Sprintf("%d:%s/%d", k, label(g.Model, i), job))
			}
		}
	}
	return withEntry(extra, jobsPrefix, strings.Join(all, ","))
}

// holdersIn returns the job of each busy slice that the `caelum-jobs` entry in a node's Extra names. GPUs are indices
// in gpus. holdersIn ignores items that cannot be parsed, because an administrator can change Extra.
func holdersIn(extra string, gpus []place.GPU) map[offer.Spot]uint32 {
	holders := map[offer.Spot]uint32{}
	for w := range strings.FieldsSeq(extra) {
		list, ok := strings.CutPrefix(w, jobsPrefix)
		if !ok {
			continue
		}
		for item := range strings.SplitSeq(list, ",") {
			at, id, _ := strings.Cut(item, "/")
			number, spot, _ := strings.Cut(at, ":")
			profile, start, _ := strings.Cut(spot, "@")
			k, err1 := strconv.Atoi(number)
			from, err2 := strconv.Atoi(start)
			job, err3 := strconv.ParseUint(id, 10, 32)
			if err1 != nil || err2 != nil || err3 != nil || k < 0 || k >= len(gpus) || gpus[k].Model == nil {
				continue
			}
			if i, ok := gpus[k].Model.Placement(profile, from); ok && gpus[k].Busy.Has(i) {
				holders[offer.Spot{GPU: k, Placement: i}] = uint32(job)
			}
		}
	}
	return holders
}

// Holders returns the jobs that hold slices on the members, according to the nodes' agents. GPUs are indices in the
// pool.
func (v *View) Holders() map[offer.Spot]uint32 {
	all := map[offer.Spot]uint32{}
	for k, n := range v.known {
		for at, job := range n.parsed.holders {
			all[offer.Spot{GPU: v.Nodes[k][at.GPU], Placement: at.Placement}] = job
		}
	}
	return all
}

// stopping is the number of seconds until the expected end of a job that the watcher is about to stop, or that has
// ended and whose epilog is running. It is so short that a reservation prefers the job's slices to other slices.
const stopping = 1

// earlyEnds returns the expected ends, in seconds, of the node's slices whose jobs have ended or are being stopped by
// the watcher. The node was read before the jobs, so a job that no longer holds the node has ended.
func (n *known) earlyEnds(now float64) (ends map[offer.Spot]float64) {
	if len(n.parsed.holders) == 0 {
		return nil
	}
	running := map[uint32]*slurm.Job{}
	for _, j := range n.jobs {
		running[j.ID] = j
	}
	for at, id := range n.parsed.holders {
		end := now + stopping
		if j := running[id]; j != nil {
			p, ok := tags.PreemptedBy(*j)
			if !ok {
				continue
			}
			if p.Warned {
				end = max(end, float64(p.End.Unix()))
			}
		}
		if ends == nil {
			ends = map[offer.Spot]float64{}
		}
		ends[at] = end
	}
	return ends
}

// preemptionEnds returns the time until which the plan places a waiting job ahead of all other jobs, because the
// watcher is stopping or has stopped jobs for it. ok is false if there are no such jobs.
func (s Snapshot) preemptionEnds(j slurm.Job) (end time.Time, ok bool) {
	since, ok := tags.PreemptsSince(j)
	if !ok {
		return end, false
	}
	end = since
	for k := range s.Queue.All {
		if p, ok := tags.PreemptedBy(s.Queue.All[k]); ok && p.Job == j.ID && p.End.After(end) {
			end = p.End
		}
	}
	return end.Add(KeepRoom), true
}

// KeepRoom is the time for which the plan keeps the slices for a preemptor after the stopped jobs have ended. Within
// this time, the jobs' epilogs end and slurmctld starts the preemptor.
const KeepRoom = 5 * time.Minute

// Preempts reports whether the watcher is stopping other jobs to make room for a waiting job.
func (s Snapshot) Preempts(j slurm.Job) bool {
	end, ok := s.preemptionEnds(j)
	return ok && s.At.Before(end)
}

// preemptorsFirst returns an order of the queue in which the preemptors come ahead of all other jobs. Otherwise, the
// slices of the jobs that the watcher stops could be assigned to other jobs, and the watcher would have stopped the
// jobs unnecessarily.
func (s Snapshot) preemptorsFirst(order []int) []int {
	first := func(k int) bool { return s.Preempts(*s.Queue.Waiting[k].Job) }
	if !slices.ContainsFunc(order, first) {
		return order
	}
	var before, after []int
	for _, k := range order {
		if first(k) {
			before = append(before, k)
		} else {
			after = append(after, k)
		}
	}
	return append(before, after...)
}
