package preempt

import (
	"maps"
	"math"
	"slices"
	"time"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/plan"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// restartDelay is the time after a requeue before which slurmctld does not start the job (_job_requeue_op in job_mgr.c
// sets the begin time; 22.05.8).
const restartDelay = 121 * time.Second

// A round checks at least minChecks sets of jobs and, on small clusters, as many as copy the state of checkedGPUs GPUs,
// because each check copies the state of the whole cluster: 4 ms for 1,024 nodes with eight GPUs each. On a large
// cluster, the search begins at another group of groupSize nodes every groupSeconds.
const (
	minChecks    = 16
	checkedGPUs  = 200_000
	groupSize    = 16
	groupSeconds = 5
)

// beginMove returns the steps that begin a move for the first waiting job. Moves are the last resort (DynaP's
// reconfiguration-last, see contrib/lab/reconfigure): the waiting job cannot start, slurmctld's rules allow no
// preemption for it, and waiting would take longer than the run time that the moved jobs lose and the delay of their
// restart.
func beginMove(r Rules, c Settings, s plan.Snapshot, v *plan.View, made offer.Plan) []Step {
	k, wait, ok := v.FirstWait(made)
	if !ok {
		return nil
	}
	w := v.Waiting[k]
	repeated := k > 0 && v.Waiting[k-1].ID == w.ID
	if repeated || v.Behind(k) || !mayBegin(*w) || failedUsers(s)[w.UID] {
		return nil
	}
	running := runningJobs(s)
	victims := allowed(r, s, *w, running)
	if native(v, k, victims) || outranked(r, s, v, made, k) {
		return nil
	}
	if c.Preempt && canPreempt(s, v, made, k, victims) {
		return nil // a node of the jobs to stop has not published their slices yet
	}
	movable := slices.DeleteFunc(running, func(j *slurm.Job) bool {
		return !tags.MovableRun(*j) || !c.movable(*j, s.At)
	})
	if len(movable) == 0 {
		return nil
	}
	m := newMoves(s, v, made, k, movable)
	m.skip, m.maxLost = starting(s, v), wait-restartDelay.Seconds()
	groups := (len(v.Members) + groupSize - 1) / groupSize
	m.first = int(s.At.Unix()/groupSeconds) % groups * groupSize
	stop, ok := m.choose()
	if !ok || len(stop) == 0 {
		return nil
	}
	return mark(s, *w.Job, movable, stop, tags.Preemption{Job: w.ID, Move: true})
}

// canPreempt reports whether stopping some of the victims would make room for the k-th waiting job.
func canPreempt(s plan.Snapshot, v *plan.View, made offer.Plan, k int, victims []*slurm.Job) bool {
	if len(victims) == 0 {
		return false
	}
	stop, ok := newSearch(s, v, made, k, victims).choose(v.Jobs[k])
	return ok && len(stop) > 0
}

// movable reports whether a running job may be moved: it can be requeued, its user or its partition permits moves, and
// it would meet its deadline. Jobs that use licences are left out, because other jobs could get the licences.
func (c Settings) movable(j slurm.Job, now time.Time) bool {
	latest := j.LatestStart()
	mig := j.SlicesPerNode()
	return j.State == "RUNNING" && j.Batch && j.Requeue && j.Problem == "" && !j.Exclusive && j.HetJob == 0 &&
		len(j.Nodes) == 1 && len(mig) == 1 && mig[0].Count == 1 && j.Licenses == "" && !j.Start.IsZero() &&
		c.Permits(j) && (latest.IsZero() || !latest.Before(now.Add(restartDelay)))
}

// Permits reports whether a job's user or its partition permits moves of the job.
func (c Settings) Permits(j slurm.Job) bool {
	return tags.PermitsMove(j) || slices.Contains(c.Partitions, j.Partition)
}

// runTimeLost returns the run time that a job loses if it is requeued now, in seconds.
func runTimeLost(j slurm.Job, now time.Time) float64 {
	return now.Sub(tags.SavedUntil(j, now)).Seconds()
}

// Refuse returns the steps that end a move because the site's move_command did not permit it for some of the jobs.
// refused contains the steps that would stop these jobs. Their current runs are not moved later either.
func Refuse(s plan.Snapshot, refused []Step) (steps []Step) {
	for _, r := range refused {
		steps = append(steps, Step{Do: Tag, Job: r.Job, Comment: tags.WithoutMoves(r.Job), For: r.For})
	}
	for _, j := range s.Queue.All {
		if j.ID == refused[0].For {
			steps = append(steps, Step{Do: Tag, Job: j, Comment: tags.WithoutPreempts(j), For: j.ID})
		}
	}
	return steps
}

// moves is a search for jobs to move for the k-th waiting job.
type moves struct {
	s      plan.Snapshot
	v      *plan.View
	made   offer.Plan
	k      int
	jobs   map[uint32]*slurm.Job
	spots  map[uint32][]offer.Spot // the slices that each job holds
	ended  map[offer.Spot]bool     // the slices whose jobs have ended
	search victimSearch
	fits   int // the number of remaining checks (see minChecks)
	first  int // the first node on which jobs may be moved

	skip    map[int]bool // members on which no move may begin
	maxLost float64      // the maximum total run time that the moved jobs lose, in seconds
}

func newMoves(s plan.Snapshot, v *plan.View, made offer.Plan, k int, movable []*slurm.Job) *moves {
	m := &moves{s: s, v: v, made: made, k: k, jobs: map[uint32]*slurm.Job{}, maxLost: math.Inf(1)}
	m.fits = max(minChecks, checkedGPUs/max(v.Pool.Len(), 1))
	for k := range s.Queue.All {
		m.jobs[s.Queue.All[k].ID] = &s.Queue.All[k]
	}
	m.spots, m.ended = holders(v, m.jobs)
	m.search = newSearch(s, v, made, k, movable)
	for k := range m.search.victims {
		m.search.victims[k].lost = runTimeLost(*m.jobs[m.search.victims[k].id], s.At)
	}
	return m
}

// choose returns the jobs to move. ok is false if moving jobs does not make room for the waiting job.
func (m *moves) choose() (stop []uint32, ok bool) {
	enough := m.search.enough
	search := m.search
	search.enough = func(node int, stop []int) bool {
		var ids []uint32
		for _, k := range stop {
			ids = append(ids, search.victims[k].id)
		}
		return node >= m.first && !m.skip[node] && enough(node, stop) && m.worthwhile(search.lost(stop)) &&
			m.fitElsewhere(ids)
	}
	stop, ok = search.choose(m.v.Jobs[m.k])
	if !ok || max(m.v.Jobs[m.k].Nodes, 1) == 1 {
		return stop, ok
	}
	total := 0.0
	for _, id := range stop {
		total += runTimeLost(*m.jobs[id], m.s.At)
	}
	return stop, m.worthwhile(total) && m.fitElsewhere(stop)
}

func (m *moves) worthwhile(lost float64) bool { return lost <= m.maxLost }

// fitElsewhere reports whether the moved jobs fit on free units beside the waiting job, the other running jobs and the
// jobs that the plan starts now. Otherwise, a move would only exchange the waiting job for another one.
func (m *moves) fitElsewhere(stop []uint32) bool {
	if len(stop) == 0 {
		return true
	}
	if m.fits--; m.fits < 0 {
		return false
	}
	free := maps.Clone(m.ended)
	spare := newSpare(m.v, m.made)
	for _, id := range stop {
		for _, at := range m.spots[id] {
			free[at] = true
		}
		spare.add(*m.jobs[id])
	}
	others := slices.Concat(slices.Concat(m.made.Spots[:m.k]...), slices.Concat(m.made.Spots[m.k+1:]...))
	cluster := clusterFor(m.v, free, others)
	if !spare.place(cluster, m.v.Jobs[m.k], *m.v.Waiting[m.k], nil) {
		return false
	}
	for _, id := range stop {
		w := slurm.Waiting{Job: m.jobs[id], Elements: 1}
		if !spare.place(cluster, plan.Job(w), w, eligible.Accepts) {
			return false
		}
	}
	return true
}

// spare contains the CPUs and the memory (MiB) that are free on each member beside the jobs that the plan starts now.
type spare struct {
	v            *plan.View
	cpus, memory []int
}

func newSpare(v *plan.View, made offer.Plan) spare {
	f := spare{v, make([]int, len(v.Members)), make([]int, len(v.Members))}
	for m, n := range v.Members {
		f.cpus[m], f.memory[m] = n.CPUsFree, n.MemoryFree
	}
	for k, spots := range made.Spots {
		f.take(v.On(spots), *v.Waiting[k])
	}
	return f
}

// add adds the resources of a running job, which has one node.
func (f spare) add(j slurm.Job) {
	if m := f.v.Member(j.Nodes[0]); m >= 0 {
		f.cpus[m] += j.CPUs
		f.memory[m] += j.Memory
	}
}

// take removes the resources that a waiting job needs on the named nodes.
func (f spare) take(nodes []string, w slurm.Waiting) {
	for _, name := range nodes {
		m := f.v.Member(name)
		cpus, memory := eligible.Share(f.v.Members[m], w)
		f.cpus[m] -= cpus
		f.memory[m] -= memory
	}
}

// place finds spots for a job in the cluster on members that are not powered down and have enough free CPUs and memory,
// and marks the spots and the resources as used. accepts is nil if j contains the members on which the job can run.
func (f spare) place(
	c *offer.Cluster, j *offer.Job, w slurm.Waiting, accepts func(slurm.Node, slurm.Waiting) bool,
) bool {
	one := *j
	one.EligibleNodes, one.DeferredNodes, one.NoOfferNodes, one.Wants = []int{}, nil, nil, slices.Clone(j.Wants)
	for k := range one.Wants {
		one.Wants[k].Sizes = nil
	}
	for m, n := range f.v.Members {
		cpus, memory := eligible.Share(n, w)
		suitable := accepts == nil && (j.EligibleNodes == nil || slices.Contains(j.EligibleNodes, m)) ||
			accepts != nil && accepts(n, w)
		if suitable && !eligible.PoweredDown(n) && cpus <= f.cpus[m] && memory <= f.memory[m] {
			one.EligibleNodes = append(one.EligibleNodes, m)
		}
	}
	spots, _ := c.Find(&one, nil)
	for _, at := range spots {
		c.Occupy(at, c.Now+j.RunTime)
	}
	f.take(f.v.On(spots), w)
	return spots != nil
}
