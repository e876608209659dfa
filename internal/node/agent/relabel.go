package agent

import (
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
		if _, err := a.repack(g, nil, ""); err != nil {
			a.log.WithError(err).WithField("gpu", g).Warn("couldn't make room for a larger fraction")
		}
		c.Hardware.Unlock()
	}
}

// repack moves the fractions of a GPU together, and gives grown, if it is not nil, the given profile. It reports
// whether it has changed anything. The ledger is the first to change, in one transaction. The caller holds the card's
// hardware lock.
func (a *Agent) repack(g int, grown *state.Instance, profile string) (done bool, err error) {
	if a.node.Problem(a.node.Cards[g]) != "" {
		return false, nil
	}
	for {
		a.node.Lock()
		to, idle, ok := a.node.Repack(g, grown, profile)
		if !ok || len(idle) == 0 {
			if ok {
				err = a.relabel(g, to)
			}
			a.node.Unlock()
			return ok && err == nil, err
		}
		a.node.Unlock()
		for _, in := range idle {
			if err := a.destroy(g, in, new(spent)); err != nil {
				return false, err
			}
		}
	}
}

// relabel moves instances to other placements. The caller holds the node's lock, also during the write to the ledger,
// so that no prolog takes the units meanwhile.
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
// neither held nor set aside nor promised to a starting job. It reports whether it did so. If it is killed after the
// ledger has the new size, the next agent sets the limit (limitAgain). slurmctld continues to count the smaller
// profile, because it cannot change the GRES of a running job. The caller holds the job's lock.
func (a *Agent) growInPlace(lease api.Lease, need predict.Need) bool {
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
	c.Hardware.Lock()
	defer c.Hardware.Unlock()
	grown := false
	err := a.fractions.Resize(s.GPU, in.GI, func() (err error) {
		if grown, err = a.repack(s.GPU, in, larger); err == nil && !grown {
			err = fmt.Errorf("GPU %d has no room for %s", s.GPU, larger)
		}
		return err
	}, func() error { return a.shrink(s.GPU, in, s.Profile) })
	log := a.log.WithField("job", lease.Job).WithField("profile", s.Profile).WithField("larger", larger)
	if err != nil {
		if a.mayLog(growKey(lease.Job)) {
			log.WithError(err).Info("a job's fraction cannot grow in place")
		}
		return false
	}
	now := *a.leaseOf(lease.Job)
	a.usage.Resize(lease.Job, s.UUID, larger, float64(now.Slices[0].MemoryMiB))
	a.metrics.Grew(predict.Foreseen)
	a.publisher.Soon() // to lower the offers
	log.Info("a running job has a larger fraction, before its GPU memory would run out")
	if err := a.ledger.Complete(now); err != nil {
		log.WithError(err).Warn("couldn't write the larger lease to the ledger") // the next agent corrects it
	}
	if err := a.writeLeaseFile(now); err != nil {
		log.WithError(err).Warn("couldn't write the size of a larger fraction to the lease file")
	}
	return true
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
func (a *Agent) dropOutdated(lost []api.Lease, grown []growth) error {
	named := map[int]bool{}
	for _, g := range grown {
		named[g.gpu] = true
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

// growth is a fraction that is larger in its lease file than in an outdated ledger.
type growth struct {
	gpu     int
	in      *state.Instance
	profile string // in the lease file
}

// grownInFile returns the fractions that are larger in a lease file than in the ledger. Their limit may already have
// been raised.
func (a *Agent) grownInFile(file api.Lease) (all []growth) {
	for _, s := range file.Slices {
		if g, in, ok := a.parse(s.UUID); ok && in.Fraction() {
			held := a.node.Held(file.Job, api.Slice{GPU: g, UUID: in.UUID})
			if held != nil && held.Size < in.Size {
				all = append(all, growth{g, held, in.Profile})
			}
		}
	}
	return all
}

// growAgain gives a fraction its size in the lease file. limitAgain then sets the limit.
func (a *Agent) growAgain(now growth) {
	log := a.log.WithField("job", now.in.Job).WithField("profile", now.in.Profile).WithField("larger", now.profile)
	if done, err := a.repack(now.gpu, now.in, now.profile); err != nil || !done {
		log.WithError(err).Error("the ledger had lost the growth of a job's fraction, and its GPU has no room for it")
		return
	}
	log.Warn("the ledger had lost the growth of a job's fraction; restored it from the lease file")
}
