package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/ledger"
	"caelum/internal/node/state"
)

// A fraction's start and size are only labels (state.Node.Repack). The agent changes them for two reasons:
//
//   - Before each pass, it moves the fractions of a GPU together if a larger one then fits. A plan that was made from
//     the earlier state, also the watcher's, remains safe: the agent uses only spots that fit beside the instances, and
//     slurmctld counts profiles, not spots. The pass publishes the new state, and the next plan has the new spots.
//   - A running job's fraction grows in place before its memory runs out.

// makeRoom moves the fractions of each GPU together if a larger one then fits. A GPU on which the driver is working is
// left to the next pass.
func (a *Agent) makeRoom() {
	for g, c := range a.node.Cards {
		if !a.divided(g) || !c.Hardware.TryLock() {
			continue
		}
		if _, err := a.repack(g, nil); err != nil {
			a.log.WithError(err).WithField("gpu", g).Warn("couldn't make room for a larger fraction")
		}
		c.Hardware.Unlock()
	}
}

// repack moves the fractions of a GPU together, and lets the one grow that has units reserved, if growth is not nil. It
// reports whether it has changed anything. The ledger is the first to change, in one transaction. The caller holds the
// card's hardware lock.
func (a *Agent) repack(g int, growth *state.Growth) (done bool, err error) {
	if a.node.Problem(a.node.Cards[g]) != "" {
		return false, nil
	}
	for {
		a.node.Lock()
		to, idle, ok := a.node.Repack(g, growth)
		if ok {
			ok, err = a.settled(g)
		}
		if !ok || len(idle) == 0 {
			if ok {
				err = a.relabel(g, to)
			}
			if ok = ok && err == nil; ok {
				a.node.Growing = nil
			}
			a.node.Unlock()
			return ok, err
		}
		a.node.Unlock()
		for _, in := range idle {
			if err := a.destroy(g, in, new(spent)); err != nil {
				return false, err
			}
		}
	}
}

// settled reports whether the ledger has no intent for a GPU. After a failed write to the ledger, the driver's wrapper
// may have an instance that the agent does not know until the next comparison settles the intent (compareGPU). The
// caller holds the card's hardware lock.
func (a *Agent) settled(g int) (bool, error) {
	all, err := a.ledger.Intents()
	return err == nil && !slices.ContainsFunc(all, func(i ledger.Intent) bool {
		return i.GPU == a.node.Cards[g].UUID
	}), err
}

// relabel moves instances to other placements. The caller holds the node's lock, also during the write to the ledger,
// so that no prolog takes the units meanwhile. After an error, nothing has changed. If SQLite's journal contains the
// failed transaction nevertheless, the agent's next write overwrites it. Without such a write, the next agent reads the
// new placements, beside which nothing else has changed.
func (a *Agent) relabel(g int, to map[*state.Instance]int) error {
	m := a.node.Cards[g].Model
	var moved []gpu.Instance
	var rows []ledger.Instance
	for in, p := range to {
		row := in.Instance
		row.Profile, row.Start, row.Size = m.ProfileOf(p), m.Placements[p].Start, m.Placements[p].Size
		rows = append(rows, row)
		moved = append(moved, gpu.Instance{GI: in.GI, Profile: row.Profile, Start: row.Start, Size: row.Size})
	}
	if err := a.ledger.Relabel(rows); err != nil {
		return err
	}
	a.fractions.Relabel(g, moved)
	a.node.Relabel(g, to)
	return nil
}

// growInPlace gives a running job the smallest larger fraction of its GPU that satisfies the need, if its units are
// neither held nor set aside nor promised to a starting job. It reports whether it did so. slurmctld continues to count
// the smaller profile, because it cannot change the GRES of a running job. The caller holds the job's lock.
//
// slurmctld may start a job on offered units at any time, so a growth has these steps. After a failure, the reservation
// ends, a pass restores the offers, and the job is requeued.
//
//  1. Reserve the units, in memory. If the agent is killed, the next one does not know of the growth.
//  2. Publish. A job that slurmctld starts before it has accepted the lower offers, and that finds no other spots, ends
//     the reservation (state.Node.TakeOffers), and gets the units.
//  3. If the reservation still exists, move the fractions, first in the ledger. If the agent is killed, the next one
//     sets the limit (limitAgain).
//  4. Set the limit. If the driver does not accept it, give the fraction its earlier size. If the ledger fails then,
//     the fraction remains larger, and the next sample sets its limit.
func (a *Agent) growInPlace(ctx context.Context, lease api.Lease, need predict.Need) bool {
	_, once := a.limitedBySoftMig() // a process reads its limit only when it starts
	if len(lease.Slices) != 1 || !a.divided(lease.Slices[0].GPU) || once {
		return false
	}
	s := lease.Slices[0]
	in, c := a.node.Held(lease.Job, s), a.node.Cards[s.GPU]
	larger, ok := need.Larger(c.Model, c.Offerable, s.Profile)
	if in == nil || !ok || !mig.IsFraction(larger) {
		return false
	}
	log := a.log.WithField("job", lease.Job).WithField("profile", s.Profile).WithField("larger", larger)
	growth := &state.Growth{GPU: s.GPU, Instance: in, Profile: larger}
	if err := a.grow(ctx, growth, s.Profile); err != nil {
		if a.mayLog(growKey(lease.Job)) {
			log.WithError(err).Info("a job's fraction cannot grow in place")
		}
		return false
	}
	now := *a.leaseOf(lease.Job)
	a.usage.Resize(lease.Job, s.UUID, larger, float64(now.Slices[0].MemoryMiB))
	a.metrics.Grew(predict.Foreseen)
	log.Info("a running job has a larger fraction, before its GPU memory would run out")
	if err := a.ledger.Complete(now); err != nil {
		log.WithError(err).Warn("couldn't write the larger lease to the ledger") // the next agent corrects it
	}
	if err := a.writeLeaseFile(now); err != nil {
		log.WithError(err).Warn("couldn't write the size of a larger fraction to the lease file")
	}
	return true
}

// grow carries out a growth from the given profile. It waits for slurmctld and for locks for at most half of
// growTimeout, so that a requeue can follow.
func (a *Agent) grow(ctx context.Context, growth *state.Growth, profile string) error {
	ctx, cancel := context.WithTimeout(ctx, growTimeout/2)
	defer cancel()
	g := growth.GPU
	if !a.node.Reserve(growth) {
		return fmt.Errorf("GPU %d has no room for %s", g, growth.Profile)
	}
	defer a.publisher.Soon()
	defer a.node.EndGrowth(growth)
	if err := a.Publish(ctx); err != nil {
		return err
	}
	c := a.node.Cards[g]
	if err := gpu.Lock(ctx, &c.Hardware); err != nil {
		return err
	}
	defer c.Hardware.Unlock()
	return a.fractions.Resize(ctx, g, growth.Instance.GI, func() error {
		done, err := a.repack(g, growth)
		if err == nil && !done {
			err = fmt.Errorf("GPU %d was lost, or a starting job needs its units", g)
		}
		return err
	}, func() error { return a.shrink(g, growth.Instance, profile) })
}

// shrink gives an instance its earlier profile again. It keeps its start, which is also one of a smaller fraction.
func (a *Agent) shrink(g int, in *state.Instance, profile string) error {
	a.node.Lock()
	defer a.node.Unlock()
	p, ok := a.node.Cards[g].Model.Placement(profile, in.Start)
	if !ok {
		return fmt.Errorf("GPU %d has no %s at %d", g, profile, in.Start)
	}
	return a.relabel(g, map[*state.Instance]int{in: p})
}

// lostFraction returns the GPU and the instance that the file of a lost lease names. It chooses where a fraction
// starts. ok is false if there is none, or no room for it. No other goroutine is running yet.
func (a *Agent) lostFraction(name string) (g int, in gpu.Instance, ok bool) {
	g, in, ok = a.fractions.Parse(name)
	if !ok || !in.Fraction() {
		return g, in, ok
	}
	c, used := a.node.Cards[g], uint64(0)
	others, err := a.fractions.Instances(g)
	for _, other := range others {
		if other.GI != in.GI {
			used |= other.Units()
		}
	}
	p, ok := state.Last(c.Model, used, in.Profile)
	in.Start = c.Model.Placements[p].Start
	return g, in, ok && err == nil
}

// replaced returns the instance of the ledger that an instance of a lost lease replaces, or nil if there is none. If it
// is a fraction, whose start is only a label, replaced removes it from its placement.
func replaced(c *state.Card, p int, in gpu.Instance) *state.Instance {
	for at, old := range c.Ours {
		if in.Fraction() && old.GI == in.GI {
			delete(c.Ours, at)
			return old
		}
	}
	return c.Ours[p]
}

// dropOutdated removes the leases of an outdated ledger on the GPUs with fractions of which a lease was lost or has
// grown: those whose job has no lease file, or one of a later run. They were released, but the ledger has lost the
// record. Their instances would occupy the units of running jobs, and their users could open the GPU's device file. A
// job that is starting may have no lease file yet, but gets a new lease when its prolog repeats the call. No other
// goroutine is running yet.
func (a *Agent) dropOutdated(lost []api.Lease, grown []*state.Growth) error {
	named := map[int]bool{}
	for _, g := range grown {
		named[g.GPU] = true
	}
	for _, l := range lost {
		for _, s := range l.Slices {
			if g, _, ok := a.parse(s.UUID); ok {
				named[g] = true
			}
		}
	}
	if len(named) == 0 {
		return nil
	}
	for id, l := range a.node.Leases {
		_, err := os.Lstat(a.leaseFile(id))
		later := slices.ContainsFunc(lost, func(now api.Lease) bool { return now.Job == id })
		here := slices.ContainsFunc(l.Slices, func(s api.Slice) bool { return named[s.GPU] })
		if here && (later || errors.Is(err, fs.ErrNotExist)) {
			if err := a.ledger.Release(id); err != nil {
				return err
			}
			a.node.DropLease(id)
		}
	}
	for g := range named {
		c := a.node.Cards[g]
		for p, in := range c.Ours {
			if in.Idle() {
				if err := a.ledger.Forget(c.UUID, in.GI); err != nil {
					return err
				}
				delete(c.Ours, p)
			}
		}
	}
	return nil
}

// parse returns the GPU and the instance that a lease file names (gpu.Fractions.Parse). On a node without fractions, ok
// is false.
func (a *Agent) parse(name string) (g int, in gpu.Instance, ok bool) {
	if a.fractions == nil {
		return 0, in, false
	}
	return a.fractions.Parse(name)
}

// grownInFile returns the fractions that are larger in a lease file than in the ledger. Their limit may already have
// been raised.
func (a *Agent) grownInFile(file api.Lease) (all []*state.Growth) {
	for _, s := range file.Slices {
		if g, in, ok := a.parse(s.UUID); ok && in.Fraction() {
			held := a.node.Held(file.Job, api.Slice{GPU: g, UUID: in.UUID})
			if held != nil && held.Size < in.Size {
				all = append(all, &state.Growth{GPU: g, Instance: held, Profile: in.Profile})
			}
		}
	}
	return all
}

// units returns the units of the largest fraction in a lease file.
func (a *Agent) units(file api.Lease) (most int) {
	for _, s := range file.Slices {
		if _, in, ok := a.parse(s.UUID); ok {
			most = max(most, in.Size)
		}
	}
	return most
}

// growAgain gives a fraction its size in the lease file. limitAgain then sets the limit.
func (a *Agent) growAgain(growth *state.Growth) {
	in := growth.Instance
	log := a.log.WithField("job", in.Job).WithField("profile", in.Profile).WithField("larger", growth.Profile)
	err, done := error(nil), a.node.Reserve(growth)
	if done {
		done, err = a.repack(growth.GPU, growth)
	}
	if !done {
		a.node.EndGrowth(growth)
		log.WithError(err).Error("the ledger had lost the growth of a job's fraction, and its GPU has no room for it")
		return
	}
	log.Warn("the ledger had lost the growth of a job's fraction; restored it from the lease file")
}
