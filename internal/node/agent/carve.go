package agent

import (
	"errors"
	"fmt"
	"time"

	"caelum/internal/core/offer"
	"caelum/internal/failpoint"
	"caelum/internal/node/gpu"
	"caelum/internal/node/ledger"
	"caelum/internal/node/metrics"
	"caelum/internal/node/state"
)

// carved is the result of carve.
type carved struct {
	in     *state.Instance
	reused bool // the instance existed before
	made   bool // its compute instance did not exist before
}

// carve returns an instance at a spot of the job's pending lease. It reuses an idle instance with the same placement
// if there is one; if its last user is another user, it re-creates its compute instance. Otherwise, it destroys the
// idle instances that overlap the placement, and creates a new one. No other job can hold an overlapping spot, because
// the placements of all leases and pending leases on a GPU are disjoint.
func (a *Agent) carve(job, uid uint32, s offer.Spot, t *spent) (carved, error) {
	c := a.node.Cards[s.GPU]
	queued := time.Now()
	c.Hardware.Lock()
	defer c.Hardware.Unlock()
	add(&t.driver, queued) // includes waiting while another job's slices are carved
	if problem := a.node.Problem(c); problem != "" {
		return carved{}, fmt.Errorf("GPU %d: %s", s.GPU, problem)
	}

	a.node.Lock()
	in := c.Ours[s.Placement]
	idle := in != nil && in.Idle()
	remake := idle && a.node.NeedsRemake(in, uid)
	var inTheWay []*state.Instance
	for p := range c.Existing().InTheWay(s.Placement).Indices() {
		inTheWay = append(inTheWay, c.Ours[p])
	}
	a.node.Unlock()

	if idle {
		if used, err := a.inUse(s.GPU, in); used {
			return carved{}, errors.Join(usedError(s.GPU, in), err)
		}
		exists, err := a.confirm(s.GPU, in, t)
		switch {
		case err != nil:
			return carved{}, err
		case exists && a.unlisted(in):
			if err := a.destroy(s.GPU, in, t); err != nil {
				return carved{}, err
			}
		case exists && remake:
			in, err := a.remake(s.GPU, in, t)
			return carved{in, true, true}, err
		case exists:
			return carved{in, true, false}, nil
		}
		in, err = a.create(job, s, t)
		return carved{in, false, true}, err
	}
	for _, in := range inTheWay {
		if used, err := a.inUse(s.GPU, in); used { // destroying it would fail after one second of attempts
			return carved{}, errors.Join(usedError(s.GPU, in), err)
		}
		if err := a.destroy(s.GPU, in, t); err != nil {
			return carved{}, err
		}
	}
	in, err := a.create(job, s, t)
	return carved{in, false, true}, err
}

// create writes an intent to the ledger, makes the driver create an instance, and settles the intent. The caller holds
// the card's hardware lock.
func (a *Agent) create(job uint32, s offer.Spot, t *spent) (*state.Instance, error) {
	c := a.node.Cards[s.GPU]
	pl := c.Model.Placements[s.Placement]
	profile := c.Model.Profiles[pl.Profile].Name
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
		return nil, errors.Join(err, a.cleanUp(intent, s, made, err))
	}
	a.metrics.Carved(time.Since(asked))
	failpoint.Hit(failpoint.Created)
	return a.settleFresh(s, intent, made, failpoint.CreateSettled)
}

// settleFresh records an instance whose compute instance the driver has just created, restricts its files to root, and
// settles the intent. It passes the given failpoint in between.
func (a *Agent) settleFresh(s offer.Spot, intent int64, made gpu.Instance, point string) (*state.Instance, error) {
	c := a.node.Cards[s.GPU]
	in := c.NewInstance(s.Placement, made)
	in.Fresh = true
	// By default, nvidia-modprobe makes a new instance's capability files readable by all users, so a process could
	// open them before Make restricts them to root. The agent therefore searches for processes that have the files open
	// before it grants the lease.
	closed := a.caps.Make(c.Minor, made)
	if err := a.ledger.Created(intent, in.Instance); err != nil {
		return nil, err
	}
	failpoint.Hit(point)
	a.node.Lock()
	c.Ours[s.Placement] = in
	a.node.Unlock()
	if closed != nil {
		return nil, errors.Join(closed, a.setAside(s.GPU, in, false))
	}
	return in, nil
}

// cleanUp settles the intent of a failed call to create. made is the GPU instance that the call left behind, if it is
// known. Until this instance is destroyed, the intent must remain in the ledger. If the driver does not destroy the
// instance, the agent records it as stuck.
func (a *Agent) cleanUp(intent int64, s offer.Spot, made gpu.Instance, cause error) error {
	c := a.node.Cards[s.GPU]
	left := &made
	if made.Profile == "" {
		var err error
		if left, err = a.leftover(s, cause); left == nil && err != nil {
			return err // the next comparison settles the intent
		} else if left == nil {
			return errors.Join(a.shareDevice(c), a.ledger.Failed(intent))
		}
	}
	err := a.discard(s.GPU, *left)
	if err == nil {
		return errors.Join(a.shareDevice(c), a.ledger.Failed(intent))
	}
	stuck := c.NewInstance(s.Placement, *left)
	stuck.Stuck = true
	err = errors.Join(err, a.ledger.Created(intent, stuck.Instance))
	a.node.Lock()
	defer a.node.Unlock()
	c.Ours[s.Placement] = stuck
	a.node.Version++
	return err
}

// discard destroys an instance that a driver call has left incomplete. Its files, which nvidia-modprobe may have made
// readable by all users, outlive it.
func (a *Agent) discard(g int, in gpu.Instance) error {
	if in.GI != gpu.FullGI {
		if err := a.caps.Close(a.node.Cards[g].Minor, in); err != nil {
			a.log.WithError(err).WithField("gpu", g).Warn("couldn't restrict an incomplete instance's files to root")
		}
	}
	return a.hw.Destroy(g, in.GI)
}

// leftover returns the instance that a failed call to create may have left at a spot, or nil if there is none. The
// driver returns ErrNoRoom if the units are occupied, and has then created nothing, so that any instance there belongs
// to another program. After any other error, an instance without a compute instance that the agent did not know before
// is the result of the call.
func (a *Agent) leftover(s offer.Spot, cause error) (*gpu.Instance, error) {
	c := a.node.Cards[s.GPU]
	pl := c.Model.Placements[s.Placement]
	profile := c.Model.Profiles[pl.Profile].Name
	none := errors.Is(cause, gpu.ErrNoRoom) || errors.Is(cause, gpu.ErrNotFound)
	found, err := a.hw.Instances(s.GPU)
	if err != nil {
		if none {
			err = nil
		}
		return nil, err
	}
	a.node.Lock()
	defer a.node.Unlock()
	for _, in := range found {
		known := contains(c.Foreign, in)
		for _, own := range c.Ours {
			known = known || own.GI == in.GI
		}
		switch {
		case known || in.Start >= pl.Start+pl.Size || pl.Start >= in.Start+in.Size:
		case none || len(in.CIs) > 0:
			a.log.WithField("gpu", s.GPU).Warnf("another program has created %s at %d, where a job was to get %s",
				in.Profile, in.Start, profile)
		case in.Profile == profile && in.Start == pl.Start:
			return &in, nil
		}
	}
	return nil, nil
}

// refused marks an instance as stuck because the driver did not destroy it. If processes are using the instance, the
// log and `caelum status` name them. The driver does not know fractions, so cause says why they cannot be destroyed.
func (a *Agent) refused(g int, in *state.Instance, cause error) error {
	reason, searched := "the driver did not destroy the instance", time.Time{}
	switch {
	case a.divided(g):
		reason = cause.Error()
	case errors.Is(cause, gpu.ErrInUse):
		reason, searched = a.blockers(g, in)
	}
	a.node.Lock()
	in.Stuck, in.Blocked, in.Searched = true, reason, searched
	a.node.Version++
	a.node.Unlock()
	a.metrics.Failed(metrics.Destroy)
	a.log.WithError(cause).WithField("gpu", g).WithField("uuid", in.UUID).
		Errorf("%s at %d is stuck, and its units are not offered: %s", in.Profile, in.Start, reason)
	return a.ledger.SetStuck(a.node.Cards[g].UUID, in.GI, true)
}

// destroy writes an intent to the ledger, makes the driver destroy an idle instance, and settles the intent. An
// instance that the driver does not destroy is recorded as stuck, and its units are not offered until it is
// destroyed. The caller holds the card's hardware lock.
func (a *Agent) destroy(g int, in *state.Instance, t *spent) error {
	c := a.node.Cards[g]
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
	a.node.Lock()
	defer a.node.Unlock()
	for p, other := range c.Ours {
		if other == in {
			delete(c.Ours, p)
		}
	}
	if in.Stuck {
		a.node.Version++ // the instance's units are free again
	}
	return nil
}
