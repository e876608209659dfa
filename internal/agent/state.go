package agent

import (
	"math"
	"slices"
	"sync"

	"caelum/internal/gpu"
	"caelum/internal/ledger"
	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/place"
)

// card is one GPU of the node: what the driver says it is, and what the agent knows to be on it.
type card struct {
	// Of it only Problem changes, under Agent.mu: see [Agent.usable].
	gpu.GPU
	// hardware serialises the calls that change this GPU. It is taken before Agent.mu, never under it.
	hardware sync.Mutex
	// offerable are the placements of the profiles that the site puts on offer.
	offerable mig.Layout
	// ours are the instances that the agent made, by placement.
	ours map[int]*instance
	// foreign are the instances that somebody else made: occupied, never touched.
	foreign []gpu.Instance
	// slots are the indices of gres/gpu that this GPU contributes. Slurm's binding of slots is anonymous: the
	// numbers only make as many of them as the GPU can hold instances.
	slots []int
	// unlisted: the driver did not list the GPU's processes when it was last asked.
	unlisted bool
	// asked gets the answer of a discovery that is under way. It is used under hardware.
	asked chan gpu.GPU
}

// usable reports whether a GPU can be managed. One that is lost stops being so, until it is back.
func (a *Agent) usable(c *card) bool { return a.problem(c) == "" }

// problem is why a GPU cannot be managed, empty if it can.
func (a *Agent) problem(c *card) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return c.Problem
}

// instance is an instance that the agent made.
type instance struct {
	ledger.Instance
	cis  []int  // its compute instances, which name its capability files
	used bool   // processes were seen on it that are no job's, or that hold its capability files open
	note string // which processes hold its capability files open
	// unlisted: the driver did not tell which processes are on it when it was last asked.
	unlisted bool
}

func (in *instance) idle() bool { return in.Job == 0 && !in.Stuck }

// hwOf is an instance as the hardware package knows it.
func (a *Agent) hwOf(in *instance) gpu.Instance {
	a.mu.Lock()
	defer a.mu.Unlock()
	return gpu.Instance{GI: in.GI, Profile: in.Profile, Start: in.Start, Size: in.Size, CIs: in.cis, UUID: in.UUID}
}

// stands is what exists on the GPU at this moment, promises left out.
func (c *card) stands() place.GPU {
	g := place.GPU{Model: c.Model}
	for p, in := range c.ours {
		switch {
		case in.Stuck:
			g.Blocked |= c.Model.Units(p)
		case in.Job != 0:
			g.Layout = g.Layout.With(p)
		default:
			g.Idle = g.Idle.With(p)
		}
	}
	for _, f := range c.foreign {
		if p, ok := c.Model.Placement(f.Profile, f.Start); ok && c.Model.Fits(g.Layout, p) {
			g.Layout = g.Layout.With(p)
		} else {
			g.Blocked |= (1<<f.Size - 1) << f.Start
		}
	}
	return g
}

// pendingLease is what a job takes that slurmctld has started here and that has no lease yet. Without spots it is a
// claim: no room has been found for it.
type pendingLease struct {
	wants []offer.Want
	spots []offer.Spot
	// leasing is set while the job's prolog is being served: the promise is then not dropped for a job that has left
	// slurmctld's list.
	leasing bool
}

// view is the state as the planner needs it. The caller holds a.mu.
func (a *Agent) view() []offer.GPU {
	gpus := make([]offer.GPU, len(a.cards))
	for i, c := range a.cards {
		if c.Problem != "" {
			continue
		}
		s := c.stands()
		gpus[i] = offer.GPU{Model: c.Model, Offerable: c.offerable, Busy: s.Layout, Blocked: s.Blocked, Idle: s.Idle}
		for p, in := range c.ours {
			if s.Layout.Has(p) {
				gpus[i].Expect(p, a.endOf(in.Job))
			}
		}
	}
	for job, pr := range a.pending {
		a.hold(
			gpus,
			job,
			slices.DeleteFunc(slices.Clone(pr.spots), func(s offer.Spot) bool { return gpus[s.GPU].Model == nil }),
		)
	}
	return gpus
}

// endOf is when a job on the node is expected to end, in Unix seconds; +Inf: unknown. The caller holds a.mu.
func (a *Agent) endOf(job uint32) float64 {
	if end := a.here[job].ExpectedEnd(a.now()); !end.IsZero() {
		return float64(end.Unix())
	}
	return math.Inf(1)
}

// takeOffers gives a job the slices that it took from the offers in force; ok is false, and nothing is taken, when they
// are not all there. The caller holds a.mu.
func (a *Agent) takeOffers(job uint32, wants []offer.Want) (*pendingLease, bool) {
	gpus := a.view()
	offers := slices.Clone(a.offers)
	var spots []offer.Spot
	for _, w := range wants {
		for range w.Count {
			s, ok := pick(gpus, offer.Plan{Offers: offers, AdvertisedAs: a.as}, w.Profile)
			if !ok {
				return nil, false
			}
			offers[s.GPU] = offers[s.GPU].Without(s.Placement)
			gpus[s.GPU].Hold(s.Placement, math.Inf(1))
			spots = append(spots, s)
		}
	}
	pr := &pendingLease{wants: wants, spots: spots}
	a.pending[job] = pr
	a.offers = offers
	a.version++
	return pr, true
}

// pick chooses among the placements that are on offer as a profile: an idle instance first, then where most maximal
// layouts stay reachable.
func pick(gpus []offer.GPU, p offer.Plan, profile string) (best offer.Spot, ok bool) {
	top := -1
	for gi, g := range gpus {
		if g.Model == nil {
			continue
		}
		for i := range p.Offers[gi].Indices() {
			if p.Name(g.Model, offer.Spot{GPU: gi, Placement: i}) != profile {
				continue
			}
			score := g.Model.ReachBeside(g.Busy.With(i), g.Blocked)
			if g.Idle.Has(i) {
				score += 1 << 20
			}
			if score > top {
				best, top, ok = offer.Spot{GPU: gi, Placement: i}, score, true
			}
		}
	}
	return best, ok
}

// settleClaims finds room for the jobs that have none yet, all at once if that can be, else as many as fit in
// the order of their ids. It changes the view it is given, not the agent. The caller holds a.mu.
func (a *Agent) settleClaims(gpus []offer.GPU) map[uint32][]offer.Spot {
	var claims []*offer.Job
	for job, pr := range a.pending {
		if pr.spots == nil {
			claims = append(claims, &offer.Job{ID: job, Wants: pr.wants, Runs: math.Inf(1), Limit: math.Inf(1)})
		}
	}
	slices.SortFunc(claims, func(x, y *offer.Job) int { return int(x.ID) - int(y.ID) })
	settled, all := offer.Pack(gpus, claims)
	if !all {
		settled = map[uint32][]offer.Spot{}
		for _, c := range claims {
			if spots, _ := offer.NewCluster(a.policy, gpus).Find(c, nil); spots != nil {
				settled[c.ID] = spots
				a.hold(gpus, c.ID, spots)
			}
		}
		return settled
	}
	for job, spots := range settled {
		a.hold(gpus, job, spots)
	}
	return settled
}

// hold counts a job's spots as busy in a view. The caller holds a.mu.
func (a *Agent) hold(gpus []offer.GPU, job uint32, spots []offer.Spot) {
	for _, s := range spots {
		gpus[s.GPU].Hold(s.Placement, a.endOf(job))
	}
}
