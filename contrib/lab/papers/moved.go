package papers

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"caelum/internal/core/place"
	"caelum/internal/sim"
)

// Moved returns a reference that can move running jobs at any time and at no cost. A job therefore fits if all its
// slices can be packed together with the slices of all running jobs. The jobs start in the given order, or as the
// discipline requires if order is nil. Moved requires GPUs of a single model, and ignores nodes.
func Moved(order Order) func(*sim.Control) sim.Scheduler {
	return func(c *sim.Control) sim.Scheduler {
		m := &moved{Control: c, order: order, fits: map[string]bool{}}
		for _, b := range c.Config().GPUs {
			m.gpus = append(m.gpus, place.GPU{Model: b})
		}
		return m
	}
}

type moved struct {
	*sim.Control
	order    Order
	gpus     []place.GPU
	profiles []string        // all profiles that have been requested so far
	count    []int           // the number of running slices of each of these profiles
	fits     map[string]bool // the result of packable for each list of counts
}

// start is the planned start of the first job in the queue.
type start struct {
	at     float64 // seconds
	counts []int   // the number of slices of each profile at that time, including the job's
}

// Turn implements [sim.Scheduler].
func (m *moved) Turn() bool {
	if m.order != nil {
		return m.Search(0, m.order(m.Control), func(k int) bool { return m.place(k, nil) })
	}
	if m.place(0, nil) {
		return true
	}
	if m.Config().Discipline != sim.EASY {
		return false
	}
	first := m.reserve()
	return m.Search(1, inOrder, func(k int) bool { return m.place(k, &first) }) // backfill
}

// Left implements [sim.Scheduler].
func (m *moved) Left(j *sim.Job) { m.count[m.number(j)] -= j.Slots() }

// place starts the k-th job if it fits and does not delay the first job, which may be nil.
func (m *moved) place(k int, first *start) bool {
	j := m.Job(k)
	m.number(j)
	all := m.with(m.count, j)
	if !m.packable(all) || first != nil && m.Now()+j.Estimate() > first.at && !m.packable(m.with(first.counts, j)) {
		return false
	}
	m.count = all
	m.Start(j, nil)
	return true
}

// number returns the index of the job's profile.
func (m *moved) number(j *sim.Job) int {
	kind := slices.Index(m.profiles, j.Requests())
	if kind < 0 {
		kind = len(m.profiles)
		m.profiles, m.count = append(m.profiles, j.Requests()), append(m.count, 0)
	}
	return kind
}

// with returns the counts with one more job's slices added. counts need not have an element for the job's profile.
func (m *moved) with(counts []int, j *sim.Job) []int {
	kind := m.number(j)
	all := append(slices.Clone(counts), make([]int, max(0, kind+1-len(counts)))...)
	all[kind] += j.Slots()
	return all
}

// reserve returns the earliest time at which the first job can be packed, according to the estimated ends.
func (m *moved) reserve() start {
	first := start{m.Now(), m.with(m.count, m.Job(0))}
	running := slices.Clone(m.Running())
	slices.SortFunc(running, func(a, b *sim.Job) int { return cmp.Compare(a.Estimated(), b.Estimated()) })
	for _, j := range running {
		if m.packable(first.counts) {
			return first
		}
		first.counts[m.number(j)] -= j.Slots()
		first.at = max(first.at, j.Estimated())
	}
	if !m.packable(first.counts) {
		first.at = math.Inf(1)
	}
	return first
}

// packable reports whether the given numbers of slices of each profile fit on the GPUs at the same time.
func (m *moved) packable(count []int) bool {
	var key []byte
	for _, n := range count {
		key = binary.AppendUvarint(key, uint64(n))
	}
	fits, known := m.fits[string(key)]
	if !known {
		var all []string
		for p, n := range count {
			all = append(all, slices.Repeat(m.profiles[p:p+1], n)...)
		}
		_, fits = place.Pack(m.gpus, all)
		m.fits[string(key)] = fits
	}
	return fits
}
