package gpu

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxCI is the number of possible compute instance ids of a GPU instance.
const maxCI = 8

// ciProfiles returns the compute instance profiles that a GPU instance supports. They depend only on the instance's own
// profile, so later calls for the same profile do not ask the driver.
func (d *device) ciProfiles(gi nvml.GpuInstance, profile uint32) ([]nvml.ComputeInstanceProfileInfo, error) {
	d.learned.mu.Lock()
	all := d.learned.profiles[profile]
	d.learned.mu.Unlock()
	if all != nil {
		return all, nil
	}
	for k := range maxProfiles {
		info, ret := gi.GetComputeInstanceProfileInfo(k, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == nvml.ERROR_INVALID_ARGUMENT && k >= nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
			break
		}
		switch ret {
		case nvml.SUCCESS:
			all = append(all, info)
		case nvml.ERROR_NO_PERMISSION, nvml.ERROR_GPU_IS_LOST:
			return nil, check(ret, "read the compute instance profiles")
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("compute instance profile %w", ErrNotFound)
	}
	d.learned.mu.Lock()
	d.learned.profiles[profile] = all
	d.learned.mu.Unlock()
	return all, nil
}

// largest returns the profile of a compute instance of the full size: the one with the most slices and, of those, the
// most SMs. On Hopper and Blackwell, a GPU instance of one slice with double memory has more SMs than the first profile
// of one slice gives to a compute instance.
func largest(all []nvml.ComputeInstanceProfileInfo) nvml.ComputeInstanceProfileInfo {
	best := all[0]
	for _, info := range all[1:] {
		if info.SliceCount > best.SliceCount ||
			info.SliceCount == best.SliceCount && info.MultiprocessorCount > best.MultiprocessorCount {
			best = info
		}
	}
	return best
}

// describeCIs sets the fields of in that describe the compute instances of a GPU instance with the given profile.
func (d *device) describeCIs(gi nvml.GpuInstance, profile uint32, in *Instance) error {
	if err := d.caps.reach(d.minor, in.GI); err != nil {
		return err
	}
	all, err := d.ciProfiles(gi, profile)
	if err != nil {
		return err
	}
	in.MaxSMs = int(largest(all).MultiprocessorCount)
	for id := range maxCI {
		ci, ret := gi.GetComputeInstanceById(id)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if err := check(ret, "open a compute instance"); err != nil {
			return err
		}
		info, ret := ci.GetInfo()
		if err := check(ret, "read a compute instance"); err != nil {
			return err
		}
		in.CIs = append(in.CIs, int(info.Id))
		for _, p := range all {
			if p.Id == info.ProfileId {
				in.SMs += int(p.MultiprocessorCount)
			}
		}
		if in.SMs == in.MaxSMs {
			break // no other compute instance has room
		}
	}
	in.Whole = len(in.CIs) == 1 && in.SMs == in.MaxSMs
	return nil
}

// createCI creates a compute instance of the full size in a GPU instance without compute instances, whose capability
// file the caller can open, and sets the fields of in that describe it.
func (d *device) createCI(gi nvml.GpuInstance, profile uint32, in *Instance) error {
	all, err := d.ciProfiles(gi, profile)
	if err != nil {
		return err
	}
	info := largest(all)
	var ci nvml.ComputeInstance
	err = retryInUse(func() (err error) {
		var ret nvml.Return
		ci, ret = gi.CreateComputeInstance(&info)
		return check(ret, "create the compute instance")
	})
	if err != nil {
		return err
	}
	made, ret := ci.GetInfo()
	if err := check(ret, "read the compute instance"); err != nil {
		return err
	}
	in.CIs, in.Whole = []int{int(made.Id)}, true
	in.SMs, in.MaxSMs = int(info.MultiprocessorCount), int(info.MultiprocessorCount)
	d.learned.set(in.GI, 1)
	in.UUID, err = d.uuidOf(in.GI)
	return err
}

// destroyCI destroys a compute instance, if it exists.
func destroyCI(gi nvml.GpuInstance, id int) error {
	ci, ret := gi.GetComputeInstanceById(id)
	if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
		return nil
	}
	if err := check(ret, "open the compute instance"); err != nil {
		return err
	}
	return retryInUse(func() error { return check(ci.Destroy(), "destroy the compute instance") })
}
