package publish

import (
	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/part"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/node/api"
	"caelum/internal/slurm"
)

// planFromPart sets the fields of d from the node's part of the watcher's plan.
func (p *Publisher) planFromPart(d *nodePlan, node slurm.Node, own part.Part) {
	d.back = plan.BackIn(node.Comment)
	if !node.Unregistered && eligible.Schedulable(node) {
		d.set(own)
	}
}

// set sets the offers, the jobs and the reservation from the node's part of a plan. The watcher's part may be wrong or
// older than the node's state, and the node may have GPU models with profiles that it does not publish, so set uses
// only placements that the agent can carve alongside the node's leases.
func (d *nodePlan) set(own part.Part) {
	d.mine.AdvertisedAs = map[offer.Spot]string{}
	for _, o := range own.Offers {
		s, ok := spotOn(d.gpus, o.Spot)
		if !ok {
			continue
		}
		g := d.gpus[s.GPU]
		fits := g.Model.Fits(g.Busy|d.mine.Offers[s.GPU], s.Placement) && g.Offerable.Has(s.Placement) &&
			g.Model.Units(s.Placement)&g.Blocked == 0
		if !fits || o.As != "" && !atLeast(g, s.Placement, o.As) {
			continue
		}
		d.mine.Offers[s.GPU] = d.mine.Offers[s.GPU].With(s.Placement)
		if o.As != "" {
			d.mine.AdvertisedAs[s] = o.As
		}
	}
	d.setPlanned(own.Jobs)
	d.reserved = reservedOn(d.gpus, own.Reserved)
}

// setPlanned sets the spots of the waiting jobs, and the list of the jobs whose spots are all on offer.
func (d *nodePlan) setPlanned(jobs []part.Job) {
	d.planned = map[uint32][][]offer.Spot{}
	for _, j := range jobs {
		var here []offer.Spot
		offered := true
		for _, at := range j.Spots {
			s, ok := spotOn(d.gpus, at)
			if ok {
				here = append(here, s)
			}
			offered = offered && ok && d.mine.Offers[s.GPU].Has(s.Placement)
		}
		if here != nil {
			d.planned[j.Key()] = append(d.planned[j.Key()], here)
		}
		if offered {
			d.served = append(d.served, j.ID)
		}
	}
}

// reservedOn converts a reservation to the form used in the agent's status.
func reservedOn(gpus []place.GPU, r *part.Reservation) *api.Reservation {
	if r == nil {
		return nil
	}
	reserved := &api.Reservation{Job: r.Job, At: r.At}
	for _, at := range r.Spots {
		if s, ok := spotOn(gpus, at); ok {
			m := gpus[s.GPU].Model
			placement := api.Placement{Profile: at.Profile, Start: at.Start, Size: m.Placements[s.Placement].Size}
			reserved.Slices = append(reserved.Slices, api.ReservedSlice{GPU: s.GPU, Placement: placement})
		}
	}
	return reserved
}

// spotOn converts a spot from a part of the plan. ok is false if the node's GPUs do not have the placement.
func spotOn(gpus []place.GPU, at part.Spot) (s offer.Spot, ok bool) {
	if at.GPU >= len(gpus) || gpus[at.GPU].Model == nil {
		return s, false
	}
	i, ok := gpus[at.GPU].Model.Placement(at.Profile, at.Start)
	return offer.Spot{GPU: at.GPU, Placement: i}, ok
}

// atLeast reports whether a placement can be offered under a profile name. The slice must be at least as large as the
// profile that slurmctld counts.
func atLeast(g place.GPU, placement int, name string) bool {
	least, ok := g.Model.EquivalentProfile(name, g.Offerable)
	if !ok {
		return false
	}
	k, _ := g.Model.ProfileIndex(least)
	has := g.Model.Profiles[g.Model.Placements[placement].Profile]
	return g.Model.Profiles[k].Size <= has.Size && g.Model.Profiles[k].Compute <= has.Compute
}
