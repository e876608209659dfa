package preempt

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// begin examines at most maxLooks waiting jobs per round and searches for room for at most maxCandidates of them.
// Examining a job visits all running jobs and members, and a search also visits all placements.
const (
	maxLooks      = 100
	maxCandidates = 8
)

// begin returns the steps that begin a preemption for the first waiting job that is allowed to preempt and for which
// room can be made by stopping jobs. The preemptor is tagged last: if the watcher is killed before that, the marked
// jobs do not belong to a preemptor, and the next round removes their marks.
func begin(r Rules, s plan.Snapshot, v *plan.View, made offer.Plan) (steps []Step) {
	running, skip := runningJobs(s), starting(s, v)
	type class struct{ partition, qos string }
	hopeless := map[class]bool{} // jobs of these classes are not allowed to preempt, whatever their priority
	looks, searches := 0, 0
	for _, k := range candidates(r, s, v, made) {
		w := v.Waiting[k]
		c := class{w.Partition, w.QOS}
		if hopeless[c] {
			continue
		}
		if looks++; looks > maxLooks {
			break
		}
		victims := allowed(r, s, *w, running)
		if len(victims) == 0 {
			highest := *w
			highest.Priority = math.MaxUint64
			hopeless[c] = len(allowed(r, s, highest, running)) == 0
			continue
		}
		if native(v, k, victims) || outranked(r, s, v, made, k) {
			continue
		}
		search := newSearch(s, v, made, k, victims)
		enough := search.enough
		search.enough = func(node int, stop []int) bool { return !skip[node] && enough(node, stop) }
		stop, ok := search.choose(v.Jobs[k])
		if ok && len(stop) > 0 {
			return mark(s, *w.Job, victims, stop, tags.Preemption{Job: w.ID})
		}
		if searches++; searches == maxCandidates {
			break
		}
	}
	return nil
}

// mark returns the steps that write the tags of the preemption to the jobs to stop and then to the preemptor.
func mark(s plan.Snapshot, w slurm.Job, victims []*slurm.Job, stop []uint32, p tags.Preemption) (steps []Step) {
	for _, j := range victims {
		if slices.Contains(stop, j.ID) {
			comment := tags.WithPreemption(*j, p)
			steps = append(steps, Step{Do: Tag, Job: *j, Comment: comment, For: w.ID, Move: p.Move})
		}
	}
	return append(steps, Step{Do: Tag, Job: w, Comment: tags.WithPreempts(w, s.At), For: w.ID})
}

// starting returns the members on which a job has slices that the agent has not published yet. Their published state
// shows room that does not exist, so a preemption that begins there would be abandoned in the next round.
func starting(s plan.Snapshot, v *plan.View) map[int]bool {
	type run struct {
		job    uint32
		member int
	}
	published := map[run]bool{}
	for at, id := range v.Holders() {
		published[run{id, v.Pool.GPU(at.GPU).Node}] = true
	}
	members := map[int]bool{}
	for k := range s.Queue.All {
		j := &s.Queue.All[k]
		if !j.Holds() || len(j.SlicesPerNode()) == 0 {
			continue
		}
		for _, name := range j.Nodes {
			if m := v.Member(name); m >= 0 && !published[run{j.ID, m}] {
				members[m] = true
			}
		}
	}
	return members
}

// runningJobs returns the jobs that could be stopped by a preemption.
func runningJobs(s plan.Snapshot) (running []*slurm.Job) {
	for k := range s.Queue.All {
		if j := &s.Queue.All[k]; j.State == "RUNNING" {
			running = append(running, j)
		}
	}
	return running
}

// allowed returns the jobs that the rules allow to be stopped for w.
func allowed(r Rules, s plan.Snapshot, w slurm.Waiting, jobs []*slurm.Job) (victims []*slurm.Job) {
	for _, j := range jobs {
		if r.May(w, *j, s.At) {
			victims = append(victims, j)
		}
	}
	return victims
}

// candidates returns the indices of the waiting jobs that could preempt, in the order in which slurmctld considers
// them: by partition tier, and then in the order of the plan. Jobs that slurmctld did not start even though their
// slices were offered would not start on the slices of stopped jobs either.
func candidates(r Rules, s plan.Snapshot, v *plan.View, made offer.Plan) (all []int) {
	failed := failedUsers(s)
	for k, w := range v.Waiting {
		repeated := k > 0 && v.Waiting[k-1].ID == w.ID
		if !repeated && made.Spots[k] == nil && !failed[w.UID] && !v.Behind(k) && mayBegin(*w) {
			all = append(all, k)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(r.Tier(*v.Waiting[b]), r.Tier(*v.Waiting[a])) })
	return all
}

// mayBegin reports whether slurmctld has considered the job and did not start it only because nodes or GRES were
// lacking. With the reasons None and Priority, slurmctld may not have checked the job's limits yet.
func mayBegin(w slurm.Waiting) bool {
	return eligible.WaitsForNodes(w) && w.Reason != "None" && w.Reason != "Priority" && !w.Exclusive && w.HetJob == 0
}

// failedUsers returns the users who own a job for which other jobs were stopped but which has not started. Such a job
// is still waiting, for whatever reason, or ended before it started. As long as slurmctld still shows such a job, no
// other job is stopped on behalf of its user.
func failedUsers(s plan.Snapshot) map[uint32]bool {
	type tag struct {
		array uint32
		text  string
	}
	tagOf := func(j *slurm.Job) tag { return tag{j.ArrayJob, tags.Value(j.AdminComment, tags.Preempts)} }
	started := map[tag]bool{} // arrays with a tagged task that has started
	for k := range s.Queue.All {
		j := &s.Queue.All[k]
		if t := tagOf(j); t.array != 0 && t.text != "" && (!tags.HasPreempted(*j) || !unused(*j)) {
			started[t] = true
		}
	}
	failed := map[uint32]bool{}
	for k := range s.Queue.All {
		if j := &s.Queue.All[k]; tags.HasPreempted(*j) && unused(*j) && !started[tagOf(j)] {
			failed[j.UID] = true
		}
	}
	return failed
}

// unused reports whether a job has not started since it was last requeued.
func unused(j slurm.Job) bool {
	return j.State == "PENDING" || !j.Holds() && j.State != "COMPLETING" && len(j.Nodes) == 0
}

// outranked reports whether slurmctld would start another waiting job in the room that is made for the k-th job. Such a
// job has no spots, shares a profile with the k-th job, does not need more nodes, and is considered by slurmctld before
// the k-th job.
func outranked(r Rules, s plan.Snapshot, v *plan.View, made offer.Plan, k int) bool {
	place := map[uint32]int{} // in slurmctld's order, which the plan changes
	for at, w := range s.Queue.Waiting {
		place[w.ID] = at
	}
	j, w := v.Jobs[k], v.Waiting[k]
	for i, o := range v.Jobs {
		first := v.Waiting[i]
		if i > 0 && v.Waiting[i-1].ID == first.ID && made.Spots[i-1] == nil { // another task of an array
			continue
		}
		if place[first.ID] >= place[w.ID] || first.Priority == 0 || made.Spots[i] != nil || v.Behind(i) {
			continue
		}
		if o.SharesProfile(j) && max(o.Nodes, 1) <= max(j.Nodes, 1) && overlap(o.EligibleNodes, j.EligibleNodes) &&
			!r.Precedes(*w, *first) {
			return true
		}
	}
	return false
}

// overlap reports whether two ascending sets of members have an element in common. A nil set contains all members.
func overlap(a, b []int) bool {
	if a == nil || b == nil {
		return true
	}
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			return true
		case a[0] < b[0]:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return false
}

// native reports whether slurmctld itself can preempt jobs for the k-th waiting job, because enough of the victims hold
// slices of the requested profiles.
func native(v *plan.View, k int, victims []*slurm.Job) bool {
	held := map[string]map[string]int{} // the victims' slices by node and profile
	for _, j := range victims {
		for _, name := range j.Nodes {
			for _, g := range j.SlicesPerNode() {
				if held[name] == nil {
					held[name] = map[string]int{}
				}
				held[name][g.Type] += g.Count
			}
		}
	}
	count := 0
	for m, n := range v.Members {
		if e := v.Jobs[k].EligibleNodes; e != nil && !slices.Contains(e, m) {
			continue
		}
		free := n.Free("mig")
		if !slices.ContainsFunc(v.Jobs[k].Wants, func(w offer.Want) bool {
			return free[w.Profile]+held[n.Name][w.Profile] < w.Count
		}) {
			count++
		}
	}
	return count >= max(v.Jobs[k].Nodes, 1)
}

// newSearch prepares the search for room for the k-th waiting job. Slices of jobs that have ended are considered free.
// slurmctld frees a job's CPUs and memory when the job becomes COMPLETING (deallocate_nodes, 22.05.8 to 26.05.3).
func newSearch(s plan.Snapshot, v *plan.View, made offer.Plan, k int, victims []*slurm.Job) victimSearch {
	jobs := map[uint32]*slurm.Job{}
	for k := range s.Queue.All {
		jobs[s.Queue.All[k].ID] = &s.Queue.All[k]
	}
	spots, ended := holders(v, jobs)
	search := victimSearch{cluster: clusterFor(v, ended, slices.Concat(made.Spots[:k]...))}
	for _, j := range victims {
		if spots[j.ID] != nil {
			lost := s.At.Sub(j.Start).Seconds()
			search.victims = append(search.victims, victim{id: j.ID, spots: spots[j.ID], lost: lost})
		}
	}
	search.enough = func(node int, stop []int) bool {
		n := v.Members[node]
		cpus, memory := eligible.Share(n, *v.Waiting[k])
		cpus, memory = cpus-n.CPUsFree, memory-n.MemoryFree
		for _, k := range stop {
			if j := jobs[search.victims[k].id]; slices.Contains(j.Nodes, n.Name) {
				cpus -= j.CPUs / max(j.NumNodes, 1)
				memory -= j.Memory / max(j.NumNodes, 1)
			}
		}
		return (n.CPUs == 0 || cpus <= 0) && memory <= 0
	}
	return search
}

// holders returns the slices that each job holds, and the slices whose jobs have ended.
func holders(v *plan.View, jobs map[uint32]*slurm.Job) (spots map[uint32][]offer.Spot, ended map[offer.Spot]bool) {
	spots, ended = map[uint32][]offer.Spot{}, map[offer.Spot]bool{}
	for at, id := range v.Holders() {
		m := v.Pool.GPU(at.GPU).Node
		if j := jobs[id]; j == nil || !j.Holds() || !slices.Contains(j.Nodes, v.Members[m].Name) {
			ended[at] = true
			continue
		}
		spots[id] = append(spots[id], at)
	}
	return spots, ended
}

// clusterFor returns the state of the cluster in which the slices on the spots in ended are free and the spots that are
// planned for earlier waiting jobs are busy.
func clusterFor(v *plan.View, ended map[offer.Spot]bool, earlier []offer.Spot) *offer.Cluster {
	planned := map[int][]int{} // placements by GPU
	for _, at := range earlier {
		planned[at.GPU] = append(planned[at.GPU], at.Placement)
	}
	var nodes [][]place.GPU
	for _, on := range v.Nodes {
		var gpus []place.GPU
		for _, k := range on {
			g := v.Pool.GPU(k)
			for i := range g.Busy.Indices() {
				if ended[offer.Spot{GPU: k, Placement: i}] {
					g.Busy = g.Busy.Without(i)
				}
			}
			for _, i := range planned[k] {
				g.Hold(i, math.Inf(1))
			}
			gpus = append(gpus, g)
		}
		nodes = append(nodes, gpus)
	}
	c := offer.NewCluster(v.Policy, nodes...)
	c.Now, c.Making = v.Now, v.Making
	return c
}
