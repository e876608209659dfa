package offer

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// Reservation holds the spots that are reserved for the first job that cannot start, as in EASY backfill. Another job
// can use them if it ends before the reservation begins.
type Reservation struct {
	Job   int     // the index of the job in the queue
	At    float64 // expected start in seconds; +Inf if unknown, in which case no spots are reserved
	Spots []Spot  // the spots that are reserved from At on

	Beside *Reservation // another job's reservation that also applies, or nil
}

// Reserve returns the reservation with the earliest spots for a job for which Find returned no spots. why is the choice
// that Find returned.
func (c *Cluster) Reserve(j *Job, why place.Choice) *Reservation {
	if why.Verdict == place.Hold {
		return &Reservation{
			At:    c.Pool.FreeAt(why.GPU, why.Placement),
			Spots: []Spot{{GPU: why.GPU, Placement: why.Placement}},
		}
	}
	var nodes []*Reservation
	if j.slices() == 1 && j.EligibleNodes == nil && len(j.DeferredNodes) == 0 {
		nodes = []*Reservation{c.firstOfAll(j.Wants[0])}
	} else {
		for _, n := range c.nodesOf(j) {
			later := slices.Contains(j.DeferredNodes, n)
			after, known := j.FreedAt[n]
			if later && !known {
				continue
			}
			// Reserving spots that become free before the job can start would leave them unused. lend.go handles such
			// spots.
			if r := c.first(c.Nodes[n], j); r != nil && (!later || after <= r.At && r.At > c.Now) {
				nodes = append(nodes, r)
			}
		}
	}
	nodes = slices.DeleteFunc(nodes, func(r *Reservation) bool { return r == nil })
	slices.SortStableFunc(nodes, func(a, b *Reservation) int { return cmp.Compare(a.At, b.At) })
	r := &Reservation{At: math.Inf(1)}
	if n := j.nodes(); n <= len(nodes) {
		for _, on := range nodes[:n] {
			r.At, r.Spots = on.At, append(r.Spots, on.Spots...)
		}
	}
	return r
}

// ReserveAll returns the reservation with the earliest spots for jobs that start together and for which FindAll
// returned no spots. why is the choice that FindAll returned.
func (c *Cluster) ReserveAll(jobs []*Job, why place.Choice) *Reservation {
	if len(jobs) == 1 {
		return c.Reserve(jobs[0], why)
	}
	on := alike(jobs, func(j *Job, n int) *Reservation {
		spots, _ := c.Find(j.onNode(n), nil)
		if spots == nil {
			return c.Reserve(j.onNode(n), place.Choice{})
		}
		return &Reservation{At: c.Now, Spots: spots}
	})
	var times []float64
	for k, j := range jobs {
		for _, n := range c.nodesNow(j) {
			times = append(times, on(k, n).At)
		}
	}
	slices.Sort(times)
	times = slices.DeleteFunc(slices.Compact(times), func(at float64) bool { return math.IsInf(at, 1) })
	found := func(at float64) [][]Spot {
		return c.AssignNodes(jobs, func(k, n int) []Spot {
			if on(k, n).At > at {
				return nil
			}
			return on(k, n).Spots
		})
	}
	// The set of free spots only grows with time, so bisection finds the earliest time. The exception is a het job
	// whose components slurmctld would start on nodes other than those that AssignNodes chose: found may then succeed
	// for one time and fail for a later one, so the reservation begins later than necessary.
	first := sort.Search(len(times), func(i int) bool { return found(times[i]) != nil })
	if first == len(times) {
		return &Reservation{At: math.Inf(1)}
	}
	return &Reservation{At: times[first], Spots: slices.Concat(found(times[first])...)}
}

// first returns the reservation with the earliest spots on the given GPUs for the slices that a job needs on one
// node, or nil if they never fit.
func (c *Cluster) first(gpus []int, j *Job) *Reservation {
	if j.severalFractions() {
		return nil
	}
	r := &Reservation{At: c.Now}
	taken := map[int]mig.Layout{}
	for _, w := range c.bySize(j.Wants) {
		all := c.slots(gpus, w, j.slices() == 1)
		for range w.Count {
			k := slices.IndexFunc(
				all,
				func(x freeSlot) bool { return c.Pool.GPU(x.GPU).Model.Fits(taken[x.GPU], x.Placement) },
			)
			if k < 0 {
				return nil
			}
			x := all[k]
			taken[x.GPU] = taken[x.GPU].With(x.Placement)
			r.At, r.Spots = max(r.At, x.free), append(r.Spots, x.Spot)
		}
		if c.linked && w.Profile == mig.Full && w.Count > 1 {
			c.connectReserved(r.Spots[len(r.Spots)-w.Count:], all, r.At, taken)
		}
	}
	return r
}

// firstOfAll returns the reservation with the earliest spot on any GPU for a job that needs a single slice, or nil if
// the slice never fits. Because most plans call it several hundred times, it caches each GPU's earliest spot.
func (c *Cluster) firstOfAll(w Want) *Reservation {
	key := strings.Join(w.profiles(), "\x00")
	e := c.earliest[key]
	if e == nil || e.pool != c.Pool || e.now > c.Now {
		n := c.Pool.Len()
		e = &earliest{pool: c.Pool, now: c.Now, free: make([]float64, n), at: make([]int, n),
			first: make([]int, (n+blockSize-1)/blockSize)}
		if c.earliest == nil {
			c.earliest = map[string]*earliest{}
		}
		c.earliest[key] = e
	}
	search := func(k int) {
		e.free[k], e.at[k] = math.Inf(1), -1
		for _, s := range c.slots([]int{k}, w, true) {
			e.free[k], e.at[k] = s.free, s.Placement
		}
		e.first[k/blockSize] = -1
	}
	c.Pool.ChangedSince(e.seen, search)
	e.seen = c.Pool.Changes()
	e.overdue(c.Now, search)
	found := -1
	for i := range e.first {
		if e.first[i] < 0 {
			e.setFirst(i)
		}
		if k := e.first[i]; found < 0 || e.before(k, found) {
			found = k
		}
	}
	if found < 0 || e.at[found] < 0 {
		return nil
	}
	return &Reservation{At: e.free[found], Spots: []Spot{{GPU: found, Placement: e.at[found]}}}
}

// earliest holds, for each GPU in a pool, the earliest spot for one slice and the time at which that spot becomes free.
// The placement's index is -1 if the slice never fits on the GPU.
type earliest struct {
	pool  *place.Pool
	now   float64
	seen  uint64 // the number of changes to the pool that have been taken into account
	free  []float64
	at    []int
	first []int // for each block of GPUs, the GPU with the earliest spot, or -1 after a change
}

// overdue updates e.now. It calls search for each GPU whose earliest spot should have become free before this time. The
// earliest spots of the other GPUs do not depend on the time.
func (e *earliest) overdue(now float64, search func(k int)) {
	if e.now == now {
		return
	}
	e.now = now
	for i, first := range e.first {
		if first >= 0 && e.free[first] >= now {
			continue
		}
		for k := i * blockSize; k < min(len(e.free), (i+1)*blockSize); k++ {
			if e.free[k] < now {
				search(k)
			}
		}
	}
}

// blockSize is the number of GPUs in a block. A search visits every block, but it visits the GPUs only in blocks that
// have changed.
const blockSize = 64

// before reports whether GPU a's spot becomes free before GPU b's, where GPU b has the lower index.
func (e *earliest) before(a, b int) bool {
	return e.free[a] < e.free[b] || e.at[b] < 0 && e.at[a] >= 0
}

// setFirst sets first for a block.
func (e *earliest) setFirst(block int) {
	found := block * blockSize
	for k := found + 1; k < min(len(e.free), (block+1)*blockSize); k++ {
		if e.before(k, found) {
			found = k
		}
	}
	e.first[block] = found
}

// freeSlot is a spot and the time, in seconds, at which it becomes free.
type freeSlot struct {
	Spot
	free float64
}

// slots returns the placements on the given GPUs that are suitable for w, in the order in which they become free. If
// single is true, it returns only the first busy one, because the job needs no other slice and the policy has
// rejected the free ones.
func (c *Cluster) slots(gpus []int, w Want, single bool) (all []freeSlot) {
	names := w.profiles()
	for _, g := range gpus {
		b := c.Pool.GPU(g).Model
		if b == nil {
			continue
		}
		for p := range b.Profiles {
			if !slices.Contains(names, b.Profiles[p].Name) {
				continue
			}
			of := b.OfProfile(p)
			if single {
				of &^= c.Pool.Info(g).Open
			}
			for i := range of.Indices() {
				s := freeSlot{Spot{GPU: g, Placement: i}, max(c.Now, c.Pool.FreeAt(g, i))}
				switch {
				case single && len(all) > 0 && s.free >= all[0].free || !c.offerable(s.Spot):
				case single:
					all = append(all[:0], s)
				default:
					all = append(all, s)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b freeSlot) int { return cmp.Compare(a.free, b.free) })
	return all
}

// withhold blocks the reserved spots until the function that it returns is called.
func (c *Cluster) withhold(r *Reservation) func() {
	if math.IsInf(r.At, 1) {
		return func() {}
	}
	var saved []place.GPU
	for _, at := range r.Spots {
		g := c.Pool.GPU(at.GPU)
		saved = append(saved, g)
		g.Blocked |= g.Model.Units(at.Placement) &^ g.Model.Occupied(g.Busy)
		g.Idle &^= g.Model.Overlapping(g.Blocked) // blocked units make their idle instances unusable
		c.set(at.GPU, g)
	}
	return func() {
		for k, g := range slices.Backward(saved) {
			c.set(r.Spots[k].GPU, g)
		}
	}
}
