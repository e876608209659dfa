package agent

import (
	"errors"
	"slices"
	"strings"
	"time"

	"caelum/internal/config"
	"caelum/internal/node/gpu"
	"caelum/internal/node/state"
)

// A process that has a capability file open can use every later instance with the same GPU instance id, because the
// driver checks nothing but the device number of the open file, and this number depends only on the GPU and the id.
// When the agent releases an instance, and before it leases the instance again, it searches for processes that have the
// instance's capability files open. Between the release and the lease, the files belong to root, so no user process can
// open them. If processes of the instance's last user have the files open, the agent ends these processes (see
// config.Config.Foreign). If other processes have them open, it sets the instance aside.

// placed is an instance and the index of its GPU.
type placed struct {
	gpu int
	in  *state.Instance
}

// holders returns, for each instance, the processes that have its capability files open. It scans /proc once. The
// caller must already have restricted the files to root.
func (a *Agent) holders(all []placed) (map[*state.Instance][]gpu.Process, error) {
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

// ignoreNoCapabilities returns nil for gpu.ErrNoCapabilities, because no process can have a capability file open if the
// driver has no capability devices. It returns any other error unchanged.
func ignoreNoCapabilities(err error) error {
	if errors.Is(err, gpu.ErrNoCapabilities) {
		return nil
	}
	return err
}

func (a *Agent) scan(wanted []gpu.Device) (gpu.Held, error) {
	held, err := a.procs.Scan(wanted)
	for uid, unread := range held.Unread {
		if a.mayLog(uid) {
			a.log.WithField("uid", uid).Warn("couldn't check all processes of a user for open slices: " + unread.Reason)
		}
	}
	return held, err
}

// holdersIn is like holders, but takes the result of a scan. If the scan could not read all processes of an instance's
// last user, one of them may have the instance open, so the result contains a process without PID.
func (a *Agent) holdersIn(held gpu.Held, all []placed) (map[*state.Instance][]gpu.Process, error) {
	found := map[*state.Instance][]gpu.Process{}
	for _, p := range all {
		if p.in.GI < gpu.FullGI {
			continue // jobs with other fractions of the GPU have its device file open
		}
		own, err := a.devicesOf(p)
		if err != nil {
			return nil, ignoreNoCapabilities(err)
		}
		uid, ok := a.formerUser(p.in)
		if unread := held.Unread[uid]; ok && unread.Reason != "" && !unread.Denied {
			found[p.in] = append(found[p.in], gpu.Process{Owner: uid, Command: unread.Reason})
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

// devicesOf returns an instance's capabilities. The compute instances of an instance loaded from the ledger are
// unknown until the agent has listed the GPU's instances; until then, devicesOf assumes compute instance 0.
func (a *Agent) devicesOf(p placed) ([]gpu.Device, error) {
	in := a.node.HardwareOf(p.in)
	if len(in.CIs) == 0 {
		in.CIs = []int{0}
	}
	return a.caps.Devices(a.node.Cards[p.gpu].Minor, in)
}

// setAsideBeforeGrant is like setHeldAside, but for the instances of a lease. It waits for the given search to finish.
// If the search found no processes that hold the instances open, no instances are set aside. Otherwise, it scans again.
// It always scans again if the agent created an instance or a compute instance and nvidia-modprobe creates its files
// with mode 0444, or if the agent switched off a GPU's MIG mode, because all users could previously open the device
// file.
func (a *Agent) setAsideBeforeGrant(all []placed, created bool, search *search) ([]placed, error) {
	full := slices.ContainsFunc(all, func(p placed) bool { return p.in.GI == gpu.FullGI })
	if created && (full || a.caps.Modifies()) {
		return a.setHeldAside(all)
	}
	held, err := search.wait()
	if err == nil {
		var found map[*state.Instance][]gpu.Process
		if found, err = a.holdersIn(held, all); err == nil && len(found) == 0 {
			return nil, nil
		}
	}
	return a.setHeldAside(all)
}

// withFiles returns those of the given instances that have files of their own, which fractions do not have.
func withFiles(all []placed) []placed {
	return slices.DeleteFunc(slices.Clone(all), func(p placed) bool { return p.in.GI < gpu.FullGI })
}

// setHeldAside ends the processes that have instances open, if the agent is allowed to end them. It sets aside and
// returns the instances that are still open. If the agent cannot list the processes, setHeldAside sets aside and
// returns all of the instances, except fractions.
func (a *Agent) setHeldAside(all []placed) (held []placed, _ error) {
	all = withFiles(all)
	found, err := a.clear(all, clearRounds)
	if err != nil {
		a.log.WithError(err).
			Error("couldn't list the processes that hold slices open; the slices will not be offered until " +
				"the processes can be listed")
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

// clearRounds limits the number of rounds in which a release or a lease ends processes and scans again. One scan is not
// enough, because a process can pass an open descriptor to another process that the scan has already examined.
const clearRounds = 2

// clear ends the processes that have instances open, if the agent is allowed to end them, and returns the processes
// that still have instances open. The number of rounds is limited, because a user could keep starting such processes
// while prologs and epilogs wait.
func (a *Agent) clear(all []placed, rounds int) (found map[*state.Instance][]gpu.Process, err error) {
	for range rounds {
		if found, err = a.holders(all); err != nil || !a.endHolders(all, found) {
			return found, err
		}
	}
	return a.holders(all)
}

// stillOpen ends the processes that have the stuck instances of a GPU open, if the agent is allowed to end them. It
// returns the instances that are still open, or all of them if the agent cannot list the processes.
func (a *Agent) stillOpen(g int, stuck []*state.Instance) map[*state.Instance]bool {
	var all []placed
	for _, in := range stuck {
		all = append(all, placed{g, in})
	}
	all = withFiles(all)
	found, err := a.clear(all, 1) // only one round, because the caller holds the lock of the GPU
	open := map[*state.Instance]bool{}
	for _, p := range all {
		open[p.in] = err != nil || len(found[p.in]) > 0
		a.note(p, heldNote(found[p.in], err))
	}
	return open
}

// endHolders ends the processes that have an instance open and belong to its last user, and returns true if at least
// one of them has ended. It spares other users' processes, because any process can pass them an open descriptor.
func (a *Agent) endHolders(all []placed, found map[*state.Instance][]gpu.Process) (some bool) {
	if len(found) == 0 || !a.endsHolders() {
		return false
	}
	for _, p := range all {
		uid, ok := a.formerUser(p.in)
		if !ok {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(found[p.in]), func(h gpu.Process) bool {
			return h.PID == 0 || !startedBy(h, uid)
		})
		// Kill ends a process even if it has passed its open descriptor to another process since the scan.
		ended, left := a.procs.Kill(own, func(now gpu.Process) bool { return startedBy(now, uid) })
		a.ended(p.gpu, p.in.UUID, ended, left)
		some = some || len(left) < len(own)
	}
	return some
}

// endsHolders reports whether the agent ends processes that keep a released slice open. By default, it does so only if
// Slurm confines jobs to their devices (ConstrainDevices). Otherwise, a process may have opened a slice of another
// job of the same user by accident.
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

// formerUser returns the last user of an instance's capabilities. ok is false if the capabilities had no user, or if
// the last user was root, who can use an instance without an open capability file.
func (a *Agent) formerUser(in *state.Instance) (uid uint32, ok bool) {
	a.node.Lock()
	defer a.node.Unlock()
	uid, ok = a.node.Former[state.Minors{GPU: in.GPU, GI: in.GI}]
	return uid, ok && uid != 0
}

// startedBy reports whether a process was started by the user with the given uid. It compares the owner and therefore
// includes setuid programs and processes with subordinate user ids. Users are allowed to end all processes that they
// have started.
func startedBy(p gpu.Process, uid uint32) bool { return p.Owner == uid }

// note stores the message that `caelum status` shows for an instance, and logs it if it is new.
func (a *Agent) note(p placed, note string) {
	a.node.Lock()
	same := p.in.Note == note
	p.in.Note = note
	in := p.in.Instance
	a.node.Unlock()
	if !same && note != "" && a.mayLog(state.Minors{GPU: in.GPU, GI: in.GI}) {
		a.log.WithField("gpu", p.gpu).WithField("job", in.Job).WithField("uuid", in.UUID).Warnf(
			"%s at %d was set aside: %s; its units will not be offered while a process holds the slice open",
			in.Profile, in.Start, note)
	}
}

// heldNote returns the message for an instance that the processes in holders have open, or "" if holders is empty.
func heldNote(holders []gpu.Process, err error) string {
	switch {
	case err != nil:
		return "couldn't list the processes that hold the slice open"
	case len(holders) == 0:
		return ""
	}
	return "held open by " + describe(holders)
}

// searchPause is the time after which findBlockers searches again for an instance that the driver does not destroy,
// unless the result determines whether the destroy hook runs. A search examines every process on the node while the
// agent holds the card's lock, which prologs wait for.
const searchPause = time.Minute

// blockers returns the result of findBlockers for an instance, and the time of the search.
func (a *Agent) blockers(g int, in *state.Instance) (string, time.Time) {
	now := a.node.Now()
	a.node.Lock()
	text, searched := in.Blocked, in.Searched
	a.node.Unlock()
	if a.cfg.DestroyHook == "" && !searched.IsZero() && now.Sub(searched) < searchPause {
		return text, searched
	}
	return a.findBlockers(g, in), now
}

// findBlockers describes the processes that prevent the driver from destroying an instance, and requests the destroy
// hook if they may be monitoring programs. Unlike holders, it includes root's processes.
func (a *Agent) findBlockers(g int, in *state.Instance) string {
	var found map[*state.Instance][]gpu.Process
	own, err := a.devicesOf(placed{g, in})
	if err == nil {
		var held gpu.Held
		if held, err = a.procs.ScanRoot(own); err == nil {
			found, err = a.holdersIn(held, []placed{{g, in}})
		}
	}
	if err = ignoreNoCapabilities(err); err != nil {
		return heldNote(nil, err)
	}
	a.wantHook(&in.HookState, found[in])
	if len(found[in]) > 0 {
		return heldNote(found[in], nil)
	}
	text := "in use, but no process holds it open" // root's processes need no open capability file
	if monitors := a.rootOn(g); len(monitors) > 0 {
		text += "; root's processes on the GPU: " + describe(monitors)
	}
	return text
}

// rootOn returns root's processes that have the device file of a GPU open.
func (a *Agent) rootOn(g int) []gpu.Process {
	d, err := a.caps.Device(a.node.Cards[g].Minor)
	if err != nil {
		return nil
	}
	held, err := a.procs.ScanRoot([]gpu.Device{d})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(held.Open[d], func(h gpu.Process) bool { return !h.Root() })
}

// maxNoted limits the number of processes listed in a message.
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
