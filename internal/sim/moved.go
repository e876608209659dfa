package sim

import (
	"encoding/binary"
	"slices"

	"caelum/internal/place"
)

// moved is the reference: jobs may be moved at any time for nothing, so that there is room for one if all can be packed.
type moved struct {
	s        *simulation
	gpus     []place.GPU
	free     int
	profiles []string        // that ever ran
	count    []int           // how many of each run
	fits     map[string]bool // by the counts
}

func newMoved(s *simulation) *moved {
	m := &moved{s: s, fits: map[string]bool{}}
	for _, b := range s.GPUs {
		m.gpus = append(m.gpus, place.GPU{Board: b})
		m.free += b.Grid
	}
	return m
}

func (m *moved) idle() int { return m.free }

// fragmentation is no question here: what is cut stays cut, or is moved as wanted.
func (m *moved) fragmentation() float64 { return 0 }

func (m *moved) place(k int, _ *reservation) (bool, *reservation) {
	j := m.s.queue.at(k)
	j.slot = slices.Index(m.profiles, j.Profile)
	if j.slot < 0 {
		j.slot = len(m.profiles)
		m.profiles, m.count = append(m.profiles, j.Profile), append(m.count, 0)
	}
	if j.size > m.free {
		return false, nil
	}
	m.count[j.slot]++
	if !m.packable() {
		m.count[j.slot]--
		return false, nil
	}
	m.free -= j.size
	m.s.start(j, 0)
	return true, nil
}

func (m *moved) packable() bool {
	var key []byte
	for _, n := range m.count {
		key = binary.AppendUvarint(key, uint64(n))
	}
	fits, known := m.fits[string(key)]
	if !known {
		var all []string
		for p, n := range m.count {
			all = append(all, slices.Repeat(m.profiles[p:p+1], n)...)
		}
		_, fits = place.Pack(m.gpus, all)
		m.fits[string(key)] = fits
	}
	return fits
}

func (m *moved) leave(j *job) {
	m.count[j.slot]--
	m.free += j.size
}
