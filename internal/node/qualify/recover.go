package qualify

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/node/gpu"
)

// undo removes what an earlier run left, and only that. Every line that it prints names one thing.
func (r *run) undo(old []entry) error {
	if len(old) == 0 || old[0].Op != opBegin {
		return nil // the run was killed before it changed anything
	}
	begin := old[0]
	r.say("an earlier run did not finish; removing what it left")
	if begin.Boot != bootID() {
		r.say("the node has been rebooted since: no instance and no device file of that run is left")
		return r.undoModes(old)
	}
	var errs error
	if err := r.undoModes(old); err != nil {
		errs = err
	}
	for _, p := range left(old) {
		errs = errors.Join(errs, r.undoInstance(p))
	}
	errs = errors.Join(errs, r.undoGroups(old))
	for k := len(old) - 1; k >= 0; k-- {
		if old[k].Op == opAccess {
			r.say("%s restored", old[k].Path)
			errs = errors.Join(errs, os.WriteFile(old[k].Path, []byte(old[k].Text), 0))
		}
	}
	keep, err := filesOf(r.caps, r.cards, begin.Instances)
	if err != nil {
		return errors.Join(errs, err)
	}
	changed, err := restoreFiles(r.opt.Dev, begin.Files, keep)
	for _, text := range changed {
		r.say("%s", text)
	}
	return errors.Join(errs, err)
}

// undoGroups removes the cgroups of the earlier run.
func (r *run) undoGroups(old []entry) error {
	k := slices.IndexFunc(old, func(e entry) bool { return e.Op == opGroups })
	if k < 0 || slices.ContainsFunc(old, func(e entry) bool { return e.Op == opGroupsGone }) {
		return nil
	}
	for _, c := range r.cards {
		if c.uuid != old[k].GPU {
			continue
		}
		r.say("removing the cgroups %s", strings.Join(scratch, " and "))
		l, err := r.openLimits(c)
		if err != nil {
			return err
		}
		l.begin = old[k]
		return l.close()
	}
	return nil
}

// undoInstance removes an instance if it is certain that the earlier run created it.
func (r *run) undoInstance(p pending) error {
	for _, c := range r.cards {
		if c.uuid != p.GPU || !c.mig {
			continue
		}
		k := slices.IndexFunc(c.foreign, func(in instance) bool {
			return in.Profile == p.Profile && in.Start == p.Start && (!p.created || in.GI == p.GI)
		})
		if k < 0 {
			return nil
		}
		in := c.foreign[k]
		gi, ret := c.dev.GetGpuInstanceById(in.GI)
		if ret != nvml.SUCCESS {
			return fmt.Errorf("couldn't open instance %d of GPU %d: %s", in.GI, c.index, nvml.ErrorString(ret))
		}
		s := &slice{instance: in, c: c, gi: gi, ciID: -1}
		for _, q := range c.profiles {
			if int(q.info.Id) == in.Profile {
				s.p = q
			}
		}
		// The listing of compute instances needs the capability file.
		if err := r.caps.Make(c.minor, gpu.Instance{GI: in.GI}); err != nil {
			return err
		}
		all := s.computeInstances()
		if len(all) > 0 {
			s.ci = all[0]
			if info, ret := s.ci.GetInfo(); ret == nvml.SUCCESS {
				s.ciID = int(info.Id)
			}
		}
		uuid := ""
		if dev, _ := s.migDevice(); dev != nil {
			uuid, _ = dev.GetUUID()
		}
		if !p.created && len(all) > 0 || len(all) > 1 || p.UUID != "" && uuid != "" && uuid != p.UUID {
			r.say("kept: %s (GPU instance %d) is not the instance of the earlier run", s, in.GI)
			return nil
		}
		r.say("removing %s (GPU instance %d)", s, in.GI)
		s.n, c.own[in.GI] = p.N, s
		if err := r.destroy(s); err != nil {
			return err
		}
		c.foreign = slices.Delete(c.foreign, k, k+1)
		return nil
	}
	return nil
}

// computeInstances lists a GPU instance's compute instances of all profiles.
func (s *slice) computeInstances() []nvml.ComputeInstance {
	var all []nvml.ComputeInstance
	for k := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT + 4 {
		info, ret := s.gi.GetComputeInstanceProfileInfo(k, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != nvml.SUCCESS {
			continue
		}
		if cis, ret := s.gi.GetComputeInstances(&info); ret == nvml.SUCCESS {
			all = append(all, cis...)
		}
	}
	return all
}

// undoModes turns MIG mode on again where the earlier run was killed during a switch.
func (r *run) undoModes(old []entry) error {
	off := map[string]bool{}
	for _, e := range old {
		if e.Op == opMode || e.Op == opModeOK {
			off[e.GPU] = e.Op == opMode
		}
	}
	var errs error
	for k, c := range r.cards {
		if !off[c.uuid] || c.mig && !c.pending {
			continue
		}
		r.say("turning MIG mode of GPU %d on", c.index)
		if err := c.setMode(nvml.DEVICE_MIG_ENABLE); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		again, err := newCard(r.lib, c.index)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		r.cards[k] = again
	}
	return errs
}
