package plan

import (
	"math"
	"slices"
	"strings"
	"time"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

// known holds the information that a Planner has about a node.
type known struct {
	record slurm.Node
	round  uint64 // the last round in which a snapshot contained the node
	slot   int    // the index in verdicts
	stamp  uint64 // changes whenever the record changes; never used for another node or record
	usable bool   // slurmctld starts jobs on the node, and its state is valid
	off    bool   // the node is powered down (eligible.PoweredDown)

	parsed  *parsedState // the state in Extra
	loaded  *parsedState // the state from which the GPUs in the cluster were computed
	member  int          // the index of the node in the cluster
	jobs    []*slurm.Job // the jobs that hold resources on the node, in slurmctld's order
	running []occupant   // see occupants; nil if not computed in this round

	adjusted bool // the GPUs in the cluster differ from parsed
}

// parsedState is the state of a node's GPUs according to Extra.
type parsedState struct {
	State
	soonest float64               // the earliest end in seconds
	endless bool                  // a placement is busy, but no end is known
	holders map[offer.Spot]uint32 // see holdersIn
}

// node returns the information about a node, after updating it from the node's record.
func (p *Planner) node(record *slurm.Node) *known {
	n := p.nodes[record.Name]
	if n == nil {
		n = &known{slot: p.slots}
		p.nodes[strings.Clone(record.Name)], p.slots = n, p.slots+1
	}
	n.round, n.jobs, n.running = p.round, n.jobs[:0], nil
	if n.stamp > 0 && n.record.Same(record) {
		n.record = *record // see Planner.entry
		return n
	}
	p.stamps++
	n.stamp, p.changed = p.stamps, p.round
	if off := eligible.PoweredDown(*record); n.record.Extra != record.Extra || n.off != off {
		n.off = off
		n.parse(record.Extra)
	}
	n.record = *record
	n.usable = n.parsed != nil && eligible.Schedulable(*record) && !record.Unregistered
	return n
}

// parse sets the state of the node's GPUs. The GPUs of a node that is powered down have no instances, regardless of
// what its agent published before.
func (n *known) parse(extra string) {
	n.parsed = nil
	text := StateIn(extra)
	if text == "" {
		return
	}
	state, err := Parse(text)
	if err != nil {
		return
	}
	if n.off {
		for k, g := range state.GPUs {
			state.GPUs[k] = place.GPU{Model: g.Model, Offerable: g.Offerable}
		}
	}
	setNVLink(state.GPUs, extra)
	s := &parsedState{State: state, soonest: math.Inf(1)}
	if !n.off {
		s.holders = holdersIn(extra, state.GPUs)
	}
	for k := range s.GPUs {
		s.endless = s.endless || s.GPUs[k].Busy != 0
		for _, end := range s.GPUs[k].Ends {
			s.soonest = min(s.soonest, end)
		}
	}
	s.endless = s.endless && math.IsInf(s.soonest, 1)
	n.parsed = s
}

// setJobs sets the jobs that hold resources on each node.
func (p *Planner) setJobs(all []slurm.Job) {
	for k := range all {
		j := &all[k]
		if !j.Holds() {
			continue
		}
		for _, name := range j.Nodes {
			if n := p.nodes[name]; n != nil {
				n.jobs = append(n.jobs, j)
			}
		}
	}
}

// temporary reports whether the state of the node's GPUs currently differs from the state in Extra.
func (n *known) temporary(now float64) bool {
	return n.parsed.soonest < now || n.parsed.endless && len(n.jobs) > 0 || n.earlyEnds(now) != nil
}

// current returns the state of the node's GPUs at the given time. now and at are the same time; at is in seconds.
func (n *known) current(at time.Time, now float64) []place.GPU {
	if n.adjusted = n.temporary(now); !n.adjusted {
		return n.parsed.GPUs
	}
	gpus := slices.Clone(n.parsed.GPUs)
	for k := range gpus {
		gpus[k].Ends = slices.Clone(gpus[k].Ends)
	}
	fillEnds(gpus, runningOn(n.jobs, at))
	for k := range gpus {
		overrun(&gpus[k], now)
	}
	for at, end := range n.earlyEnds(now) {
		gpus[at.GPU].Expect(at.Placement, end)
	}
	return gpus
}

// occupants returns the jobs that hold CPUs and memory on the node.
func (n *known) occupants(now time.Time) []occupant {
	if n.running == nil {
		n.running = occupants(n.jobs, now)
	}
	return n.running
}

// held returns the number of gres/mig slices of a profile that jobs hold on the node, according to slurmctld's job
// records.
func (n *known) held(profile string) (count int) {
	for _, j := range n.jobs {
		for _, g := range j.SlicesPerNode() {
			if g.Type == profile {
				count += g.Count
			}
		}
	}
	return count
}
