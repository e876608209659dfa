package agent

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"caelum/internal/gpu"
)

// A process that has a capability file open can use every instance that is ever made at its placement: the driver
// checks the descriptor's device number, which follows from GPU and GPU instance id. The agent looks for such processes
// at the release and again before the next lease. The files are root's by then, so no process can open them between the
// scan and the lease. A process of the instance's last user is ended (see Config.Foreign); while another process holds
// the instance, it is set aside.

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

// holders returns the processes that hold the capabilities of instances whose files are closed, in one scan.
func (a *Agent) holders(all []placed) (map[*instance][]gpu.Process, error) {
	if len(all) == 0 {
		return nil, nil
	}
	var wanted []gpu.Device
	for _, p := range all {
		own, err := a.devicesOf(p)
		if err != nil {
			return nil, ignoreNoCapabilities(err)
		}
		wanted = append(wanted, own...)
	}
	held, err := a.scan(wanted)
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

func (a *Agent) scan(wanted []gpu.Device) (gpu.Held, error) {
	held, err := a.procs.Scan(wanted)
	for uid, why := range held.Unread {
		if a.mayLog(uid) {
			a.log.WithField("uid", uid).Warn("not all processes of a user were checked for open slices: " + why)
		}
	}
	return held, err
}

// holdersIn returns the processes of a scan that hold instances.
func (a *Agent) holdersIn(held gpu.Held, all []placed) (map[*instance][]gpu.Process, error) {
	found := map[*instance][]gpu.Process{}
	for _, p := range all {
		own, err := a.devicesOf(p)
		if err != nil {
			return nil, ignoreNoCapabilities(err)
		}
		seen := map[int]bool{}
		for _, d := range own {
			for _, h := range held.Open[d] {
				if !seen[h.PID] {
					seen[h.PID] = true
					found[p.in] = append(found[p.in], h)
				}
			}
		}
	}
	return found, nil
}

// devicesOf are the capabilities of an instance. Its compute instances are not known before the first look at the GPU.
func (a *Agent) devicesOf(p placed) ([]gpu.Device, error) {
	in := a.hwOf(p.in)
	if len(in.CIs) == 0 {
		in.CIs = []int{0}
	}
	return a.caps.Devices(a.cards[p.gpu].Minor, in)
}

// setAsideBeforeGrant is setHeldAside for the instances of a lease. A search that found no holder is enough for
// instances whose files no process could open since then. The driver may have made the files of a new instance with
// mode 0666.
func (a *Agent) setAsideBeforeGrant(all []placed, created bool, search *search) ([]placed, error) {
	if created && a.caps.Modifies() {
		return a.setHeldAside(all)
	}
	held, err := search.wait()
	if err == nil {
		var found map[*instance][]gpu.Process
		if found, err = a.holdersIn(held, all); err == nil && len(found) == 0 {
			return nil, nil
		}
	}
	return a.setHeldAside(all)
}

// setHeldAside sets aside the instances that processes hold and that these processes cannot be ended for, and returns
// them. If the processes cannot be listed, it sets all aside.
func (a *Agent) setHeldAside(all []placed) (held []placed, _ error) {
	found, err := a.clear(all, clearRounds)
	if err != nil {
		a.log.WithError(err).
			Error("couldn't list the processes that hold slices open; the slices are out of the offers until they can be listed")
	}
	for _, p := range all {
		if err == nil && len(found[p.in]) == 0 {
			continue
		}
		a.note(p, heldNote(found[p.in], err))
		if err := a.setAside(p.gpu, p.in, true); err != nil {
			return held, err
		}
		held = append(held, p)
	}
	return held, nil
}

// clearRounds limits how often a release or a lease ends processes and scans again: while a scan runs, a descriptor can
// move to a process that the scan has passed already.
const clearRounds = 2

// clear ends the processes that hold instances and may be ended for it, in this many rounds at most, and returns those
// that still hold one. A user can start new holders as long as she likes, and each round takes time, for which others
// wait.
func (a *Agent) clear(all []placed, rounds int) (found map[*instance][]gpu.Process, err error) {
	for range rounds {
		if found, err = a.holders(all); err != nil || !a.endHolders(all, found) {
			return found, err
		}
	}
	return a.holders(all)
}

// stillOpen returns the instances among a GPU's stuck ones that processes hold open and cannot be ended for.
func (a *Agent) stillOpen(g int, stuck []*instance) map[*instance]bool {
	var all []placed
	for _, in := range stuck {
		all = append(all, placed{g, in})
	}
	found, err := a.clear(all, 1) // the GPU's lock is held, and the next look comes soon
	open := map[*instance]bool{}
	for _, p := range all {
		open[p.in] = err != nil || len(found[p.in]) > 0
		a.note(p, heldNote(found[p.in], err))
	}
	return open
}

// endHolders ends processes of its last user that hold an instance open, and reports whether one that held it is gone.
// Processes of other users are left alone: a descriptor can be sent to a process that did not ask for it.
func (a *Agent) endHolders(all []placed, found map[*instance][]gpu.Process) (some bool) {
	if len(found) == 0 || !a.endsHolders() {
		return false
	}
	for _, p := range all {
		uid, ok := a.formerUser(p.in)
		if !ok {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(found[p.in]), func(h gpu.Process) bool { return !startedBy(h, uid) })
		// They are ended even if they have handed their descriptors on since the scan.
		ended, left := a.procs.Kill(own, func(now gpu.Process) bool { return startedBy(now, uid) })
		a.ended(p.gpu, p.in.UUID, ended, left)
		some = some || len(left) < len(own)
	}
	return some
}

// endsHolders reports whether processes that keep a released slice open are ended. By default they are where Slurm
// confines jobs to their devices: there, a process cannot have opened a slice of another job of its user by accident.
func (a *Agent) endsHolders() bool {
	switch a.cfg.Foreign {
	case foreignKill:
		return true
	case foreignKillOthers:
		a.slurmMu.Lock()
		defer a.slurmMu.Unlock()
		return a.slurm != nil && a.slurm.RelativeIndex()
	}
	return false
}

// formerUser returns the last user of an instance's capabilities. Root needs no descriptor.
func (a *Agent) formerUser(in *instance) (uid uint32, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	uid, ok = a.former[minorsOf{in.GPU, in.GI}]
	return uid, ok && uid != 0
}

// startedBy reports whether a user could end a process herself, by its real user id: a setuid program that still runs
// for her too.
func startedBy(p gpu.Process, uid uint32) bool { return p.UIDs[0] == uid }

// note keeps the text for `caelum status`, and logs it.
func (a *Agent) note(p placed, note string) {
	a.mu.Lock()
	same := p.in.note == note
	p.in.note = note
	a.mu.Unlock()
	if !same && note != "" && a.mayLog(minorsOf{p.in.GPU, p.in.GI}) {
		a.log.WithField("gpu", p.gpu).WithField("job", p.in.Job).WithField("uuid", p.in.UUID).Warnf(
			"%s at %d was set aside: %s; its units are out of the offers until they are gone", p.in.Profile, p.in.Start, note)
	}
}

// logInterval is the shortest time between two log lines about one instance or one user that the user can bring about.
const logInterval = time.Minute

// mayLog reports whether nothing was logged about key within logInterval.
func (a *Agent) mayLog(key any) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	maps.DeleteFunc(a.lastLogged, func(_ any, last time.Time) bool { return now.Sub(last) >= logInterval })
	if _, ok := a.lastLogged[key]; ok {
		return false
	}
	a.lastLogged[key] = now
	return true
}

// heldNote is the note of an instance with these holders, empty if there are none.
func heldNote(holders []gpu.Process, err error) string {
	switch {
	case err != nil:
		return "not known which processes hold it open"
	case len(holders) == 0:
		return ""
	}
	return "held open by " + describe(holders)
}

// maxNoted is the number of processes that a message names.
const maxNoted = 5

func describe(holders []gpu.Process) string {
	var names []string
	for _, h := range holders[:min(len(holders), maxNoted)] {
		names = append(names, h.String())
	}
	if len(holders) > maxNoted {
		names = append(names, "...")
	}
	return strings.Join(names, "; ")
}
