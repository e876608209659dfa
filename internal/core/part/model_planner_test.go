package part

import (
	"fmt"
	"testing"
)

// plannerModel has two nodes, two jobs and up to two planners. An agent's pass is a single step, because passModel
// checks the steps within it. In each state, the model assumes that no further failure occurs, and checks that both
// nodes' offers are right after the expiry and one poll interval (settle). The fields switch off rules.
type plannerModel struct {
	planners int
	wants    [2]int8
	oneJob   bool
	failures int8

	neverExpires  bool // agents follow a part although the heartbeat does not change
	separateBeat  bool // a hung planner continues to write the heartbeat
	writesOnlyNew bool // the planner compares a part with the last part that it wrote, instead of the node's record
	neverYields   bool // the planner ignores another planner's heartbeat
	noFallback    bool // agents without a fresh part keep their offers
	alwaysDefers  bool // the planner writes a heartbeat although it has deferred parts
}

// The states of a planner.
const (
	absent = iota
	alive
	hung
)

type modelPlanner struct {
	state uint8
	has   bool // it has a plan whose parts are not all written
	isNew bool // it has run for less than the expiry, and waits because another planner may be active
	parts [2]uint8
	todo  [2]bool
	early bool     // it writes a part between heartbeats and defers the other
	wrote [2]uint8 // the parts that it wrote last (writesOnlyNew)
}

type modelNode struct {
	offers uint8
	shown  uint8 // the busy units that the agent has published
	part   uint8
	has    bool // the record has a part
	isNew  bool // the agent has run for less than the expiry, and cannot know the age of the heartbeat
}

// ran is the state of a job: waiting, done, or running at a placement of a node.
type ran struct{ node, at int8 }

const (
	waits = int8(-1)
	ended = int8(-2)
)

type plannerState struct {
	job      [2]ran
	node     [2]modelNode
	planner  [2]modelPlanner
	owner    int8 // the planner of the heartbeat, or none
	renewed  bool // the heartbeat has changed since the last expiry period
	expired  bool
	failures int8
}

func (m plannerModel) start() []plannerState {
	s := plannerState{failures: m.failures, owner: none, job: [2]ran{{waits, none}, {waits, none}}}
	if m.oneJob {
		s.job[1].node = ended
	}
	for p := range m.planners {
		s.planner[p] = modelPlanner{state: alive, isNew: true}
	}
	for n := range s.node {
		s.node[n].isNew = true
	}
	return []plannerState{s}
}

func (m plannerModel) busy(s plannerState, n int) (units uint8) {
	for _, j := range s.job {
		if int(j.node) == n {
			units |= unitsOf[j.at]
		}
	}
	return units
}

// plan places the waiting jobs on the first node with room. Planner 1 has other settings than planner 0 and the agents:
// it prefers the other node.
func (m plannerModel) plan(s plannerState, busy [2]uint8, planner int) (parts [2]uint8) {
	for k, j := range s.job {
		if j.node != waits {
			continue
		}
		for i := range busy {
			n := i ^ planner
			if p := free(busy[n], m.wants[k]); p != none {
				parts[n] |= 1 << p
				busy[n] |= unitsOf[p]
				break
			}
		}
	}
	return parts
}

func (m plannerModel) fresh(s plannerState, n int) bool {
	return s.node[n].has && s.owner != none && (!s.expired || s.node[n].isNew || m.neverExpires)
}

// pass is a pass of a node's agent.
func (m plannerModel) pass(s *plannerState, n int) {
	node := &s.node[n]
	busy := [2]uint8{s.node[0].shown, s.node[1].shown}
	busy[n] = m.busy(*s, n)
	node.shown = busy[n]
	switch {
	case m.fresh(*s, n):
		node.offers = passModel{}.filter(node.part, busy[n])
	case !m.noFallback:
		node.offers = m.plan(*s, busy, 0)[n]
	default:
		node.offers = passModel{}.filter(node.offers, busy[n])
	}
}

// mayPlan reports whether a planner may plan: the heartbeat is its own, or it has not changed for the expiry.
func (m plannerModel) mayPlan(s plannerState, p int) bool {
	own := s.owner == int8(p)
	return m.neverYields || own || s.owner == none || s.expired && !s.planner[p].isNew
}

// look is the first step of a planner's round: it reads the records and makes a plan.
func (m plannerModel) look(s *plannerState, p int) {
	me := &s.planner[p]
	if !m.mayPlan(*s, p) {
		return
	}
	me.has = true
	me.parts = m.plan(*s, [2]uint8{s.node[0].shown, s.node[1].shown}, p)
	for n := range me.todo {
		me.todo[n] = !s.node[n].has || s.node[n].part != me.parts[n]
		if m.writesOnlyNew {
			me.todo[n] = me.wrote[n] != me.parts[n]|1<<7
		}
		if m.alwaysDefers {
			me.todo[n] = !s.node[n].has
		}
	}
}

// lookEarly emits the first step of each round without a heartbeat. Such a round may write any of the parts. It writes
// only one here, because several rounds may follow each other.
func (m plannerModel) lookEarly(s plannerState, p int, emit func(string, plannerState)) {
	m.look(&s, p)
	for n := range s.node {
		if t := s; s.planner[p].todo[n] {
			me := &t.planner[p]
			me.early, me.todo = true, [2]bool{}
			me.todo[n] = true
			emit(fmt.Sprint("planner ", p, " plans and defers all parts but that of node ", n), t)
		}
	}
}

// write is a further step: it writes the first part that differs from its record. After the last part, it writes the
// heartbeat.
func (m plannerModel) write(s *plannerState, p int) {
	me := &s.planner[p]
	for n := range me.todo {
		if me.todo[n] {
			me.todo[n] = false
			if m.writesOnlyNew {
				me.wrote[n] = me.parts[n] | 1<<7
			}
			s.node[n].part, s.node[n].has = me.parts[n], true
			if me.early {
				me.has, me.parts, me.early = false, [2]uint8{}, false
			}
			return
		}
	}
	me.has, me.parts = false, [2]uint8{}
	s.owner, s.renewed, s.expired = int8(p), true, false
}

func (m plannerModel) round(s *plannerState, p int) {
	if s.planner[p].state != alive {
		return
	}
	for s.planner[p].has {
		m.write(s, p)
	}
	for m.look(s, p); s.planner[p].has; {
		m.write(s, p)
	}
}

// passTime ends an expiry period.
func (m plannerModel) passTime(s *plannerState) {
	s.expired, s.renewed = !s.renewed, false
	for k := range s.node {
		s.node[k].isNew, s.planner[k].isNew = false, false
	}
	if m.separateBeat && s.owner != none && s.planner[s.owner].state == hung {
		s.expired = false
	}
}

func (m plannerModel) next(s plannerState, emit func(string, plannerState)) {
	for k, j := range s.job {
		t := s
		switch {
		case j.node == waits:
			for n := range t.node {
				t = s
				if at := take(&passState{offers: t.node[n].offers}, m.wants[k], m.busy(s, n)); at != none {
					t.node[n].offers &^= 1 << at
					t.job[k] = ran{int8(n), at}
					emit(fmt.Sprint("job ", k, " starts on node ", n), t)
				}
			}
		case j.node >= 0:
			t.job[k] = ran{ended, none}
			emit(fmt.Sprint("job ", k, " ends"), t)
		}
	}
	for n := range s.node {
		t := s
		m.pass(&t, n)
		emit(fmt.Sprint("pass of node ", n), t)
	}
	for p := range m.planners {
		t := s
		switch {
		case s.planner[p].state != alive:
		case s.planner[p].has:
			m.write(&t, p)
			emit(fmt.Sprint("planner ", p, " writes"), t)
		default:
			m.look(&t, p)
			emit(fmt.Sprint("planner ", p, " plans"), t)
			m.lookEarly(s, p, emit)
		}
	}
	t := s
	m.passTime(&t)
	emit("the expiry passes", t)
	if s.failures > 0 {
		m.fail(s, emit)
	}
}

// fail emits the failures. A lost or late datagram needs no step of its own, because every step may happen at any
// time.
func (m plannerModel) fail(s plannerState, emit func(string, plannerState)) {
	s.failures--
	for p := range m.planners {
		for _, state := range []uint8{absent, alive, hung} {
			t := s
			switch was := s.planner[p].state; {
			case was == state:
				continue
			case was == hung && state == alive:
				t.planner[p].state = alive // it continues where it was
			case state == hung && was == alive:
				t.planner[p].state = hung
			default:
				t.planner[p] = modelPlanner{state: state, isNew: state == alive}
			}
			emit(fmt.Sprint("planner ", p, " changes to state ", state), t)
		}
	}
	for n := range s.node {
		t := s
		t.node[n].isNew, t.node[n].offers = true, 0
		emit(fmt.Sprint("the agent of node ", n, " is killed and starts"), t)
	}
	t := s
	t.node[0].offers, t.node[1].offers = 0, 0
	emit("slurmctld restarts", t)
	for n := range t.node {
		t.node[n].part, t.node[n].has = 0, false
	}
	t.owner = none
	emit("slurmctld restarts without the state file", t)
}

// wrong checks each running job, and the offers after settle.
func (m plannerModel) wrong(s plannerState) string {
	if a, b := s.job[0], s.job[1]; a.node >= 0 && a.node == b.node && unitsOf[a.at]&unitsOf[b.at] != 0 {
		return "two leases of one unit"
	}
	m.settle(&s)
	busy := [2]uint8{m.busy(s, 0), m.busy(s, 1)}
	for planner := range 2 {
		if parts := m.plan(s, busy, planner); parts == [2]uint8{s.node[0].offers, s.node[1].offers} {
			return ""
		}
	}
	return fmt.Sprintf("wrong offers after one poll interval: %+v", s.node)
}

// settle lets time pass without a failure: two expiry periods in which the planners look, and then one poll interval,
// in which each agent polls, the planners react and the agents react to the planners.
func (m plannerModel) settle(s *plannerState) {
	for range 2 {
		m.passTime(s)
		for p := range m.planners {
			m.round(s, p)
		}
	}
	for n := range s.node {
		m.pass(s, n)
	}
	for n := range s.node { // if two planners plan at the same time, another planner is the last before each pass
		for k := range m.planners {
			m.round(s, (k+n)%m.planners)
		}
		m.pass(s, n)
	}
}

// TestPlanners checks that the offers are right one poll interval after the last failure. With -short, two planners
// plan only one job, because with two jobs the model has 1.4 million states.
func TestPlanners(t *testing.T) {
	for planners := range 3 {
		if planners < 2 || !testing.Short() {
			holds(t, plannerModel{planners: planners, wants: [2]int8{big, small}, failures: int8(2 - planners)})
		}
		one := plannerModel{planners: planners, wants: [2]int8{big, none}, failures: int8(3 - planners), oneJob: true}
		holds(t, one)
	}
}

// TestPlannersWithoutARule checks that the model detects the absence of each rule.
func TestPlannersWithoutARule(t *testing.T) {
	for name, m := range map[string]plannerModel{
		"a part never expires":                      {planners: 1, failures: 1, neverExpires: true},
		"the heartbeat continues in a hung planner": {planners: 1, failures: 1, separateBeat: true},
		"the planner writes only new parts":         {planners: 2, failures: 2, writesOnlyNew: true},
		"two planners plan at the same time":        {planners: 2, neverYields: true},
		"agents do not plan for themselves":         {planners: 1, failures: 1, noFallback: true},
		"the planner always defers parts":           {planners: 1, alwaysDefers: true},
	} {
		t.Run(name, func(t *testing.T) {
			m.wants = [2]int8{small, big}
			fails(t, m)
		})
	}
}
