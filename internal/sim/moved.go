package sim

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"caelum/internal/place"
)

// moved is the reference: jobs may be moved at any time for nothing, so that there is room for one if all can be
// packed.
type moved struct {
	s        *simulation
	gpus     []place.GPU
	free     int
	profiles []string        // that were ever asked for
	count    []int           // how many of each stand
	fits     map[string]bool // by the counts
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

// fragmentation is no question here: everything is moved as wanted.
func (m *moved) fragmentation() float64 { return 0 }

func (m *moved) place(k int, r *reservation) (bool, *reservation) {
	j := m.s.queue.at(k)
	m.know(j)
	if !m.packable(m.with(j)) || r != nil && m.s.now+j.said > r.at && !m.packable(add(r.counts, j)) {
		return false, m.reserve(k)
	}
	m.count = m.with(j)
	j.units = j.size * j.slices()
	m.free -= j.units
	p, _ := m.s.GPUs[0].ProfileIndex(j.asksFor)
	m.s.start(j, 0, m.s.GPUs[0].Profiles[p].Memory())
	return true, nil
}

// know gives a job's profile its number.
func (m *moved) know(j *job) {
	j.kind = slices.Index(m.profiles, j.asksFor)
	if j.kind < 0 {
		j.kind = len(m.profiles)
		m.profiles, m.count = append(m.profiles, j.asksFor), append(m.count, 0)
	}
}

func (m *moved) with(j *job) []int { return add(m.count, j) }

// add is the counts with a job more; counts of the past may lack its profile.
func add(counts []int, j *job) []int {
	all := append(slices.Clone(counts), make([]int, max(0, j.kind+1-len(counts)))...)
	all[j.kind] += j.slices()
	return all
}

// reserve is when the head of the queue can be packed, by what is said of ends, and what will stand then.
func (m *moved) reserve(k int) *reservation {
	if m.s.Discipline != EASY || k > 0 {
		return nil
	}
	r := &reservation{at: m.s.now, counts: m.with(m.s.queue.at(0))}
	running := slices.Clone(m.s.running)
	slices.SortFunc(running, func(a, b *job) int { return cmp.Compare(a.started+a.said, b.started+b.said) })
	for _, j := range running {
		if m.packable(r.counts) {
			return r
		}
		r.counts[j.kind] -= j.slices()
		r.at = max(r.at, j.started+j.said)
	}
	if !m.packable(r.counts) {
		r.at = math.Inf(1)
	}
	return r
}

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
