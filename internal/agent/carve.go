package agent

import (
	"errors"
	"fmt"
	"time"

	"caelum/internal/failpoint"
	"caelum/internal/gpu"
	"caelum/internal/ledger"
	"caelum/internal/metrics"
	"caelum/internal/offer"
)

// carve returns an instance at a spot of the job's pending lease. It reuses an idle instance with the same placement
// if there is one. Otherwise, it destroys the idle instances that overlap the placement, and creates a new one. No
// other job can hold an overlapping spot, because the placements of all leases and pending leases on a GPU are
// disjoint.
func (a *Agent) carve(job uint32, s offer.Spot, t *spent) (in *instance, reused bool, err error) {
	c := a.cards[s.GPU]
	queued := time.Now()
	c.hardware.Lock()
	defer c.hardware.Unlock()
	add(&t.driver, queued) // includes waiting while another job's slices are carved

	a.mu.Lock()
	if in := c.ours[s.Placement]; in != nil && in.idle() {
		a.mu.Unlock()
		if used, err := a.inUse(s.GPU, in); used {
			return nil, false, errors.Join(usedError(s.GPU, in), err)
		}
		exists, err := a.confirm(s.GPU, in, t)
		switch {
		case err != nil:
			return nil, false, err
		case exists && !a.unlisted(in):
			return in, true, nil
		case exists:
			if err := a.destroy(s.GPU, in, t); err != nil {
				return nil, false, err
			}
		}
		in, err = a.create(job, s, t)
		return in, false, err
	}
	existing := c.existing()
	var inTheWay []*instance
	for p := range existing.InTheWay(s.Placement).Indices() {
		inTheWay = append(inTheWay, c.ours[p])
	}
	a.mu.Unlock()

	for _, in := range inTheWay {
		if used, err := a.inUse(s.GPU, in); used { // destroying it would fail after one second of attempts
			return nil, false, errors.Join(usedError(s.GPU, in), err)
		}
		if err := a.destroy(s.GPU, in, t); err != nil {
			return nil, false, err
		}
	}
	in, err = a.create(job, s, t)
	return in, false, err
}

// create writes an intent to the ledger, makes the driver create an instance, and settles the intent. The caller holds
// the card's hardware lock.
func (a *Agent) create(job uint32, s offer.Spot, t *spent) (*instance, error) {
	c := a.cards[s.GPU]
	pl := c.Model.Placements[s.Placement]
	profile := c.Model.Profiles[pl.Profile].Name
	// Another program may have created instances since the last comparison. The agent must not take one of them for the
	// result of its own call.
	before, err := a.hw.Instances(s.GPU)
	if err != nil {
		return nil, err
	}
	for _, in := range before {
		if in.Start < pl.Start+pl.Size && pl.Start < in.Start+in.Size {
			return nil, fmt.Errorf("another program has created %s at %d of GPU %d: %w",
				in.Profile, in.Start, s.GPU, gpu.ErrNoRoom)
		}
	}
	intent, err := a.ledger.Begin(
		ledger.Intent{Op: ledger.OpCreate, GPU: c.UUID, Profile: profile, Start: pl.Start, Size: pl.Size, Job: job},
	)
	if err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.CreateIntended)
	asked := time.Now()
	made, err := a.make(s.GPU, profile, pl.Start)
	add(&t.driver, asked)
	if err != nil {
		return nil, errors.Join(err, a.cleanUp(intent, s, before))
	}
	a.metrics.Carved(time.Since(asked))
	failpoint.Hit(failpoint.Created)
	in := &instance{Instance: c.record(s.Placement, made.GI, made.UUID), cis: made.CIs}
	// The driver makes a new instance's capability files readable by all users, so a process could open them before
	// Make restricts them to root. The agent therefore searches for processes that have the files open before it grants
	// the lease.
	closed := a.caps.Make(c.Minor, made)
	if err := a.ledger.Created(intent, in.Instance); err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.CreateSettled)
	a.mu.Lock()
	c.ours[s.Placement] = in
	a.mu.Unlock()
	if closed != nil {
		return nil, errors.Join(closed, a.setAside(s.GPU, in, false))
	}
	return in, nil
}

// cleanUp settles the intent of a failed call to create, which may have left a GPU instance behind. Until this instance
// is destroyed, the intent must remain in the ledger. If the driver does not destroy the instance, the agent records it
// as stuck. before lists the GPU's instances before the call.
func (a *Agent) cleanUp(intent int64, s offer.Spot, before []gpu.Instance) error {
	c := a.cards[s.GPU]
	pl := c.Model.Placements[s.Placement]
	profile := c.Model.Profiles[pl.Profile].Name
	left, err := a.leftover(s.GPU, profile, pl.Start, before)
	switch {
	case err != nil:
		return nil // the next comparison settles the intent
	case left == nil:
		return errors.Join(a.shareDevice(c), a.ledger.Failed(intent))
	}
	if err = a.hw.Destroy(s.GPU, left.GI); err == nil {
		return errors.Join(a.shareDevice(c), a.ledger.Failed(intent))
	}
	stuck := &instance{Instance: c.record(s.Placement, left.GI, left.UUID)}
	stuck.Stuck = true
	err = errors.Join(err, a.ledger.Created(intent, stuck.Instance))
	a.mu.Lock()
	defer a.mu.Unlock()
	c.ours[s.Placement] = stuck
	a.version++
	return err
}

// leftover returns the instance that a failed call to create left at a placement, or nil if there is none. before lists
// the GPU's instances before the call.
func (a *Agent) leftover(g int, profile string, start int, before []gpu.Instance) (*gpu.Instance, error) {
	found, err := a.hw.Instances(g)
	if err != nil {
		return nil, err
	}
	for _, in := range found {
		if in.Profile == profile && in.Start == start && !contains(before, in) {
			return &in, nil
		}
	}
	return nil, nil
}

// refused marks an instance as stuck because the driver did not destroy it. If processes are using the instance, the
// log and `caelum status` name them.
func (a *Agent) refused(g int, in *instance, cause error) error {
	reason, searched := "the driver did not destroy the instance", time.Time{}
	if errors.Is(cause, gpu.ErrInUse) {
		reason, searched = a.blockers(g, in)
	}
	a.mu.Lock()
	in.Stuck, in.blocked, in.searched = true, reason, searched
	a.version++
	a.mu.Unlock()
	a.metrics.Failed(metrics.Destroy)
	a.log.WithError(cause).WithField("gpu", g).WithField("uuid", in.UUID).
		Errorf("%s at %d is stuck, and its units are not offered: %s", in.Profile, in.Start, reason)
	return a.ledger.SetStuck(a.cards[g].UUID, in.GI, true)
}

// destroy writes an intent to the ledger, makes the driver destroy an idle instance, and settles the intent. An
// instance that the driver does not destroy is recorded as stuck, and its units are not offered until it is
// destroyed. The caller holds the card's hardware lock.
func (a *Agent) destroy(g int, in *instance, t *spent) error {
	c := a.cards[g]
	if in.Job != 0 {
		return fmt.Errorf("GPU %d: %s at %d is held by job %d", g, in.Profile, in.Start, in.Job)
	}
	intent, err := a.ledger.Begin(
		ledger.Intent{
			Op:      ledger.OpDestroy,
			GPU:     c.UUID,
			GI:      in.GI,
			Profile: in.Profile,
			Start:   in.Start,
			Size:    in.Size,
		},
	)
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.DestroyIntended)
	asked := time.Now()
	err = a.hw.Destroy(g, in.GI)
	add(&t.driver, asked)
	if err != nil && !errors.Is(err, gpu.ErrNotFound) {
		return errors.Join(err, a.refused(g, in, err), a.ledger.Failed(intent))
	}
	failpoint.Hit(failpoint.Destroyed)
	if in.GI == gpu.FullGI {
		if err := a.shareDevice(c); err != nil {
			return err // the intent remains in the ledger, and the next comparison tries again
		}
	}
	if err := a.ledger.Destroyed(intent, c.UUID, in.GI); err != nil {
		return err
	}
	failpoint.Hit(failpoint.DestroySettled)
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, other := range c.ours {
		if other == in {
			delete(c.ours, p)
		}
	}
	if in.Stuck {
		a.version++ // the instance's units are free again
	}
	return nil
}
