package plan

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// maxPause is the maximum time for which reservations are suspended for a user's jobs that lack CPUs or memory.
//
// If a job lacks CPUs or memory on a node where its slices are free, the plan reserves the slices only if the job is
// expected to start within patience. While they are reserved, jobs with longer run times cannot use them. The expected
// start can be wrong, and the job's user can influence it. The agent therefore adds up, for each user, the time during
// which slices were reserved. When the sum exceeds patience, the user's jobs that lack CPUs or memory are not given
// reservations for backTime. Each further suspension is twice as long as the previous one, up to maxPause.
const maxPause = 24 * time.Hour

// occupant is a job that is running on a node.
type occupant struct {
	end          float64 // the job's expected end, in seconds; +Inf if unknown
	cpus, memory int     // CPUs and memory (MiB) on the node, assumed to be equal on all nodes of the job
	slices       bool    // true if the job holds slices
}

// occupants returns the CPUs and memory that a node's jobs hold, ordered by expected end.
func occupants(jobs []*slurm.Job, now time.Time) []occupant {
	all := make([]occupant, 0, len(jobs))
	for _, j := range jobs {
		nodes := max(len(j.Nodes), 1)
		o := occupant{end: math.Inf(1), cpus: j.CPUs / nodes, memory: j.Memory / nodes}
		o.slices = len(j.SlicesPerNode()) > 0
		if at := tags.ExpectedEnd(*j, 1, now); !at.IsZero() {
			if o.end = float64(at.Unix()); !at.After(now) {
				o.end = float64(now.Unix() + overdue)
			}
		}
		if p, ok := tags.PreemptedBy(*j); ok {
			o.end = max(float64(now.Unix()+stopping), float64(p.End.Unix()))
		}
		all = append(all, o)
	}
	slices.SortStableFunc(all, func(a, b occupant) int { return cmp.Compare(a.end, b.end) })
	return all
}

// setLacking determines how the plan treats a job's slices on a member where the job lacks other resources. member is
// an index into v.Members. The plan reserves free slices if the job is expected to start there soon, and busy slices if
// the jobs that hold slices there will release enough CPUs and memory. CPUs and memory that jobs without slices will
// release do not count, because they could be allocated to new jobs first.
func (v *View) setLacking(job *offer.Job, w *slurm.Waiting, member int) {
	n := v.Members[member]
	cpus, memory := eligible.Share(n, *w)
	free := func(count func(occupant) bool) float64 {
		cpus, memory := cpus-n.CPUsFree, memory-n.MemoryFree
		if cpus <= 0 && memory <= 0 {
			return v.Now
		}
		for _, o := range v.known[member].occupants(v.now) {
			if !count(o) {
				continue
			}
			cpus, memory = cpus-o.cpus, memory-o.memory
			if cpus <= 0 && memory <= 0 {
				return o.end
			}
		}
		return math.Inf(1)
	}
	ofSlices := func(o occupant) bool { return o.slices }
	if eligible.LacksGRES(n, *w) && !slices.ContainsFunc(v.known[member].occupants(v.now), ofSlices) {
		job.NoOfferNodes = append(job.NoOfferNodes, member) // slurmctld does not reduce the used count when a job ends
		return
	}
	if v.paused[w.UID] && free(func(occupant) bool { return false }) > v.Now {
		job.NoOfferNodes = append(job.NoOfferNodes, member)
		return
	}
	ready := free(func(occupant) bool { return true })
	if ready > v.Now+patience.Seconds() {
		job.NoOfferNodes = append(job.NoOfferNodes, member)
	} else {
		set(&job.ReadyAt, member, ready)
	}
	if after := free(ofSlices); !math.IsInf(after, 1) {
		set(&job.FreedAt, member, after)
	}
}

func set(times *map[int]float64, member int, at float64) {
	if *times == nil {
		*times = map[int]float64{}
	}
	(*times)[member] = at
}

// account records how long slices were reserved for a user's jobs while these jobs lacked other resources.
type account struct {
	kept  time.Duration
	last  time.Time     // the last time at which slices were reserved
	until time.Time     // the time until which no slices are reserved
	pause time.Duration // the duration of the last suspension
}

// gap is the maximum amount of time between two plans that counts as reservation time.
const gap = 2 * time.Minute

// charge adds reservation time to the account of the user for whom a plan reserves slices. at is the time of the plan.
func (u *Unstarted) charge(v *View, p offer.Plan, at time.Time) {
	if p.Kept != nil && p.Kept.At > v.Now {
		if u.users == nil {
			u.users = map[uint32]account{}
		}
		uid := v.Waiting[p.Kept.Job].UID
		a := u.users[uid]
		if since := at.Sub(a.last); since < gap {
			a.kept += since
		}
		if a.last = at; a.kept > patience {
			a.pause = min(max(2*a.pause, backTime), maxPause)
			a.kept, a.until = 0, at.Add(a.pause)
		}
		u.users[uid] = a
	}
	maps.DeleteFunc(u.users, func(_ uint32, a account) bool { return at.Sub(a.last) > maxPause })
}

// paused returns the users for whose jobs reservations are suspended at the given time.
func (u *Unstarted) paused(at time.Time) map[uint32]bool {
	users := map[uint32]bool{}
	for uid, a := range u.users {
		if at.Before(a.until) {
			users[uid] = true
		}
	}
	return users
}
