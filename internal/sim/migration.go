package sim

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"caelum/internal/place"
)

// moved implements room for the reference, which can move running jobs at any time and at no cost. A job therefore fits
// if all its slices can be packed together with the slices of all running jobs.
type moved struct {
	s        *simulation
	gpus     []place.GPU
	free     int
	profiles []string        // all profiles that have been requested so far
	count    []int           // the number of running slices of each of these profiles
	fits     map[string]bool // the result of packable for each list of counts
}

func newMoved(s *simulation) *moved {
	m := &moved{s: s, fits: map[string]bool{}}
	for _, b := range s.GPUs {
		m.gpus = append(m.gpus, place.GPU{Model: b})
		m.free += b.Grid
	}
	return m
}

func (m *moved) idle() int { return m.free }

// fragmentation returns 0, because slices can be moved at any time.
func (m *moved) fragmentation() float64 { return 0 }

func (m *moved) place(k int, r *reservation) (bool, *reservation) {
	j := m.s.queue.at(k)
	m.number(j)
	if !m.packable(m.with(j)) || r != nil && m.s.now+j.estimate > r.at && !m.packable(add(r.counts, j)) {
		return false, m.reserve(k)
	}
	m.count = m.with(j)
	j.units = j.size * j.slices()
	m.free -= j.units
	p, _ := m.s.GPUs[0].ProfileIndex(j.asksFor)
	m.s.start(j, 0, m.s.GPUs[0].Profiles[p].Memory())
	return true, nil
}

// number sets the index of the job's profile.
func (m *moved) number(j *job) {
	j.kind = slices.Index(m.profiles, j.asksFor)
	if j.kind < 0 {
		j.kind = len(m.profiles)
		m.profiles, m.count = append(m.profiles, j.asksFor), append(m.count, 0)
	}
}

func (m *moved) with(j *job) []int { return add(m.count, j) }

// add returns the counts with one more job's slices added. counts need not have an element for the job's profile.
func add(counts []int, j *job) []int {
	all := append(slices.Clone(counts), make([]int, max(0, j.kind+1-len(counts)))...)
	all[j.kind] += j.slices()
	return all
}

// reserve returns the earliest time at which the head of the queue can be packed, according to the estimated ends, and
// the counts at that time.
func (m *moved) reserve(k int) *reservation {
	if m.s.Discipline != EASY || k > 0 {
		return nil
	}
	r := &reservation{at: m.s.now, counts: m.with(m.s.queue.at(0))}
	running := slices.Clone(m.s.running)
	slices.SortFunc(running, func(a, b *job) int { return cmp.Compare(a.started+a.estimate, b.started+b.estimate) })
	for _, j := range running {
		if m.packable(r.counts) {
			return r
		}
		r.counts[j.kind] -= j.slices()
		r.at = max(r.at, j.started+j.estimate)
	}
	if !m.packable(r.counts) {
		r.at = math.Inf(1)
	}
	return r
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

func (m *moved) leave(j *job) {
	m.count[j.kind] -= j.slices()
	m.free += j.units
}
