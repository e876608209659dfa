package part

import (
	"math/bits"
	"testing"
)

// passModel is one node with one GPU of two units, its agent, and slurmctld. The planner is not part of the model.
// Instead, every part that the agent reads may name any set of placements, which covers planners that are wrong,
// late, doubled or hostile. The fields switch off the agent's rules.
type passModel struct {
	wants    []int8 // the profile of each job
	failures int8   // crashes of the agent, restarts of slurmctld, and jobs that end without an epilog

	noFilter     bool // the agent offers placements of the part that overlap leases
	noLegality   bool // the agent offers placements of the part that overlap each other
	noLower      bool // the pass writes all counts at once
	noRecheck    bool // the pass raises the counts although a job has started since the plan
	neverLists   bool // the agent never lists the jobs
	noPending    bool // the agent ignores jobs that have started and have no lease yet
	forgetsLease bool // the agent starts without the leases
	anyNode      bool // slurmctld starts jobs on COMPLETING nodes
}

// The profiles are small (one unit) and big (two units). The placements 0 and 1 are small, and placement 2 is big.
const (
	small, big = int8(0), int8(1)
	placements = 3
)

var (
	unitsOf   = [placements]uint8{0b01, 0b10, 0b11}
	profileOf = [placements]int8{small, small, big}
)

const none, unplaced = int8(-1), int8(3)

// The states of a job. A job that is gone has a lease, but is no longer known to slurmctld.
const (
	waiting = iota
	started
	leased
	completing
	gone
	released // the epilog is about to return
	done
)

type modelJob struct {
	state uint8
	lost  bool // true if the agent has forgotten the lease
	at    int8 // the placement of the lease, or none
	pend  int8 // the agent's pending lease: none, unplaced, or a placement
	fresh int8 // the placement that the pass has found for an unplaced pending lease, or none
}

// passState is a state of the model. The steps of a pass are the values of pc.
type passState struct {
	job           [3]modelJob
	total         [2]int8
	up            bool
	offers        uint8 // a mask of placements
	pc            uint8
	dirty         bool
	again         bool // the node was read again after the counts were lowered
	planned       uint8
	rtotal, rused [2]int8
	held          [2]int8
	failures      int8
}

const (
	idle = iota
	readNode
	plannedOffers
	lowered
	applied
	raised
)

func (m passModel) start() []passState {
	s := passState{up: true, failures: m.failures}
	for k := range s.job {
		s.job[k] = modelJob{state: done, at: none, pend: none, fresh: none}
		if k < len(m.wants) {
			s.job[k].state = waiting
		}
	}
	return []passState{s}
}

func (m passModel) used(s passState) (n [2]int8) {
	for k, w := range m.wants {
		if j := s.job[k]; j.state == started || j.state == leased {
			n[w]++
		}
	}
	return n
}

func hasLease(j modelJob) bool { return !j.lost && usesSlice(j) }

func usesSlice(j modelJob) bool {
	return j.at != none && (j.state == leased || j.state == completing || j.state == gone)
}

// heldNow corresponds to the agent's slicesHeld.
func (m passModel) heldNow(s passState) (n [2]int8) {
	for k, w := range m.wants {
		if hasLease(s.job[k]) || s.job[k].pend != none {
			n[w]++
		}
	}
	return n
}

// busy returns the units of leases and of placed pending leases. With fresh, it includes the placements that the pass
// has found.
func (m passModel) busy(s passState, fresh bool) (units uint8) {
	for _, j := range s.job {
		if hasLease(j) {
			units |= unitsOf[j.at]
		}
		if j.pend >= 0 && j.pend < placements {
			units |= unitsOf[j.pend]
		}
		if fresh && j.fresh >= 0 {
			units |= unitsOf[j.fresh]
		}
	}
	return units
}

func free(busy uint8, profile int8) int8 {
	for p := range int8(placements) {
		if profileOf[p] == profile && unitsOf[p]&busy == 0 {
			return p
		}
	}
	return none
}

// take moves an offered placement of a profile out of the offers.
func take(s *passState, profile int8, busy uint8) int8 {
	for p := range int8(placements) {
		if s.offers>>p&1 == 1 && profileOf[p] == profile && unitsOf[p]&busy == 0 {
			s.offers &^= 1 << p
			return p
		}
	}
	return none
}

func counts(mask uint8) (n [2]int8) {
	n[small], n[big] = int8(bits.OnesCount8(mask&0b011)), int8(mask>>2&1)
	return n
}

// filter returns the part's placements that the agent offers.
func (m passModel) filter(part, busy uint8) (offers uint8) {
	for p := range int8(placements) {
		if part>>p&1 == 0 || !m.noFilter && unitsOf[p]&busy != 0 {
			continue
		}
		offers |= 1 << p
		if !m.noLegality {
			busy |= unitsOf[p]
		}
	}
	return offers
}

// completingNow reports whether slurmctld shows the node as COMPLETING, and so starts no jobs there.
func completingNow(s passState) bool {
	for _, j := range s.job {
		if j.state == completing || j.state == released {
			return true
		}
	}
	return false
}

// explained reports whether the agent's leases explain the node's record, so that the agent does not list the jobs.
func (m passModel) explained(s passState) bool {
	return m.neverLists || m.heldNow(s) == s.rused
}

// account compares the pending leases with the jobs that slurmctld lists.
func (m passModel) account(s *passState) {
	if m.explained(*s) || m.noPending {
		return
	}
	for k, w := range m.wants {
		j := &s.job[k]
		switch {
		case j.state == gone: // the comparison of the leases with the jobs
			*j, s.dirty = modelJob{state: done, at: none, pend: none, fresh: none}, true
		case j.state == started && j.pend == none:
			if j.pend = take(s, w, m.busy(*s, false)); j.pend == none {
				j.pend = unplaced
			}
			s.dirty = true
		case j.state != started && j.pend != none:
			j.pend, s.dirty = none, true
		}
	}
}

// wrong checks that leases do not overlap, and that the agent can carve the slices of all jobs that slurmctld has
// started or could start.
func (m passModel) wrong(s passState) string {
	var units uint8
	for _, j := range s.job {
		if usesSlice(j) {
			if units&unitsOf[j.at] != 0 {
				return "two leases of one unit"
			}
			units |= unitsOf[j.at]
		}
	}
	for _, j := range s.job {
		if j.state == gone {
			return "" // until the agent releases the lease, the job's prolog returns a second job to the queue
		}
	}
	var open [2]int8
	for k, w := range m.wants {
		if j := s.job[k]; j.state != started {
			continue
		} else if j.pend >= 0 && j.pend < placements {
			units |= unitsOf[j.pend]
		} else {
			open[w]++
		}
	}
	if used := m.used(s); m.anyNode || !completingNow(s) {
		for p := range open {
			open[p] += max(0, s.total[p]-used[p])
		}
	}
	if !packs(units, open) {
		return "slurmctld could start a job that the agent cannot serve"
	}
	return ""
}

// packs reports whether slices fit alongside the busy units.
func packs(busy uint8, open [2]int8) bool {
	room := int8(2 - bits.OnesCount8(busy))
	return open[small]+2*open[big] <= room
}

// TestPassWithAnyPart checks that no part makes an agent offer slices that it cannot carve.
func TestPassWithAnyPart(t *testing.T) {
	for _, wants := range [][]int8{{small, small}, {small, big}, {big, big}} {
		holds(t, passModel{wants: wants, failures: 2})
	}
	holds(t, passModel{wants: []int8{small, small, big}, failures: 0})
}

// TestPassWithoutARule checks that the model detects the absence of each rule of the pass.
func TestPassWithoutARule(t *testing.T) {
	two, mixed := []int8{small, small}, []int8{small, big}
	for name, m := range map[string]passModel{
		"the agent offers leased units":          {wants: mixed, noFilter: true},
		"the agent offers overlapping slices":    {wants: mixed, noLegality: true},
		"the pass writes all counts at once":     {wants: mixed, noLower: true},
		"the pass does not check the state":      {wants: mixed, noRecheck: true},
		"the agent never lists the jobs":         {wants: mixed, neverLists: true},
		"the agent ignores jobs without a lease": {wants: mixed, noPending: true},
		"the agent forgets the leases":           {wants: two, failures: 1, forgetsLease: true},
		"slurmctld starts on COMPLETING nodes":   {wants: mixed, anyNode: true},
	} {
		t.Run(name, func(t *testing.T) { fails(t, m) })
	}
}
