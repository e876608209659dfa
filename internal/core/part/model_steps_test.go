package part

import "fmt"

// next emits the steps of slurmctld and of the agent.
func (m passModel) next(s passState, emit func(string, passState)) {
	m.stepsOfJobs(s, emit)
	if s.failures > 0 {
		m.stepsOfFailures(s, emit)
	}
	if s.up {
		m.stepsOfPass(s, emit)
	}
}

// stepsOfJobs emits the steps of slurmctld, the prologs and the epilogs.
func (m passModel) stepsOfJobs(s passState, emit func(string, passState)) {
	used := m.used(s)
	for k, w := range m.wants {
		t := s
		j := &t.job[k]
		switch j.state {
		case waiting:
			if s.total[w] > used[w] && (m.anyNode || !completingNow(s)) {
				j.state = started
				emit(fmt.Sprint("slurmctld starts job ", k), t)
			}
		case started:
			if s.up {
				m.prolog(s, k, emit)
			}
			j.state = completing
			emit(fmt.Sprint("the user cancels job ", k), t)
		case leased:
			j.state = completing
			emit(fmt.Sprint("job ", k, " ends"), t)
		case completing:
			if s.up {
				*j, t.dirty = modelJob{state: released, at: none, pend: none, fresh: none}, true
				emit(fmt.Sprint("epilog of job ", k), t)
			}
		case released:
			j.state = done
			emit(fmt.Sprint("the epilog of job ", k, " returns"), t)
		}
	}
}

// prolog emits the step of a job's prolog: a lease at the pending lease's placement or at an offered placement.
// Otherwise, the agent needs a pass to find a placement. If a pass has found none, the agent requeues the job.
func (m passModel) prolog(s passState, k int, emit func(string, passState)) {
	t := s
	j := &t.job[k]
	t.dirty = true
	at := j.pend
	if at == none || at == unplaced {
		at = take(&t, m.wants[k], m.busy(s, false))
	}
	switch {
	case at != none:
		j.state, j.at, j.pend = leased, at, none
		emit(fmt.Sprint("prolog of job ", k), t)
	case j.pend == none && !m.noPending:
		j.pend = unplaced
		emit(fmt.Sprint("prolog of job ", k, " needs a pass"), t)
	case s.pc == idle && free(m.busy(s, false), m.wants[k]) == none:
		*j = modelJob{state: waiting, at: none, pend: none, fresh: none}
		emit(fmt.Sprint("the agent requeues job ", k), t)
	}
}

func (m passModel) stepsOfFailures(s passState, emit func(string, passState)) {
	s.failures--
	t := s
	if s.up {
		t.up, t.offers = false, 0
		for k := range t.job {
			t.job[k].pend, t.job[k].fresh = none, none
			t.job[k].lost = m.forgetsLease && t.job[k].state == leased
		}
		t.pc, t.planned, t.dirty, t.again = idle, 0, false, false
		t.rtotal, t.rused, t.held = [2]int8{}, [2]int8{}, [2]int8{}
		t.up = true // the prologs and epilogs wait for the agent, so that the time without an agent has no effect
		emit("the agent is killed and starts", t)
	}
	t = s
	t.total = [2]int8{}
	emit("slurmctld restarts", t)
	for k := range m.wants {
		if s.job[k].state == leased {
			t = s
			t.job[k].state = gone
			emit(fmt.Sprint("slurmctld forgets job ", k), t)
		}
	}
}

// stepsOfPass emits the steps of a pass. Each step is one request to slurmctld or one change of the agent's state.
func (m passModel) stepsOfPass(s passState, emit func(string, passState)) {
	t := s
	switch s.pc {
	case idle:
		m.read(&t, readNode)
		emit("the pass reads the node", t)
	case readNode:
		m.account(&t)
		if s.again {
			t.pc = lowered
			emit("the pass compares the jobs again", t)
			return
		}
		m.plan(t, emit)
	case plannedOffers:
		m.lower(t, emit)
	case lowered:
		if t.again = false; t.dirty && !m.noRecheck {
			end(&t)
			emit("the pass finds a change", t)
			return
		}
		t.offers = t.planned
		for k := range t.job {
			if j := &t.job[k]; j.pend == unplaced && j.fresh != none {
				j.pend = j.fresh
			}
			t.job[k].fresh = none
		}
		t.pc = applied
		emit("the pass applies the plan", t)
	case applied:
		if t.total != t.rtotal {
			end(&t)
			emit("the pass finds other counts", t)
			return
		}
		t.total = m.high(t)
		t.pc = raised
		emit("the pass raises the counts", t)
	case raised:
		end(&t)
		emit("the pass ends", t)
	}
}

func (m passModel) read(s *passState, pc uint8) {
	s.rtotal, s.rused, s.pc = s.total, m.used(*s), pc
}

// end ends a pass. Its variables are reset, so that equivalent states compare as equal.
func end(s *passState) {
	s.pc, s.planned, s.dirty, s.again = idle, 0, false, false
	s.rtotal, s.rused, s.held = [2]int8{}, [2]int8{}, [2]int8{}
	for k := range s.job {
		s.job[k].fresh = none
	}
}

// plan emits one state for each part that the agent could read.
func (m passModel) plan(s passState, emit func(string, passState)) {
	s.dirty, s.held, s.pc = false, m.heldNow(s), plannedOffers
	for k, w := range m.wants {
		if s.job[k].pend == unplaced {
			s.job[k].fresh = free(m.busy(s, true), w)
		}
	}
	busy := m.busy(s, true)
	for part := range uint8(1 << placements) {
		t := s
		t.planned = m.filter(part, busy)
		emit(fmt.Sprintf("the pass plans part %03b", part), t)
	}
}

// high returns the used and the offered slices.
func (m passModel) high(s passState) (high [2]int8) {
	now, offers := m.heldNow(s), counts(s.planned)
	for p := range high {
		high[p] = min(s.rused[p], s.held[p], now[p]) + offers[p]
	}
	return high
}

// lower emits the state after the first write and the second reading of the node.
func (m passModel) lower(t passState, emit func(string, passState)) {
	high, low := m.high(t), t.rtotal
	for p := range low {
		low[p] = min(low[p], high[p])
	}
	switch {
	case low == t.rtotal || m.noLower:
		t.pc = lowered
		emit("the pass lowers nothing", t)
	case t.total != t.rtotal:
		end(&t)
		emit("the pass finds other counts", t)
	default:
		t.total = low
		m.read(&t, readNode)
		t.again = true
		emit("the pass lowers the counts", t)
	}
}
