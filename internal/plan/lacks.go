package plan

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"caelum/internal/offer"
	"caelum/internal/slurm"
)

// A job that lacks CPUs or memory on a node, while its slices are free there, has them kept only if it is expected to
// start within patience: longer than that, nobody could use them who runs longer. The expectation can be wrong, or
// made by the job's own user, so each user has an account of the time for which room was kept: after patience in all
// none is kept for the user's jobs for standsBack, and each time for twice as long, up to longestBack.
const longestBack = 24 * time.Hour

// occupant is a running job on a node.
type occupant struct {
	end          float64 // when it is expected to end, in seconds; +Inf: unknown
	cpus, memory int     // what it has there, taken to be the same on all its nodes
	slices       bool    // whether it has slices
}

// occupants lists the jobs that hold CPUs and memory, by node and in the order of their expected ends.
func occupants(jobs []slurm.Job, now float64) map[string][]occupant {
	all := map[string][]occupant{}
	for _, j := range jobs {
		if !j.Holds() {
			continue
		}
		nodes := max(len(j.Nodes), 1)
		o := occupant{end: math.Inf(1), cpus: j.CPUs / nodes, memory: j.Memory / nodes}
		o.slices = len(j.SlicesPerNode()) > 0
		if d := j.Expected(); d > 0 && !j.Start.IsZero() {
			if o.end = float64(j.Start.Unix()) + d.Seconds(); o.end <= now {
				o.end = now + overdue
			}
		}
		for _, n := range j.Nodes {
			all[n] = append(all[n], o)
		}
	}
	for _, on := range all {
		slices.SortStableFunc(on, func(a, b occupant) int { return cmp.Compare(a.end, b.end) })
	}
	return all
}

// lacks notes what becomes of the slices of a job on a member on which it lacks something else. Room that is free is
// kept if the job is expected to start there soon. Room that is still busy is reserved if the jobs with slices there
// leave what it lacks when they end: what other jobs have, their user could have again before the job starts.
func (v *View) lacks(job *offer.Job, w slurm.Waiting, member int) {
	n := v.Members[member]
	cpus, memory := n.Share(w)
	free := func(count func(occupant) bool) float64 {
		cpus, memory := cpus-n.CPUsFree, memory-n.MemoryFree
		if cpus <= 0 && memory <= 0 {
			return v.Now
		}
		for _, o := range v.running[n.Name] {
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
	if n.LacksGRES(w) && !slices.ContainsFunc(v.running[n.Name], func(o occupant) bool { return o.slices }) {
		job.Unkept = append(job.Unkept, member) // no job's end changes that count
		return
	}
	if v.unkept[w.UID] && free(func(occupant) bool { return false }) > v.Now {
		job.Unkept = append(job.Unkept, member)
		return
	}
	ready := free(func(occupant) bool { return true })
	if ready > v.Now+patience.Seconds() {
		job.Unkept = append(job.Unkept, member)
	} else {
		set(&job.Ready, member, ready)
	}
	if after := free(func(o occupant) bool { return o.slices }); !math.IsInf(after, 1) {
		set(&job.After, member, after)
	}
}

func set(times *map[int]float64, member int, at float64) {
	if *times == nil {
		*times = map[int]float64{}
	}
	(*times)[member] = at
}

// account is for how long room has been kept for a user's jobs that lacked something else than slices.
type account struct {
	kept  time.Duration
	last  time.Time     // when room was last kept
	until time.Time     // until when none is kept
	back  time.Duration // for how long none is kept the next time
}

// gap is the longest time between two plans that counts as time for which room was kept.
const gap = 2 * time.Minute

// charge notes for which user a plan keeps room.
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
			a.back = min(max(2*a.back, standsBack), longestBack)
			a.kept, a.until = 0, at.Add(a.back)
		}
		u.users[uid] = a
	}
	maps.DeleteFunc(u.users, func(_ uint32, a account) bool { return at.Sub(a.last) > longestBack })
}

// unkept returns the users for whose jobs no room is kept at this time.
func (u *Unstarted) unkept(at time.Time) map[uint32]bool {
	users := map[uint32]bool{}
	for uid, a := range u.users {
		if at.Before(a.until) {
			users[uid] = true
		}
	}
	return users
}
