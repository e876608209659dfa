package agent

import (
	"errors"
	"slices"
	"strings"

	"caelum/internal/config"
	"caelum/internal/gpu"
)

// A process that has a capability file open can use every later instance with the same GPU instance id. The reason is
// that the driver checks the device number of the open file, which depends only on the GPU and the GPU instance id. The
// agent looks for such processes when it releases an instance, and before it leases the instance again. Between these
// times, the files belong to root, so no user process can open them. The agent ends the processes that belong to the
// instance's last user (see config.Config.Foreign). While other processes have the files open, the instance is set
// aside.

// minorsOf identifies the capabilities of a GPU instance id. All instances with this id have the same capabilities.
type minorsOf struct {
	gpu string // UUID
	gi  int
}

// placed is an instance and the index of its GPU.
type placed struct {
	gpu int
	in  *instance
}

// holders returns, for each instance, the processes that have its capability files open. It scans /proc once. The
// caller must already have made the files inaccessible to users.
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

// ignoreNoCapabilities returns nil for the error of a kernel without capability devices, because no process can have
// such a device open. It returns any other error unchanged.
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

// holdersIn returns, for each instance, the processes in the result of a scan that have its capability files open.
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

// devicesOf returns the capabilities of an instance. For an instance that was loaded from the ledger, the compute
// instances are unknown until the agent has listed the GPU's instances. Until then, devicesOf assumes compute instance
// 0.
func (a *Agent) devicesOf(p placed) ([]gpu.Device, error) {
	in := a.hwOf(p.in)
	if len(in.CIs) == 0 {
		in.CIs = []int{0}
	}
	return a.caps.Devices(a.cards[p.gpu].Minor, in)
}

// setAsideBeforeGrant is like setHeldAside, but for the instances of a lease. If possible, it uses the result of a
// search that is already running, and returns no instances if this search found no holders. Otherwise it scans again.
// It always scans again if an instance was created, because the driver may have made the instance's files with mode
// 0666.
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

// setHeldAside ends those processes that have instances open and that the agent may end. It sets aside the instances
// that are still open, and returns them. If the processes cannot be listed, it sets all instances aside.
func (a *Agent) setHeldAside(all []placed) (held []placed, _ error) {
	found, err := a.clear(all, clearRounds)
	if err != nil {
		a.log.WithError(err).
			Error("couldn't list the processes that hold slices open; the slices are not offered until the processes " +
				"can be listed")
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

// clearRounds limits how often a release or a lease ends processes and scans again. One scan is not sufficient, because
// a process can send its open file to a process that the scan has already examined.
const clearRounds = 2

// clear ends those processes that have instances open and that the agent may end. It returns the processes that still
// have an instance open. The number of rounds is limited, because a user could start more and more such processes while
// prologs and epilogs wait.
func (a *Agent) clear(all []placed, rounds int) (found map[*instance][]gpu.Process, err error) {
	for range rounds {
		if found, err = a.holders(all); err != nil || !a.endHolders(all, found) {
			return found, err
		}
	}
	return a.holders(all)
}

// stillOpen ends those processes that have a GPU's stuck instances open and that the agent may end. It returns the
// instances that are still open, or all instances if the processes cannot be listed.
func (a *Agent) stillOpen(g int, stuck []*instance) map[*instance]bool {
	var all []placed
	for _, in := range stuck {
		all = append(all, placed{g, in})
	}
	found, err := a.clear(all, 1) // only one round, because the caller holds the lock of the GPU
	open := map[*instance]bool{}
	for _, p := range all {
		open[p.in] = err != nil || len(found[p.in]) > 0
		a.note(p, heldNote(found[p.in], err))
	}
	return open
}

// endHolders ends the processes that have an instance open and belong to the instance's last user. It reports whether
// any of them has ended. It does not end processes of other users, because any process can send its open file to a
// process of another user.
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
		// A process is ended even if it has sent its open file to another process since the scan.
		ended, left := a.procs.Kill(own, func(now gpu.Process) bool { return startedBy(now, uid) })
		a.ended(p.gpu, p.in.UUID, ended, left)
		some = some || len(left) < len(own)
	}
	return some
}

// endsHolders reports whether the agent ends processes that keep a released slice open. By default, it ends them only
// if Slurm confines jobs to their devices. Without this confinement, a process may have opened a slice of another job
// of the same user by accident.
func (a *Agent) endsHolders() bool {
	switch a.cfg.Foreign {
	case config.ForeignKill:
		return true
	case config.ForeignKillOthers:
		a.slurmMu.Lock()
		defer a.slurmMu.Unlock()
		return a.slurm != nil && a.slurm.RelativeIndex()
	}
	return false
}

// formerUser returns the last user of an instance's capabilities. ok is false if there was no user or the last user was
// root. Root can use an instance without an open file.
func (a *Agent) formerUser(in *instance) (uid uint32, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	uid, ok = a.former[minorsOf{in.GPU, in.GI}]
	return uid, ok && uid != 0
}

// startedBy reports whether a process was started by this user, who could therefore end it. It compares the real user
// id, so the result is also true for a setuid program that the user started.
func startedBy(p gpu.Process, uid uint32) bool { return p.UIDs[0] == uid }

// note stores the text that `caelum status` shows for an instance, and logs the text if it is new.
func (a *Agent) note(p placed, note string) {
	a.mu.Lock()
	same := p.in.note == note
	p.in.note = note
	a.mu.Unlock()
	if !same && note != "" && a.mayLog(minorsOf{p.in.GPU, p.in.GI}) {
		a.log.WithField("gpu", p.gpu).WithField("job", p.in.Job).WithField("uuid", p.in.UUID).Warnf(
			"%s at %d was set aside: %s; its units are not offered until no process holds it open",
			p.in.Profile, p.in.Start, note)
	}
}

// heldNote returns the text for an instance that these processes have open, or an empty string if there are none.
func heldNote(holders []gpu.Process, err error) string {
	switch {
	case err != nil:
		return "not known which processes hold it open"
	case len(holders) == 0:
		return ""
	}
	return "held open by " + describe(holders)
}

// maxNoted limits the number of processes in a message.
const maxNoted = 5

// describe formats a list of processes for a message.
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
