package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/node/gpu"
	"caelum/internal/node/ledger"
	"caelum/internal/node/state"
)

// A GPU whose MIG mode is off holds one instance of the mig.Full profile (package gpu). The agent creates, leases and
// destroys this instance like any other, and records its intents in the ledger. There are three differences:
//
//   - The device file of the GPU (/dev/nvidiaN) gives access to the instance. While MIG mode is on, all users can open
//     this file. While MIG mode is off, only root or the job's user can open it.
//   - If jobs are confined by a devices cgroup, a job can open only the device files of its own GPUs.
//   - The agent adopts a foreign mig.Full instance without `caelum adopt`, because MIG mode can be off after a reboot.

// fullInstance is the instance of a GPU whose MIG mode is off, for the methods of gpu.Caps.
var fullInstance = gpu.Instance{GI: gpu.FullGI, Profile: mig.Full}

// possible returns the devices of all instances that can exist on the GPU.
func (a *Agent) possible(c *state.Card) ([]gpu.Device, error) {
	all, err := a.caps.Possible(c.Minor)
	if err != nil || !a.node.Full() {
		return all, err
	}
	d, err := a.caps.Device(c.Minor)
	return append(all, d), err
}

// shareDevice allows all users to open the device file of a GPU whose MIG mode is on, as slices require, or the users
// of fractions to open that of their GPU. Every comparison calls it, because an earlier agent may have exited after it
// switched the MIG mode but before it changed the file.
func (a *Agent) shareDevice(c *state.Card) error {
	switch {
	case !c.MayBeFull():
		return nil
	case c.Model.Fractions > 0:
		return a.setUser(c, 0, nil)
	}
	return a.caps.Share(c.Minor)
}

// adoptFull adopts the GPUs whose MIG mode was off when the node booted, or was switched off by another program. It
// does so only if no job can be using the GPU (see Adopt).
func (a *Agent) adoptFull(ctx context.Context) error {
	found := map[int]gpu.Instance{}
	a.node.Lock()
	for g, c := range a.node.Cards {
		for _, f := range c.Foreign {
			if f.GI == gpu.FullGI && c.MayBeFull() && c.Problem == "" {
				found[g] = f
			}
		}
	}
	a.node.Unlock()
	if len(found) == 0 {
		return nil
	}
	if err := a.allJobsLeased(ctx); err != nil {
		return nil // a later comparison tries again
	}
	var all error
	for g, f := range found {
		reason, err := a.adoptForeign(g, a.node.Cards[g], f)
		if reason != "" {
			a.log.WithField("gpu", g).Warn("MIG mode is off, and the agent will not offer the GPU: " + reason)
		}
		a.checkFabric(g, a.node.Cards[g])
		all = errors.Join(all, err)
	}
	return all
}

// make makes the driver create an instance. The caller holds the card's hardware lock.
func (a *Agent) make(g int, profile string, start int) (gpu.Instance, error) {
	if profile == mig.Full {
		return a.makeFull(g)
	}
	return a.hw.Create(g, profile, start)
}

// makeFull switches off a GPU's MIG mode, which the driver refuses to do while a process is using the GPU. It therefore
// first restricts the GPU's device file to root, to prevent other user processes from opening it. If a process still
// has the file open, the GPU is not offered as a full GPU until the process has closed it. If a program that belongs to
// root keeps the GPU in use, the destroy hook runs (makeFullHeld).
func (a *Agent) makeFull(g int) (made gpu.Instance, err error) {
	c := a.node.Cards[g]
	if err := a.caps.Make(c.Minor, fullInstance); err != nil {
		return made, err
	}
	if c.Virtual {
		a.holdBack(g, gpu.ErrVirtual.Error())
		return made, gpu.ErrVirtual
	}
	if held, err := a.holdersOfGPU(g); err != nil {
		return made, err
	} else if len(held) > 0 {
		a.holdBack(g, "held open by "+describe(held))
		return made, fmt.Errorf("couldn't switch off MIG mode on GPU %d: %w", g, gpu.ErrInUse)
	}
	made, err = a.hw.Create(g, mig.Full, 0)
	if errors.Is(err, gpu.ErrInUse) {
		a.holdBack(g, "the driver refuses to switch MIG mode off: "+a.users(g, c))
		a.wantHook(&c.HookState, nil)
	}
	return made, err
}

// makeFullHeld turns a GPU into an idle full GPU for the prolog that is waiting for it, while the monitoring program is
// paused by the destroy hook. It returns an error if slices have been created on the GPU for other jobs in the
// meantime.
func (a *Agent) makeFullHeld(g int) error {
	c := a.node.Cards[g]
	c.Hardware.Lock()
	defer c.Hardware.Unlock()
	p, ok := c.Model.Placement(mig.Full, 0)
	a.node.Lock()
	has := len(c.Ours)+len(c.Foreign) > 0
	full := c.IsFull()
	a.node.Unlock()
	switch {
	case full:
		return nil
	case has || !ok:
		return errors.New("other jobs are using the GPU")
	}
	in, err := a.create(0, offer.Spot{GPU: g, Placement: p}, new(spent))
	if err != nil {
		return err
	}
	a.node.Lock()
	c.Held = ""
	a.node.Unlock()
	_, err = a.setHeldAside([]placed{{g, in}}) // all users could previously open the device file
	return err
}

// holdersOfGPU ends the processes that have a GPU's device file open, if the agent is allowed to end them. It returns
// the remaining processes, except for root's.
func (a *Agent) holdersOfGPU(g int) ([]gpu.Process, error) {
	in := &state.Instance{Instance: ledger.Instance{GPU: a.node.Cards[g].UUID, GI: gpu.FullGI, Profile: mig.Full}}
	found, err := a.clear([]placed{{g, in}}, clearRounds)
	return found[in], err
}

// users describes why the driver does not switch a GPU's MIG mode: the processes that have the GPU's device file open,
// including root's, and on a GPU that must be reset, also persistence mode and the nvidia_drm module, which keep the
// driver from resetting a GPU even without a process.
func (a *Agent) users(g int, c *state.Card) string {
	var causes []string
	d, err := a.caps.Device(c.Minor)
	if err == nil {
		var held gpu.Held
		if held, err = a.procs.ScanRoot([]gpu.Device{d}); err == nil && len(held.Open[d]) > 0 {
			causes = append(causes, "the GPU is held open by "+describe(held.Open[d]))
		}
	}
	if c.Reset && a.hw.Persistent(g) {
		causes = append(causes, fmt.Sprintf("persistence mode is on (stop nvidia-persistenced, or run "+
			"`nvidia-smi -i %d -pm 0`)", c.Index))
	}
	if c.Reset && a.caps.DRM() {
		causes = append(causes, "the nvidia_drm module is loaded (stop the display server and run "+
			"`modprobe -r nvidia_drm`; to keep it unloaded, put `blacklist nvidia_drm` into "+
			"/etc/modprobe.d/caelum.conf)")
	}
	if len(causes) == 0 {
		return "the GPU is in use; stop its monitoring programs, for example nvidia-persistenced and DCGM"
	}
	return strings.Join(causes, "; ")
}

// holdBack records the reason why the agent cannot switch off a GPU's MIG mode.
func (a *Agent) holdBack(g int, reason string) {
	c := a.node.Cards[g]
	a.node.Lock()
	same := c.Held == reason
	c.Held = reason
	c.PlanWithoutFull()
	a.node.Version++
	a.node.Unlock()
	if !same {
		a.log.WithField("gpu", g).Warn("the GPU cannot become a full GPU: " + reason)
	}
}

// retryHeld makes a GPU available as a full GPU again if no user process has its device file open. The next attempt to
// switch the MIG mode will show whether the driver still refuses to do so. The caller holds the card's hardware lock.
func (a *Agent) retryHeld(g int, c *state.Card) {
	a.node.Lock()
	held := c.Held != "" && !c.WantsHook && !c.Virtual
	a.node.Unlock()
	if !held {
		return
	}
	if found, err := a.holdersOfGPU(g); err != nil || len(found) > 0 {
		return
	}
	a.node.Lock()
	defer a.node.Unlock()
	c.Held = ""
	a.node.Version++
}
