package sim

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
)

// offers is the space on the GPUs in which agents place slices on demand, as in production. The agents publish offers,
// and slurmctld starts jobs only on offered slices:
//
//	an event                  a job is submitted, starts, ends or returns from a requeue
//	publishing later          the agents publish new offers. Package offer plans them for the current queue and slices
//	at the next whole second  slurmctld processes the queue, and starts each job for which a node offers the profile on
//	                          the first node with the offer. The agent chooses the placement on the node
//
// slurmctld may therefore read outdated offers, and several jobs may start under the same plan. A job may start on a
// node other than the planned one, and even jobs that are not in the plan may start. Every job that starts is given its
// slice, because every subset of the offers can be carved.
type offers struct {
	*cut
	on        offer.Plan // the current offers
	planned   map[*Job][]place.Spot
	found     map[*Job]bool    // jobs submitted since the last plan; true if the job's slices were already offered
	publishAt float64          // when the agents next publish; +Inf if there has been no event since the last plan
	tick      float64          // when slurmctld next reads the queue; +Inf if it is waiting for the next event
	onPlan    func(offer.Plan) // called with each plan; may be nil
}

// publishing is the time, in seconds, from an event until the resulting offers are published by agents that the watcher
// notifies.
const publishing = 0.1

func newOffers(s *simulation) *offers {
	return &offers{
		cut:       newCut(s),
		on:        offer.Plan{Offers: make([]mig.Layout, len(s.GPUs))},
		found:     map[*Job]bool{},
		publishAt: math.Inf(1),
		tick:      math.Inf(1),
	}
}

// next returns the time of the next action by the agents or slurmctld.
func (o *offers) next() float64 { return min(o.publishAt, o.tick) }

// happened schedules the next publication and slurmctld's next pass after an event.
func (o *offers) happened() {
	now := o.s.now
	o.publishAt, o.tick = min(o.publishAt, now+publishing), min(o.tick, math.Floor(now)+1)
}

// submitted records whether a new job's slices are already offered.
func (o *offers) submitted(j *Job) {
	if s := o.s; s.Sizing == Adaptive {
		if o.Speculative == nil {
			o.Speculative = map[string]bool{}
		}
		o.Speculative[j.asksFor] = !offer.Growable(j.offer)
	}
	o.found[j] = o.grant(j) != nil
	o.happened()
}

// act publishes offers and starts jobs when a publication or a pass is due.
func (o *offers) act() {
	if o.publishAt <= o.s.now {
		o.publish()
	}
	if o.tick <= o.s.now {
		o.schedule()
	}
}

// publish makes a plan for the current queue and replaces the offers.
func (o *offers) publish() {
	s := o.s
	plan := o.plan()
	if o.onPlan != nil {
		o.onPlan(plan)
	}
	o.on, o.planned = plan, map[*Job][]place.Spot{}
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

// prompt counts a job that can start without waiting for others.
func (o *offers) prompt(j *Job) {
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

// schedule simulates one of slurmctld's passes through the queue.
func (o *offers) schedule() {
	s := o.s
	o.tick = math.Inf(1)
	s.expire()
	none := make([]bool, len(s.needs)) // the requests for one slice that no offer satisfies
	for k := 0; k < s.queue.len(); {
		j := s.queue.at(k)
		if none[j.need] {
			k++
			continue
		}
		spots := o.grant(j)
		if spots == nil {
			none[j.need] = j.slices() == 1
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

// grant returns the offers to allocate to a job, taken from the first nodes that offer as many slices per node as the
// job needs. It returns nil if there are too few such nodes.
func (o *offers) grant(j *Job) (got []place.Spot) {
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
		slices.SortStableFunc(here, func(a, b place.Spot) int { // the planned spots come first
			return cmp.Compare(slices.Index(planned, b), slices.Index(planned, a))
		})
		if got = append(got, here[:each]...); len(got) == j.slices() {
			return got
		}
	}
	return nil
}
