package agent

import (
	"math"
	"slices"
	"sync"

	"caelum/internal/gpu"
	"caelum/internal/inventory"
	"caelum/internal/ledger"
	"caelum/internal/offer"
	"caelum/internal/place"
)

// card is one GPU of the node: its properties by the driver, and the instances on it.
type card struct {
	// GPU has the properties of the GPU. Of its fields only Problem changes, under Agent.mu: see [Agent.usable].
	inventory.GPU
	// hardware serialises the calls that change this GPU. It must be locked before Agent.mu, never while Agent.mu is
	// held.
	hardware sync.Mutex
	// ours are the instances that the agent made, by placement.
	ours map[int]*instance
	// foreign are the instances that another program made. They occupy their units, and the agent never changes them.
	foreign []gpu.Instance
	// unlisted is set if the driver did not list the GPU's processes at the last attempt.
	unlisted bool
	// asked receives the result of a discovery that is under way. It is used under hardware.
	asked chan gpu.GPU
}

// usable reports whether the agent can manage a GPU. It returns false for a lost GPU until that GPU is back.
func (a *Agent) usable(c *card) bool { return a.problem(c) == "" }

// usableGPUs returns the indices of the GPUs that the agent can manage.
func (a *Agent) usableGPUs() (gpus []int) {
	for g, c := range a.cards {
		if a.usable(c) {
			gpus = append(gpus, g)
		}
	}
	return gpus
}

// problem returns the reason why the agent cannot manage a GPU, empty if it can.
func (a *Agent) problem(c *card) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return c.Problem
}

// instance is an instance that the agent made.
type instance struct {
	ledger.Instance
	cis  []int  // the ids of its compute instances, which are part of the names of its capability files
	used bool   // processes without a job were seen on it, or processes hold its capability files open
	note string // names the processes that hold its capability files open
	// unlisted is set if the driver did not list the processes on the instance at the last attempt.
	unlisted bool
	// strangers are the processes on the instance that do not belong to its job, by pid.
	strangers map[int]stranger
}

func (in *instance) idle() bool { return in.Job == 0 && !in.Stuck }

// hwOf returns the instance in the form of package gpu.
func (a *Agent) hwOf(in *instance) gpu.Instance {
	a.mu.Lock()
	defer a.mu.Unlock()
	return gpu.Instance{GI: in.GI, Profile: in.Profile, Start: in.Start, Size: in.Size, CIs: in.cis, UUID: in.UUID}
}

// existing returns the instances that exist on the GPU, without pending leases.
func (c *card) existing() place.GPU {
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

// pendingLease has the slices of a job that slurmctld has started here and that has no lease yet. If spots is nil, the
// pending lease is unplaced: the agent has not found room for it.
type pendingLease struct {
	wants []offer.Want
	spots []offer.Spot
	// leasing is set while the agent serves the job's prolog. The pending lease is then not removed if the job is
	// missing in slurmctld's list.
	leasing bool
}

// view returns the state of the GPUs in the form of the planner, with pending leases. The caller holds a.mu.
func (a *Agent) view() []offer.GPU {
	gpus := make([]offer.GPU, len(a.cards))
	for i, c := range a.cards {
		if c.Problem != "" {
			continue
		}
		s := c.existing()
		gpus[i] = offer.GPU{Model: c.Model, Offerable: c.Offerable, Busy: s.Layout, Blocked: s.Blocked, Idle: s.Idle}
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

// endOf returns the time at which a job on the node is expected to end, in Unix seconds; +Inf if it is unknown. The
// caller holds a.mu.
func (a *Agent) endOf(job uint32) float64 {
	if end := a.here[job].ExpectedEnd(a.now()); !end.IsZero() {
		return float64(end.Unix())
	}
	return math.Inf(1)
}

// takeOffers records a pending lease for a job at offers in force, which it withdraws. If the offers do not have all
// wanted slices, it changes nothing and returns false. The caller holds a.mu.
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

// pick returns the best placement among the offers of a profile: an idle instance if there is one, else the placement
// after which most maximal layouts stay reachable. ok is false if the profile is not offered.
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

// placePending finds room for the unplaced pending leases. If not all fit, it places as many as fit, in the order of
// the job ids. It changes gpus but not the agent. The caller holds a.mu.
func (a *Agent) placePending(gpus []offer.GPU) map[uint32][]offer.Spot {
	var unplaced []*offer.Job
	for job, pr := range a.pending {
		if pr.spots == nil {
			unplaced = append(unplaced, &offer.Job{ID: job, Wants: pr.wants, Runs: math.Inf(1), Limit: math.Inf(1)})
		}
	}
	slices.SortFunc(unplaced, func(x, y *offer.Job) int { return int(x.ID) - int(y.ID) })
	found, all := offer.Pack(gpus, unplaced)
	if !all {
		found = map[uint32][]offer.Spot{}
		for _, j := range unplaced {
			if spots, _ := offer.NewCluster(a.policy, gpus).Find(j, nil); spots != nil {
				found[j.ID] = spots
				a.hold(gpus, j.ID, spots)
			}
		}
		return found
	}
	for job, spots := range found {
		a.hold(gpus, job, spots)
	}
	return found
}

// hold counts a job's spots as busy in gpus. The caller holds a.mu.
func (a *Agent) hold(gpus []offer.GPU, job uint32, spots []offer.Spot) {
	for _, s := range spots {
		gpus[s.GPU].Hold(s.Placement, a.endOf(job))
	}
}
