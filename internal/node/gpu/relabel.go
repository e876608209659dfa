package gpu

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"caelum/internal/core/mig"
)

// Memory has no address, so where a fraction starts, and which size it has, are only labels. A fraction keeps its GPU
// instance id and its UUID when they change.

// Relabel changes the start, and if it grows or shrinks also the profile and size, of instances on a GPU with
// fractions. Jobs may hold them. The caller must then set the limit of a job whose instance has another size.
func (f *Fractions) Relabel(gpu int, moved []Instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range moved {
		if h := f.gpus[gpu].on[in.GI]; h != nil {
			h.Profile, h.Start, h.Size = in.Profile, in.Start, in.Size
		}
	}
}

// Resize changes the size of an instance that a job holds: it calls relabel, which calls Relabel, and sets the job's
// limit. If the driver does not accept the limit, it calls undo, sets the earlier limit, and returns the error.
// Meanwhile, no meter compares the limit with the size. ctx limits the wait for the limits of other jobs.
func (f *Fractions) Resize(ctx context.Context, gpu, gi int, relabel, undo func() error) error {
	d, h := f.fraction(gpu, gi)
	if h == nil {
		return fmt.Errorf("resize: %w", ErrNotFound)
	}
	if err := Lock(ctx, &d.resizing); err != nil {
		return err
	}
	defer d.resizing.Unlock()
	if err := relabel(); err != nil {
		return err
	}
	if err := Lock(ctx, &d.changes); err != nil {
		return errors.Join(err, undo())
	}
	defer d.changes.Unlock()
	err := f.setLimit(gpu, gi, h.job)
	if err != nil {
		err = errors.Join(err, undo(), f.setLimit(gpu, gi, h.job))
	}
	return err
}

// lockPause is the pause between two attempts of Lock.
const lockPause = 5 * time.Millisecond

// Lock locks mu, which another goroutine may hold during a driver call that hangs. The error is that of ctx.
func Lock(ctx context.Context, mu *sync.Mutex) error {
	for !mu.TryLock() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the driver: %w", ctx.Err())
		case <-time.After(lockPause):
		}
	}
	return nil
}

// LeasedUUID returns the name of an instance in a lease file. For a fraction, it contains the size in units, which an
// agent that has lost its ledger needs.
func LeasedUUID(uuid, profile string) string {
	if n := mig.Units(profile); n > 0 {
		return uuid + "/" + strconv.Itoa(n)
	}
	return uuid
}

// Parse returns the GPU and the instance that a lease file names ([LeasedUUID]). It does not know where a fraction
// starts. ok is false if it is not the name of an instance on a GPU with fractions.
func (f *Fractions) Parse(name string) (gpu int, in Instance, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for g, d := range f.gpus {
		for _, p := range d.model.Profiles {
			for serial := range d.model.Grid {
				in, err := d.instance(p.Name, p.Starts[0], serial)
				if err == nil && LeasedUUID(in.UUID, in.Profile) == name {
					return g, in, true
				}
			}
		}
	}
	return 0, Instance{}, false
}
