package qualify

import (
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/node/gpu"
)

// slice is an instance that this run has created.
type slice struct {
	instance
	n    int // the number in the journal
	c    *card
	p    profile
	gi   nvml.GpuInstance
	ci   nvml.ComputeInstance
	ciID int
	uuid string
}

func (s *slice) String() string {
	return fmt.Sprintf("%s at %d of GPU %d", s.p.title(), s.Start, s.c.index)
}

// create creates a GPU instance at a start. The journal has its line before the call, so that the next run finds the
// instance even if this run is killed during the call. The result is nil if the driver created none.
func (r *run) create(c *card, p profile, start int) (*slice, nvml.Return, error) {
	n, err := r.journal.creating(c, p, start)
	if err != nil {
		return nil, nvml.ERROR_UNKNOWN, err
	}
	began := time.Now()
	gi, ret := c.dev.CreateGpuInstanceWithPlacement(&p.info,
		&nvml.GpuInstancePlacement{Start: uint32(start), Size: uint32(p.size)})
	if ret != nvml.SUCCESS {
		// A failed call can leave an instance behind.
		gi = c.stray(p, start)
		if gi == nil {
			return nil, ret, r.journal.write(entry{N: n, Op: opGone})
		}
	} else {
		c.took("create GPU instance", began)
	}
	info, infoRet := gi.GetInfo()
	s := &slice{n: n, c: c, p: p, gi: gi, ciID: -1, instance: instance{GI: int(info.Id), Profile: int(info.ProfileId),
		Start: int(info.Placement.Start), Size: int(info.Placement.Size)}}
	if infoRet != nvml.SUCCESS {
		return nil, infoRet, fmt.Errorf("couldn't read the new instance %s: %s; the next run removes it", s,
			nvml.ErrorString(infoRet))
	}
	c.own[s.GI] = s
	if err := r.journal.write(entry{N: n, Op: opCreated, GI: s.GI}); err != nil {
		return s, ret, err
	}
	return s, ret, nil
}

// stray returns the instance of a profile at a start that neither this run nor another program had before, or nil.
func (c *card) stray(p profile, start int) nvml.GpuInstance {
	gis, _ := c.dev.GetGpuInstances(&p.info)
	for _, gi := range gis {
		info, ret := gi.GetInfo()
		if ret != nvml.SUCCESS || int(info.Placement.Start) != start || c.own[int(info.Id)] != nil {
			continue
		}
		known := false
		for _, in := range c.foreign {
			known = known || in.GI == int(info.Id)
		}
		if !known {
			return gi
		}
	}
	return nil
}

// prepare creates the GPU instance's capability file, as the agent does before any compute instance call.
func (r *run) prepare(s *slice) error {
	return r.caps.Make(s.c.minor, gpu.Instance{GI: s.GI})
}

// compute creates the compute instance with the most SMs among those with all slices, and returns its profile.
func (r *run) compute(s *slice) (nvml.ComputeInstanceProfileInfo, nvml.Return, error) {
	var best nvml.ComputeInstanceProfileInfo
	// Newer drivers have more profiles than the library's header.
	for k := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT + 4 {
		info, ret := s.gi.GetComputeInstanceProfileInfo(k, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == nvml.SUCCESS && info.SliceCount == s.p.info.SliceCount &&
			info.MultiprocessorCount > best.MultiprocessorCount {
			best = info
		}
	}
	if best.SliceCount == 0 {
		return best, nvml.ERROR_NOT_FOUND, nil
	}
	began := time.Now()
	ci, ret := s.gi.CreateComputeInstance(&best)
	if ret != nvml.SUCCESS {
		return best, ret, nil
	}
	s.c.took("create compute instance", began)
	s.ci = ci
	if info, ret := ci.GetInfo(); ret == nvml.SUCCESS {
		s.ciID = int(info.Id)
	}
	if err := r.caps.Make(s.c.minor, gpu.Instance{GI: s.GI, CIs: []int{s.ciID}}); err != nil {
		return best, ret, err
	}
	return best, ret, nil
}

// migDevice finds the slice's MIG device, and returns whether the devices are in the order of their ids.
func (s *slice) migDevice() (found nvml.Device, ordered bool) {
	began := time.Now()
	most, _ := s.c.dev.GetMaxMigDeviceCount()
	last, ordered := -1, true
	for i := range most {
		m, ret := s.c.dev.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		gi, r1 := m.GetGpuInstanceId()
		ci, r2 := m.GetComputeInstanceId()
		if r1 != nvml.SUCCESS || r2 != nvml.SUCCESS {
			continue
		}
		ordered = ordered && gi >= last
		last = gi
		if gi == s.GI && ci == s.ciID {
			found = m
		}
	}
	s.c.took("walk MIG devices", began)
	return found, ordered
}

// destroyLimit bounds the retries of a destroy: a driver needs a short time after a client has ended.
const destroyLimit = 20 * time.Second

// destroy removes a slice, with its compute instance. It repeats calls that return IN_USE.
func (r *run) destroy(s *slice) error {
	if s.c.own[s.GI] != s {
		return nil
	}
	end := time.Now().Add(destroyLimit)
	call := func(what string, f func() nvml.Return) error {
		for {
			began := time.Now()
			ret := f()
			if ret == nvml.SUCCESS {
				s.c.took(what, began)
				return nil
			}
			if ret != nvml.ERROR_IN_USE || time.Now().After(end) {
				return fmt.Errorf("couldn't %s of %s: %s", what, s, nvml.ErrorString(ret))
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	if s.ci != nil {
		if err := call("destroy compute instance", s.ci.Destroy); err != nil {
			return err
		}
		s.ci = nil
	}
	if err := call("destroy GPU instance", s.gi.Destroy); err != nil {
		return err
	}
	delete(s.c.own, s.GI)
	return r.journal.write(entry{N: s.n, Op: opGone})
}
