package papers

import (
	"cmp"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// Batches starts several jobs from the queue together, using the DynaP method (placement-aware dynamic partitioning,
// 2025). The window consists of the first W waiting jobs, where W is the number of instances that a GPU can hold (7 on
// an A100). The candidates are all subsets of the window that fit on one GPU alongside its busy slices. The candidate
// with the highest system throughput starts. Throughput is defined as
//
//	the share of the GPU's units in use x the sum of the relative speeds of all jobs on the GPU
//
// The relative speed of a job is its speed on its profile divided by its speed on a whole GPU (trace.Job.Speed), or 1
// if the job is equally fast on all profiles. The search uses branch and bound, with bounds derived from the free units
// and compute slices. Of two subsets with the same throughput, it chooses the one that contains the first job that is
// in only one of them. A job with several slices starts either on a single GPU or not at all.
//
// The search skips GPUs without free units and visits the others in ascending order, first by the fraction that is free
// and then by index. If a subset fits, its jobs start and the search begins again. The policy chooses the jobs'
// placements in a pool that contains only the visited GPU, beginning with the largest profiles. A subset does not fit
// if the policy finds no placement for one of its jobs. A job never starts if other jobs
// always yield a higher throughput. Batches requires a policy that places slices on demand.
func Batches(c *sim.Control) sim.Scheduler {
	return &batchStarter{Control: c, batches: newBatches(c.Config().GPUs, c.Config().Policy)}
}

type batchStarter struct {
	*sim.Control
	*batches
}

// Turn implements [sim.Scheduler].
func (s *batchStarter) Turn() bool {
	var queue []waiting
	for k := range min(s.Waiting(), slices.Max(s.most)) {
		j := s.Job(k)
		queue = append(queue, waiting{j.Job, j.Profiles(), s.Request(j).Duration})
	}
	speeds := make([]float64, len(s.gpus))
	for _, j := range s.Running() {
		k := j.Spots()[0].GPU
		speeds[k] += j.SpeedOn(j.Profiles()[s.kind(k)])
	}
	found := s.next(s.Situation(), queue, speeds)
	jobs := make([]*sim.Job, len(found))
	for n, m := range found {
		jobs[n] = s.Job(m.at)
	}
	for n, m := range found {
		s.Start(jobs[n], m.spots)
	}
	return len(found) > 0
}

// Left implements [sim.Scheduler].
func (*batchStarter) Left(*sim.Job) {}

// waiting is a job in the queue.
type waiting struct {
	trace.Job
	profiles []string // the requested profile on each GPU model, or an empty string
	runTime  float64  // the expected run time in seconds
}

func (w *waiting) slots() int { return max(w.Slices, 1) }

// batches searches for the subset of the queue that starts next.
type batches struct {
	gpus   []*mig.Model
	kinds  []*mig.Model
	policy place.Policy
	most   []int           // the window size W, by GPU model
	one    *place.Pool     // a pool with one GPU, in which a candidate subset is placed
	pool   *place.Pool     // all GPUs
	sit    place.Situation // the input of the policy; its pool is the field one
	queue  []waiting

	// The fields from gpu to found hold the state of the search on one GPU.
	gpu    int
	window []*member // in the order of submission
	dense  []*member // the window, sorted by speed per unit, highest first
	taken  []*member // the subset under construction
	best   float64   // the throughput of found
	found  []member  // the best subset in placement order, or empty if no subset fits
}

// member is a job in the window.
type member struct {
	*waiting
	at      int // index in the queue
	order   int // index in the window
	profile mig.Profile
	takes   resources // the resources of all of the job's slices
	speed   float64
	request place.Request
	spots   []place.Spot // the spots of the job's slices; set only in found
}

// resources is an amount of GPU resources: memory units and compute slices.
type resources struct{ units, compute int }

func (r resources) less(o resources) resources {
	return resources{r.units - o.units, r.compute - o.compute}
}

func (r resources) cover(o resources) bool { return r.units >= o.units && r.compute >= o.compute }

// throughput represents the throughput of a GPU, which is the product of the two fields. The field units is the number
// of units in use; dividing it by the GPU's total number of units would not change the order of the subsets.
type throughput struct {
	units int
	speed float64
}

func (t throughput) value() float64 { return float64(t.units) * t.speed }

func (t throughput) with(m *member) throughput {
	return throughput{t.units + m.takes.units, t.speed + m.speed}
}

// lessThroughput is the smallest relative difference at which two throughputs are considered different. Smaller
// differences may be rounding errors in the sums of speeds.
const lessThroughput = 1e-9

func newBatches(gpus []*mig.Model, policy place.Policy) *batches {
	b := &batches{gpus: gpus, kinds: sim.Kinds(gpus), policy: policy, one: place.NewPool(make([]place.GPU, 1))}
	for _, model := range b.kinds {
		most := 0
		for _, l := range model.Maximal() {
			most = max(most, l.Count())
		}
		b.most = append(b.most, most)
	}
	return b
}

// next returns the best subset, in placement order, for the first GPU on which one fits. The result is empty if no
// subset fits on any GPU. speeds contains, for each GPU, the sum of the relative speeds of its running jobs.
func (b *batches) next(sit place.Situation, queue []waiting, speeds []float64) []member {
	b.pool, b.queue, b.sit = sit.Pool, queue, sit
	b.sit.Pool = b.one
	for _, k := range b.order() {
		if b.search(k, speeds[k]); len(b.found) > 0 {
			return b.found
		}
	}
	return nil
}

// kind returns the index of a GPU's model in kinds.
func (b *batches) kind(gpu int) int { return slices.Index(b.kinds, b.gpus[gpu]) }

// order returns the GPUs in search order. Of several GPUs in the same state, it returns only the first, because each
// subset fits on all of them or on none. If the policy uses the jobs' ends, only empty GPUs are treated as equal.
func (b *batches) order() (all []int) {
	type gpuState struct {
		model        *mig.Model
		layout, idle mig.Layout
		gpu          int // set if the GPU is busy, because the policy may use the jobs' ends
	}
	seen := map[gpuState]bool{}
	for k := range b.pool.Len() {
		g := b.pool.GPU(k)
		s := gpuState{model: g.Model, layout: g.Busy, idle: g.Idle}
		if g.Busy != 0 {
			s.gpu = k
		}
		if b.pool.Info(k).Units > 0 && !seen[s] {
			seen[s] = true
			all = append(all, k)
		}
	}
	share := func(k int) float64 { return float64(b.pool.Info(k).Units) / float64(b.gpus[k].Grid) }
	slices.SortStableFunc(all, func(i, j int) int { return cmp.Compare(share(i), share(j)) })
	return all
}

// search finds the best subset for a GPU. speed is the sum of the relative speeds of the jobs that run on the GPU.
func (b *batches) search(gpu int, speed float64) {
	model, info := b.gpus[gpu], b.pool.Info(gpu)
	b.gpu = gpu
	b.inspect(model, info)
	busy := throughput{model.Grid - info.Units, speed}
	b.taken, b.found = b.taken[:0], nil
	b.best = busy.value() // the empty subset, whose throughput is lower than that of any other subset
	b.visit(0, resources{info.Units, info.Compute}, busy)
}

// inspect sets a GPU's window. Of the first W waiting jobs, it omits those that would not fit on the GPU even if no
// other waiting job started.
func (b *batches) inspect(model *mig.Model, info *mig.LayoutInfo) {
	b.window = b.window[:0]
	kind := b.kind(b.gpu)
	for at := range min(len(b.queue), b.most[kind]) {
		j := &b.queue[at]
		p, ok := model.ProfileIndex(j.profiles[kind])
		if !ok || info.Placeable(p) < j.slots() {
			continue
		}
		m := &member{waiting: j, at: at, order: len(b.window), profile: model.Profiles[p]}
		m.request = place.Request{Profile: m.profile.Name, Duration: j.runTime}
		m.takes = resources{j.slots() * m.profile.Size, j.slots() * m.profile.Compute}
		m.speed = j.SpeedOn(m.profile.Name)
		b.window = append(b.window, m)
	}
	b.dense = append(b.dense[:0], b.window...)
	slices.SortStableFunc(b.dense, func(a, c *member) int {
		return cmp.Compare(c.speed/float64(c.takes.units), a.speed/float64(a.takes.units))
	})
}

// visit extends the subset under construction with jobs from the window, beginning with the k-th job. It tries the
// subset first with the k-th job and then without it, so that subsets with earlier jobs come first. free holds the GPU
// resources that the subset does not use.
func (b *batches) visit(k int, free resources, t throughput) {
	if !b.better(b.bound(k, free, t)) {
		return
	}
	if k == len(b.window) {
		if found, ok := b.fits(); ok {
			b.best, b.found = t.value(), found
		}
		return
	}
	if m := b.window[k]; free.cover(m.takes) {
		b.taken = append(b.taken, m)
		b.visit(k+1, free.less(m.takes), t.with(m))
		b.taken = b.taken[:len(b.taken)-1]
	}
	b.visit(k+1, free, t)
}

func (b *batches) better(value float64) bool { return value > b.best*(1+lessThroughput) }

// bound returns an upper bound on the throughput of all subsets that add jobs, from the k-th job on, to a subset with
// throughput t. It assumes that the jobs with the highest speed per unit fill the free units, and that the last job may
// be added partially. If no jobs are left, bound returns t.
func (b *batches) bound(k int, free resources, t throughput) float64 {
	left := free.units
	for _, m := range b.dense {
		if left == 0 {
			break
		}
		if m.order < k {
			continue
		}
		units := min(left, m.takes.units)
		left -= units
		t.units += units
		t.speed += m.speed * float64(units) / float64(m.takes.units)
	}
	return t.value()
}

// fits asks the policy to place the subset under construction on the GPU. If all jobs fit, it returns the subset in
// placement order.
func (b *batches) fits() ([]member, bool) {
	var all []member
	for _, m := range b.taken {
		all = append(all, *m)
	}
	slices.SortStableFunc(all, func(a, c member) int {
		return cmp.Or(cmp.Compare(c.profile.Size, a.profile.Size), cmp.Compare(c.profile.Compute, a.profile.Compute))
	})
	b.one.Set(0, b.pool.GPU(b.gpu))
	for k := range all {
		m := &all[k]
		for range m.slots() {
			choice := b.policy.Choose(&b.sit, m.request)
			if choice.Verdict != place.Here {
				return nil, false
			}
			b.one.Start(0, choice.Placement, b.sit.Now+m.request.Duration)
			m.spots = append(m.spots, place.Spot{GPU: b.gpu, Placement: choice.Placement})
		}
	}
	return all, true
}
