package sim

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/place"
)

// offers is GPUs that are cut on demand as it is in production: agents put slices on offer, and slurmctld gives out
// what is on offer, knowing nothing else.
//
//	an event                 a job is submitted, starts, ends, comes back
//	publishing later         the agents' offers follow it: package offer plans for what stands and who waits then
//	at the next whole second slurmctld goes through the queue, and starts everybody who finds what he wants on offer: on the first node
//	                         that has it, where on the node is the agent's choice
//
// So offers may be old when slurmctld looks, several jobs may start on one plan, and a job may start in another place
// than was planned for it, or although nobody planned for it. What never happens is that a job finds its slice gone:
// every subset of the offers can be carved.
type offers struct {
	*cut
	on        offer.Plan // what is on offer
	planned   map[*job][]place.Spot
	found     map[*job]bool    // submitted since the last plan: whether what it wants was on offer then
	publishAt float64          // +Inf: nothing has happened since the last plan
	tick      float64          // when slurmctld looks next; +Inf: not before something happens
	watch     func(offer.Plan) // nil, or told of every plan
}

// publishing is how long it takes from an event to the offers that follow it, in seconds: agents that a watcher wakes.
const publishing = 0.1

func newOffers(s *simulation) *offers {
	return &offers{
		cut:       newCut(s),
		on:        offer.Plan{Offers: make([]mig.Layout, len(s.GPUs))},
		found:     map[*job]bool{},
		publishAt: math.Inf(1),
		tick:      math.Inf(1),
	}
}

// next is when the agents or slurmctld act next.
func (o *offers) next() float64 { return min(o.publishAt, o.tick) }

// happened has everybody look again.
func (o *offers) happened() {
	now := o.s.now
	o.publishAt, o.tick = min(o.publishAt, now+publishing), min(o.tick, math.Floor(now)+1)
}

// submitted notes whether a job finds what it wants on offer.
func (o *offers) submitted(j *job) {
	o.found[j] = o.grant(j) != nil
	o.happened()
}

// act does what is due now.
func (o *offers) act() {
	if o.publishAt <= o.s.now {
		o.publish()
	}
	if o.tick <= o.s.now {
		o.schedule()
	}
}

func (o *offers) publish() {
	s := o.s
	o.foresee()
	o.gather(-1)
	var jobs []*offer.Job
	for k := range s.queue.len() {
		j := s.queue.at(k)
		j.offer.Runs, _ = s.total(j.said, 0)
		jobs = append(jobs, &j.offer)
	}
	plan := offer.Make(&o.Cluster, jobs, s.Discipline == FIFO)
	if o.watch != nil {
		o.watch(plan)
	}
	o.on, o.planned = plan, map[*job][]place.Spot{}
	for k, spots := range plan.Spots {
		if spots != nil {
			j := s.queue.at(k)
			o.planned[j] = spots
			o.prompt(j)
		}
	}
	clear(o.found)
	o.publishAt = math.Inf(1)
	o.tick = min(o.tick, math.Floor(s.now)+1)
}

// prompt counts a job that could start as soon as it was submitted.
func (o *offers) prompt(j *job) {
	found, fresh := o.found[j]
	if !fresh {
		return
	}
	o.s.result.Prompt++
	if found {
		o.s.result.Found++
	}
	delete(o.found, j)
}

// schedule is slurmctld's.
func (o *offers) schedule() {
	s := o.s
	o.tick = math.Inf(1)
	for k := 0; k < s.queue.len(); {
		j := s.queue.at(k)
		spots := o.grant(j)
		if spots == nil {
			k++
			continue
		}
		o.prompt(j)
		for _, at := range spots {
			o.on.Offers[at.GPU] = o.on.Offers[at.GPU].Without(at.Placement)
		}
		s.queue.remove(k)
		o.start(j, spots)
		o.happened()
	}
}

// grant is what a job gets of what is on offer; nil: not all that it wants is. It goes to the first nodes that have its
// share.
func (o *offers) grant(j *job) (got []place.Spot) {
	planned := o.planned[j]
	each := j.offer.Wants[0].Count
	for _, gpus := range o.Nodes {
		var here []place.Spot
		for _, g := range gpus {
			for i := range o.on.Offers[g].Indices() {
				if at := (place.Spot{GPU: g, Placement: i}); o.on.Name(o.s.GPUs[g], at) == j.asksFor {
					here = append(here, at)
				}
			}
		}
		if len(here) < each {
			continue
		}
		slices.SortStableFunc(here, func(a, b place.Spot) int { // first what was planned for it
			return cmp.Compare(slices.Index(planned, b), slices.Index(planned, a))
		})
		if got = append(got, here[:each]...); len(got) == j.slices() {
			return got
		}
	}
	return nil
}
