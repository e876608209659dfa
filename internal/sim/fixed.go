package sim

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"caelum/internal/core/mig"
)

// fixed implements room for GPUs with fixed layouts. A job is assigned the smallest free slice that is large enough and
// on which it can run. The slice may be larger than the job's profile.
type fixed struct {
	s       *simulation
	slices  []slice // in the order in which jobs prefer them
	classes []class
	free    int
	jobs    []int // the number of slices with a job, by GPU
	active  int   // the number of GPUs with at least one running job
}

// slice is an instance in a fixed layout.
type slice struct {
	class, gpu, start int // start in units
	job               *Job
}

// class describes the slices of one profile on the GPUs of one model. Simulations of large clusters need it: a job that
// fits no free slice is rejected without a search through all slices.
type class struct {
	kind    int
	profile *mig.Profile
	holds   map[string]int // the profiles for which the slices are large enough, with their sizes in units
	all     []int          // the slices' indices, in ascending order
	free    bitset         // of the indices of the free slices
}

// bitset is a set of small integers.
type bitset []uint64

func (b bitset) add(i int)    { b[i/64] |= 1 << (i % 64) }
func (b bitset) remove(i int) { b[i/64] &^= 1 << (i % 64) }

// from returns the smallest element that is at least i, or -1 if there is none.
func (b bitset) from(i int) int {
	for w := i / 64; w < len(b); w++ {
		word := b[w]
		if w == i/64 {
			word &= math.MaxUint64 << (i % 64)
		}
		if word != 0 {
			return 64*w + bits.TrailingZeros64(word)
		}
	}
	return -1
}

func newFixed(s *simulation) *fixed {
	f := &fixed{s: s, jobs: make([]int, len(s.GPUs))}
	type key struct{ kind, profile int }
	known := map[key]int{}
	for k, b := range s.GPUs {
		f.free += b.Grid
		kind := slices.Index(s.kinds, b)
		for i := range s.Static[k].Indices() {
			at := b.Placements[i]
			c, ok := known[key{kind, at.Profile}]
			if !ok {
				c = len(f.classes)
				known[key{kind, at.Profile}] = c
				f.classes = append(f.classes, newClass(kind, b, at.Profile))
			}
			f.slices = append(f.slices, slice{class: c, gpu: k, start: at.Start})
		}
	}
	full := func(c *class) int { return c.holds[mig.Full] } // full GPUs come after slices of the same size
	slices.SortStableFunc(f.slices, func(x, y slice) int {
		a, b := &f.classes[x.class], &f.classes[y.class]
		return cmp.Or(cmp.Compare(a.profile.Size, b.profile.Size), cmp.Compare(a.profile.Compute, b.profile.Compute),
			cmp.Compare(full(a), full(b)))
	})
	for k := range f.classes {
		f.classes[k].free = make(bitset, len(f.slices)/64+1)
	}
	for i, sl := range f.slices {
		c := &f.classes[sl.class]
		c.all = append(c.all, i)
		c.free.add(i)
	}
	return f
}

func newClass(kind int, b *mig.Model, profile int) class {
	c := class{kind: kind, profile: &b.Profiles[profile], holds: map[string]int{}}
	for _, p := range b.Profiles {
		if enough(*c.profile, p) {
			c.holds[p.Name] = p.Size
		}
	}
	return c
}

// suits reports whether the slices of the class are large enough for a job that can run on them.
func (c *class) suits(j *Job) bool {
	return c.holds[j.profiles[c.kind]] > 0 && j.RunsOn(c.profile.Name)
}

func (f *fixed) idle() int { return f.free }

// fragmentation returns 0, because fixed layouts never change.
func (f *fixed) fragmentation() float64 { return 0 }

func (f *fixed) place(k int, r *reservation) (bool, *reservation) {
	j := f.s.queue.at(k)
	if r != nil && f.s.now+j.estimate <= r.at {
		r = nil // the job ends before the reservation begins
	}
	if got := f.find(j, r); got != nil {
		f.start(j, got)
		return true, nil
	}
	if f.s.Discipline != EASY || k > 0 {
		return false, nil
	}
	return false, f.reserve(j)
}

// find returns free slices for a job outside a reservation, which may be nil. It returns nil if there are too few.
func (f *fixed) find(j *Job, r *reservation) []int {
	var free []int
	for k := range f.classes {
		c := &f.classes[k]
		if c.free.from(0) < 0 || !c.suits(j) {
			continue
		}
		for i := c.free.from(0); i >= 0; i = c.free.from(i + 1) {
			if r != nil && slices.Contains(r.numbers, i) {
				continue
			}
			if free = append(free, i); j.slices() == 1 {
				break
			}
		}
	}
	if len(free) < j.slices() {
		return nil
	}
	slices.Sort(free)
	if j.slices() == 1 {
		return free[:1]
	}
	return several(j, f.byNode(free))
}

// byNode returns the given slices by node.
func (f *fixed) byNode(numbers []int) [][]int {
	on := make([][]int, len(f.s.nodes))
	for _, i := range numbers {
		n := f.s.nodeOf[f.slices[i].gpu]
		on[n] = append(on[n], i)
	}
	return on
}

// several returns slices for a job that needs several slices, on the first nodes that have as many free slices as the
// job needs per node.
func several(j *Job, free [][]int) (got []int) {
	each := j.offer.Wants[0].Count
	for _, on := range free {
		if len(on) >= each {
			if got = append(got, on[:each]...); len(got) == j.slices() {
				return got
			}
		}
	}
	return nil
}

func (f *fixed) start(j *Job, numbers []int) {
	slowest, least := math.Inf(1), math.Inf(1)
	for _, i := range numbers {
		sl := &f.slices[i]
		c := &f.classes[sl.class]
		sl.job = j
		c.free.remove(i)
		if f.jobs[sl.gpu]++; f.jobs[sl.gpu] == 1 {
			f.active++
		}
		slowest, least = min(slowest, j.SpeedOn(c.profile.Name)), min(least, c.profile.Memory())
		j.units += c.holds[j.profiles[c.kind]]
	}
	if j.Speed != nil { // a larger slice may be faster
		j.runs = j.Duration / slowest
	}
	j.numbers = numbers
	f.free -= j.units
	f.s.start(j, 0, least)
}

// reserve returns a reservation for the job's earliest start, according to the running jobs' estimated ends. The
// reservation includes the slices for the job.
func (f *fixed) reserve(j *Job) *reservation {
	var all []int
	for k := range f.classes {
		if c := &f.classes[k]; c.suits(j) {
			all = append(all, c.all...)
		}
	}
	at := func(i int) float64 { return max(f.s.now, f.slices[i].end()) }
	if j.slices() == 1 && len(all) > 0 {
		first := slices.MinFunc(all, func(a, b int) int {
			x, y := &f.slices[a], &f.slices[b]
			return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(f.s.nodeOf[x.gpu], f.s.nodeOf[y.gpu]),
				cmp.Compare(x.end(), y.end()), cmp.Compare(a, b))
		})
		return &reservation{at: at(first), numbers: []int{first}}
	}
	slices.Sort(all)
	var nodes []*reservation
	for _, on := range f.byNode(all) {
		each := j.offer.Wants[0].Count
		if len(on) < each {
			continue
		}
		slices.SortStableFunc(on, func(a, b int) int { return cmp.Compare(f.slices[a].end(), f.slices[b].end()) })
		nodes = append(nodes, &reservation{at: at(on[each-1]), numbers: on[:each]})
	}
	return firstOf(nodes, j)
}

// end returns the time, in seconds, at which the slice is expected to become free, or 0 if it is free.
func (sl *slice) end() float64 {
	if sl.job == nil {
		return 0
	}
	return sl.job.started + sl.job.estimate
}

func (f *fixed) leave(j *Job) {
	for _, i := range j.numbers {
		sl := &f.slices[i]
		sl.job = nil
		f.classes[sl.class].free.add(i)
		if f.jobs[sl.gpu]--; f.jobs[sl.gpu] == 0 {
			f.active--
		}
	}
	f.free += j.units
}
