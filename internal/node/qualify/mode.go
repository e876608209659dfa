package qualify

import (
	"context"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// unloadPause is the time without any client of the driver. The driver unloads a GPU's state at once.
const unloadPause = time.Second

// unload closes NVML while a slice exists, so that the GPU has no client (A21).
func (r *run) unload(c *card) error {
	if !r.has("nvmlDeviceGetPersistenceMode") {
		r.rep.skip("A21", "the driver does not report the persistence mode")
		return nil
	}
	if mode, ret := c.dev.GetPersistenceMode(); ret != nvml.SUCCESS || mode == nvml.FEATURE_ENABLED {
		r.rep.skip("A21", "persistence mode is on")
		return nil
	}
	s, err := r.createAny(c)
	if s == nil || err != nil {
		return err
	}
	if s.uuid == "" {
		return r.destroy(s)
	}
	r.lib.Shutdown()
	time.Sleep(unloadPause)
	if ret := r.lib.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("couldn't open NVML again: %s", nvml.ErrorString(ret))
	}
	for _, c := range r.cards {
		var ret nvml.Return
		if c.dev, ret = r.lib.DeviceGetHandleByIndex(c.index); ret != nvml.SUCCESS {
			return fmt.Errorf("couldn't open GPU %d again: %s", c.index, nvml.ErrorString(ret))
		}
	}
	gi, ret := c.dev.GetGpuInstanceById(s.GI)
	if ret != nvml.SUCCESS {
		r.rep.differs("A21", "the slice was gone after %v without a client", unloadPause)
		delete(c.own, s.GI)
		return r.journal.write(entry{N: s.n, Op: opGone})
	}
	s.gi, s.ci = gi, nil
	if all := s.computeInstances(); len(all) > 0 {
		s.ci = all[0]
	}
	uuid := ""
	if dev, _ := s.migDevice(); dev != nil {
		uuid, _ = dev.GetUUID()
	}
	r.rep.check(s.ci != nil && uuid == s.uuid, "A21", "the slice existed after %v without a client, with "+
		"the same UUID: %t", unloadPause, uuid == s.uuid)
	return r.destroy(s)
}

// setMode switches a GPU's MIG mode and checks that the switch took effect.
func (c *card) setMode(mode int) error {
	activation, ret := c.dev.SetMigMode(mode)
	current, pending, modeRet := c.dev.GetMigMode()
	if ret == nvml.SUCCESS && modeRet == nvml.SUCCESS && current == mode && pending == mode {
		return nil
	}
	if ret == nvml.SUCCESS {
		ret = activation
	}
	return fmt.Errorf("GPU %d: the switch of the MIG mode to %d answered %q, and the mode is %d, pending %d",
		c.index, mode, nvml.ErrorString(ret), current, pending)
}

// modes switches MIG mode off and on again (A18, A19, A27). It skips GPUs with instances of other programs.
func (r *run) modes(ctx context.Context, c *card) error {
	skip := func(format string, args ...any) {
		for _, id := range []string{"A18", "A19", "A27"} {
			r.rep.skip(id, format, args...)
		}
	}
	if !r.opt.ModeSwitch {
		skip("--mode-switch is not set")
		return nil
	}
	if len(c.foreign) > 0 {
		skip("GPU %d has instances of other programs", c.index)
		return nil
	}
	if r.has("nvmlDeviceGetVirtualizationMode") {
		mode, ret := c.dev.GetVirtualizationMode()
		if ret == nvml.SUCCESS && mode == nvml.GPU_VIRTUALIZATION_MODE_PASSTHROUGH {
			skip("in a virtual machine, GPU %d would need a reboot to switch MIG mode off", c.index)
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := r.journal.write(entry{Op: opMode, GPU: c.uuid}); err != nil {
		return err
	}
	if err := r.heldSwitch(c); err != nil {
		return err
	}
	began := time.Now()
	err := c.setMode(nvml.DEVICE_MIG_DISABLE)
	c.took("switch MIG mode off", began)
	if err != nil {
		r.rep.differs("A18", "%v", err)
		r.rep.skip("A19", "MIG mode was not switched off")
	} else {
		r.fabric(ctx, c)
	}
	began = time.Now()
	if back := c.setMode(nvml.DEVICE_MIG_ENABLE); back != nil {
		r.rep.differs("A18", "%v", back)
		return fmt.Errorf("MIG mode was not restored: %w; run `nvidia-smi -i %d -mig 1`", back, c.index)
	}
	c.took("switch MIG mode on", began)
	if err == nil {
		r.rep.holds("A18", "MIG mode was switched off and on again")
	}
	return r.journal.write(entry{Op: opModeOK, GPU: c.uuid})
}

// heldSwitch tries to switch MIG mode off while a process has the GPU's device file open (A27).
func (r *run) heldSwitch(c *card) error {
	h, err := r.start(false, "hold", r.caps.DeviceFile(c.minor))
	if err != nil {
		return err
	}
	if _, err := h.wait(); err != nil {
		r.rep.skip("A27", "a second process could not open the device file")
		h.end()
		return nil
	}
	err = c.setMode(nvml.DEVICE_MIG_DISABLE)
	h.end()
	current, pending, _ := c.dev.GetMigMode()
	if current != nvml.DEVICE_MIG_ENABLE || pending != nvml.DEVICE_MIG_ENABLE {
		if back := c.setMode(nvml.DEVICE_MIG_ENABLE); back != nil {
			r.rep.differs("A18", "a pending switch was not revocable: %v", back)
			return back
		}
	}
	r.rep.check(err != nil, "A27", "a process that had the device file open prevented the switch: %t", err != nil)
	return nil
}

// fabricLimit is the time in which a GPU must join its NVSwitch fabric.
const fabricLimit = 30 * time.Second

// fabric waits until the GPU can be used for NVLink jobs (A19).
func (r *run) fabric(ctx context.Context, c *card) {
	if !r.has("nvmlDeviceGetGpuFabricInfo") {
		r.rep.skip("A19", "the driver does not report the fabric state")
		return
	}
	began := time.Now()
	for {
		info, ret := c.dev.GetGpuFabricInfo()
		switch {
		case ret == nvml.ERROR_NOT_SUPPORTED,
			ret == nvml.SUCCESS && info.State == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED:
			r.rep.holds("A19", "the GPUs have no NVSwitch fabric")
			return
		case ret != nvml.SUCCESS:
			r.rep.skip("A19", "the fabric state answered %s", nvml.ErrorString(ret))
			return
		case info.State == nvml.GPU_FABRIC_STATE_COMPLETED:
			c.took("fabric state Completed after MIG mode off", began)
			r.rep.holds("A19", "the fabric state became Completed")
			return
		case time.Since(began) > r.opt.FabricLimit || ctx.Err() != nil:
			r.rep.differs("A19", "the fabric state of GPU %d was %d, not Completed, after %v", c.index, info.State,
				time.Since(began).Round(time.Second))
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}
