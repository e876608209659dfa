package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"caelum/internal/core/offer"
	"caelum/internal/node/api"
	"caelum/internal/node/state"
	"caelum/internal/version"
)

// Status implements api.Handler. It returns the node's status.
func (a *Agent) Status(context.Context) (*api.Status, error) {
	pass := a.publisher.Last()
	a.node.Lock()
	defer a.node.Unlock()
	s := &api.Status{
		Node:             a.cfg.Node,
		Version:          version.Version,
		Profiles:         a.node.Profiles,
		Stale:            pass.Stale,
		Published:        pass.Published,
		Reserved:         a.node.Reserved,
		Closed:           pass.Closed,
		SummariesWaiting: a.usage.SummariesWaiting(),
	}
	if deaf := a.deaf.Load(); deaf != nil {
		s.Deaf = *deaf
	}
	s.Excess, s.ExcessShort = pass.Excess, pass.Short
	if !pass.At.IsZero() {
		s.PublishedAt = pass.At.Unix()
	}
	if pass.Err != nil {
		s.PublishError = pass.Err.Error()
	}
	for i, c := range a.node.Cards {
		s.GPUs = append(s.GPUs, a.statusOf(i, c))
	}
	for _, id := range slices.Sorted(maps.Keys(a.node.Leases)) {
		s.Leases = append(s.Leases, a.usage.WithUse(*a.node.Leases[id]))
	}
	return s, nil
}

// statusOf returns the status of GPU i. The caller holds the node's lock.
func (a *Agent) statusOf(i int, c *state.Card) api.GPU {
	g := api.GPU{Index: c.Index, UUID: c.UUID, Model: c.Name, Slots: c.Slots, Problem: c.Problem,
		Held: c.HeldBack(), Unlisted: c.Unlisted, Xids: slices.Clone(c.Xids)}
	if c.Model == nil {
		return g
	}
	view := a.node.View()[i]
	g.Type, g.Grid, g.Layout = c.Model.Type, c.Model.Grid, c.Model.DrawBeside(view.Busy, view.Blocked)
	place := func(p int) api.Placement {
		pl := c.Model.Placements[p]
		return api.Placement{Profile: c.Model.Profiles[pl.Profile].Name, Start: pl.Start, Size: pl.Size}
	}
	for p, in := range c.Ours {
		state := api.StateIdle
		if in.Stuck {
			state = api.StateStuck
		} else if in.Job != 0 {
			state = api.StateLeased
		}
		at := place(p)
		at.As = a.node.CountedAs(in)
		g.Instances = append(
			g.Instances,
			api.Instance{
				Placement: at, GI: in.GI, UUID: in.UUID, State: state, Job: in.Job, SMs: in.SMs, MaxSMs: in.MaxSMs,
				Note: noteOn(in),
			},
		)
	}
	for _, f := range c.Foreign {
		g.Instances = append(
			g.Instances,
			api.Instance{
				Placement: api.Placement{Profile: f.Profile, Start: f.Start, Size: f.Size},
				GI:        f.GI,
				UUID:      f.UUID,
				State:     api.StateForeign,
				SMs:       f.SMs,
				MaxSMs:    f.MaxSMs,
			},
		)
	}
	for job, pr := range a.node.Pending {
		for _, s := range pr.Spots {
			if in := c.Ours[s.Placement]; s.GPU == i && (in == nil || in.Job != job) {
				g.Instances = append(
					g.Instances,
					api.Instance{Placement: place(s.Placement), State: api.StatePromised, Job: job},
				)
			}
		}
	}
	slices.SortFunc(g.Instances, func(x, y api.Instance) int { return cmp.Compare(x.Start, y.Start) })
	for p := range a.node.Offers[i].Indices() {
		on := place(p)
		on.As = a.node.AdvertisedAs[offer.Spot{GPU: i, Placement: p}]
		g.Offers = append(g.Offers, on)
	}
	return g
}

// Job implements api.Handler. It returns a job's lease.
func (a *Agent) Job(_ context.Context, id uint32) (*api.Lease, error) {
	a.node.Lock()
	defer a.node.Unlock()
	if l := a.node.Leases[id]; l != nil {
		lease := a.usage.WithUse(*l)
		return &lease, nil
	}
	return nil, api.NoLease(id)
}
