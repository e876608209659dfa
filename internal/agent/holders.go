package agent

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"caelum/internal/gpu"
)

// A process that has a capability file open can use every instance that is ever made at its placement: the driver checks the
// descriptor's device number, which follows from GPU and GPU instance id. So an instance is set aside while a process holds it, at
// the release and again before the next lease. Its files are root's by then, so that no process can open them between the scan and
// the lease.

// minorsOf names the capabilities of a GPU instance id, which are the same for every instance that has it.
type minorsOf struct {
	gpu string // UUID
	gi  int
}

// placed is an instance of a GPU.
type placed struct {
	gpu int
	in  *instance
}

// holders are the processes that hold the capabilities of instances whose files are closed, in one scan.
func (a *Agent) holders(all []placed) (map[*instance][]gpu.Holder, error) {
	if len(all) == 0 {
		return nil, nil
	}
	var wanted []gpu.Device
	var suspects []uint32
	for _, p := range all {
		own, err := a.devicesOf(p)
		if err != nil {
			return nil, ignoreNoCapabilities(err)
		}
		wanted = append(wanted, own...)
		if uid, ok := a.formerUser(p.in); ok {
			suspects = append(suspects, uid)
		}
	}
	held, err := a.scan(wanted, suspects)
	if err != nil {
		return nil, err
	}
	return a.holdersIn(held, all)
}

// ignoreNoCapabilities takes a kernel without capability devices for one on which no process holds any.
func ignoreNoCapabilities(err error) error {
	if errors.Is(err, gpu.ErrNoCapabilities) {
		return nil
	}
	return err
}

func (a *Agent) scan(wanted []gpu.Device, suspects []uint32) (gpu.Held, error) {
	held, err := a.procs.Scan(wanted, suspects)
	for uid := range held.Skipped {
		a.log.WithField("uid", uid).Warn("a user has too many open descriptors: not all of the user's processes were checked for slices")
	}
	return held, err
}

// holdersIn are those processes of a scan that hold instances.
func (a *Agent) holdersIn(held gpu.Held, all []placed) (map[*instance][]gpu.Holder, error) {
	found := map[*instance][]gpu.Holder{}
	for _, p := range all {
		own, err := a.devicesOf(p)
		if err != nil {
			return nil, ignoreNoCapabilities(err)
		}
		seen := map[int]bool{}
		add := func(list []gpu.Holder) {
			for _, h := range list {
				if !seen[h.PID] {
					seen[h.PID] = true
					found[p.in] = append(found[p.in], h)
				}
			}
		}
		for _, d := range own {
			add(held.Open[d])
		}
		if uid, ok := a.formerUser(p.in); ok {
			add(held.Possible[uid])
		}
	}
	return found, nil
}

// searches lets prologs that come while a scan runs share the next one: a scan that began earlier says nothing for them.
type searches struct {
	mu      sync.Mutex
	next    *search
	running sync.Mutex
}

// search is a scan for all capabilities that there can be on the node.
type search struct {
	done chan struct{}
	held gpu.Held
	err  error
}

// wait returns the result of the scan, when there is one.
func (s *search) wait() (gpu.Held, error) {
	<-s.done
	return s.held, s.err
}

// search has a scan begin, at the earliest now, while a prolog waits for slurmctld. It serves for every instance whose files have
// been closed since before.
func (a *Agent) search() *search {
	a.searches.mu.Lock()
	defer a.searches.mu.Unlock()
	if s := a.searches.next; s != nil {
		return s // it has not begun
	}
	s := &search{done: make(chan struct{})}
	a.searches.next = s
	go func() {
		defer close(s.done)
		a.searches.running.Lock()
		defer a.searches.running.Unlock()
		a.searches.mu.Lock()
		a.searches.next = nil
		a.searches.mu.Unlock()
		s.held, s.err = a.scanAll()
	}()
	return s
}

// scanAll scans for the capabilities of every instance that there can be.
func (a *Agent) scanAll() (gpu.Held, error) {
	a.mu.Lock()
	suspects := slices.Compact(slices.Sorted(maps.Values(a.former)))
	a.mu.Unlock()
	var wanted []gpu.Device
	for _, c := range a.cards {
		all, err := a.caps.Possible(c.Minor)
		if err != nil {
			return gpu.Held{}, ignoreNoCapabilities(err)
		}
		wanted = append(wanted, all...)
	}
	return a.scan(wanted, suspects)
}

// setAsideBeforeGrant is setHeldAside for the instances of a lease. What was found by the search is enough for those whose files no
// process could open since then: the driver may have made a new instance's for everybody.
func (a *Agent) setAsideBeforeGrant(all []placed, created bool, search *search) ([]placed, error) {
	if created && a.caps.Modifies() {
		return a.setHeldAside(all)
	}
	held, err := search.wait()
	var found map[*instance][]gpu.Holder
	if err == nil {
		found, err = a.holdersIn(held, all)
	}
	return a.setFoundAside(all, found, err)
}

// devicesOf are the capabilities of an instance. Its compute instances are not known before the first look at the GPU.
func (a *Agent) devicesOf(p placed) ([]gpu.Device, error) {
	in := a.hwOf(p.in)
	if len(in.CIs) == 0 {
		in.CIs = []int{0}
	}
	return a.caps.Devices(a.cards[p.gpu].Minor, in)
}

// formerUser is the last user of an instance's capabilities. Root needs no descriptor.
func (a *Agent) formerUser(in *instance) (uid uint32, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	uid, ok = a.former[minorsOf{in.GPU, in.GI}]
	return uid, ok && uid != 0
}

// setHeldAside sets the instances aside that processes hold, and returns them. If the processes cannot be listed, all are.
func (a *Agent) setHeldAside(all []placed) ([]placed, error) {
	found, err := a.holders(all)
	return a.setFoundAside(all, found, err)
}

func (a *Agent) setFoundAside(all []placed, found map[*instance][]gpu.Holder, err error) (held []placed, _ error) {
	if err != nil {
		a.log.WithError(err).Error("couldn't see which processes hold slices open; the slices are out of the offers until it can be seen")
	}
	for _, p := range all {
		if err == nil && len(found[p.in]) == 0 {
			continue
		}
		note := "not known which processes hold it open"
		if err == nil {
			note = "held open by " + describe(found[p.in])
		}
		a.note(p, note)
		if err := a.setAside(p.gpu, p.in, true); err != nil {
			return held, err
		}
		held = append(held, p)
	}
	return held, nil
}

// note keeps and logs the processes that hold an instance open, unless they are the same as before.
func (a *Agent) note(p placed, note string) {
	a.mu.Lock()
	same := p.in.note == note
	p.in.note = note
	a.mu.Unlock()
	if !same && note != "" {
		a.log.WithField("gpu", p.gpu).WithField("job", p.in.Job).WithField("uuid", p.in.UUID).Warnf(
			"%s at %d was set aside: %s; its units are out of the offers until they are gone", p.in.Profile, p.in.Start, note)
	}
}

// maxNoted is the number of processes that a message names.
const maxNoted = 5

func describe(holders []gpu.Holder) string {
	var names []string
	for _, h := range holders[:min(len(holders), maxNoted)] {
		names = append(names, h.String())
	}
	if len(holders) > maxNoted {
		names = append(names, "...")
	}
	return strings.Join(names, "; ")
}

// stillOpen are those of a GPU's stuck instances that processes hold open. With foreign_processes=kill such a process of the
// slice's former user is ended.
func (a *Agent) stillOpen(g int, stuck []*instance) map[*instance]bool {
	var all []placed
	for _, in := range stuck {
		all = append(all, placed{g, in})
	}
	found, err := a.holders(all)
	open := map[*instance]bool{}
	for _, p := range all {
		switch {
		case err != nil:
			open[p.in] = true
			a.note(p, "not known which processes hold it open")
		case len(found[p.in]) > 0:
			open[p.in] = true
			a.note(p, "held open by "+describe(found[p.in]))
			a.endHolders(p, found[p.in])
		default:
			a.note(p, "")
		}
	}
	return open
}

// endHolders ends the processes of its former user that hold an instance open. Other users' processes are left alone: a descriptor
// can be sent to a process that did not ask for it.
func (a *Agent) endHolders(p placed, holders []gpu.Holder) {
	uid, ok := a.formerUser(p.in)
	if a.cfg.Foreign != foreignKill || !ok {
		return
	}
	devices, err := a.devicesOf(p)
	if err != nil {
		return
	}
	for _, h := range holders {
		if h.Hides != "" || !onlyUser(h.Process, uid) {
			continue
		}
		err := a.procs.Kill(h.PID, func() bool {
			now, err := a.procs.Read(h.PID)
			return err == nil && onlyUser(now, uid) && a.procs.Holds(h.PID, devices)
		})
		a.ended(p.gpu, p.in.UUID, h.Process, err)
	}
}

// onlyUser reports whether a process has a user's ids and no others: a setuid program is not the user's to be ended for.
func onlyUser(p gpu.Process, uid uint32) bool {
	return !slices.ContainsFunc(p.UIDs[:], func(id uint32) bool { return id != uid })
}
