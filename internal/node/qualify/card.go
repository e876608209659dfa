package qualify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/core/mig"
	"caelum/internal/node/gpu"
)

// library is the part of NVML that a run calls, apart from the methods of the handles.
type library interface {
	Init() nvml.Return
	Shutdown() nvml.Return
	SystemGetDriverVersion() (string, nvml.Return)
	DeviceGetCount() (int, nvml.Return)
	DeviceGetHandleByIndex(int) (nvml.Device, nvml.Return)
	Extensions() nvml.ExtendedInterface
}

// instance identifies a GPU instance.
type instance struct {
	GI      int `json:"gi"`
	Profile int `json:"profile"`
	Start   int `json:"start"`
	Size    int `json:"size"`
}

func (in instance) overlaps(start, size int) bool {
	return in.Start < start+size && start < in.Start+in.Size
}

// profile is a GPU instance profile that the driver offers.
type profile struct {
	info   nvml.GpuInstanceProfileInfo
	name   string // without "MIG "; "" if the driver reports no name
	starts []int
	size   int // units
}

// card is a GPU.
type card struct {
	index, minor int
	name, uuid   string
	dev          nvml.Device
	mig          bool
	withoutMIG   bool
	pending      bool       // a MIG mode change is pending
	profiles     []profile  // by ascending size
	foreign      []instance // the instances that existed before the run
	own          map[int]*slice
	facts        facts
}

// newCard reads a GPU. It creates nothing.
func newCard(lib library, index int) (*card, error) {
	c := &card{index: index, minor: index, facts: newFacts(), own: map[int]*slice{}}
	dev, ret := lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("couldn't open GPU %d: %s; see the kernel log for Xid messages",
			index, nvml.ErrorString(ret))
	}
	c.dev = dev
	c.name, _ = dev.GetName()
	c.uuid, _ = dev.GetUUID()
	if minor, ret := dev.GetMinorNumber(); ret == nvml.SUCCESS {
		c.minor = minor
	}
	current, pending, ret := dev.GetMigMode()
	c.mig = ret == nvml.SUCCESS && current == nvml.DEVICE_MIG_ENABLE
	c.pending = ret == nvml.SUCCESS && current != pending
	if c.withoutMIG = ret == nvml.ERROR_NOT_SUPPORTED; c.withoutMIG {
		return c, nil
	}
	for k := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := dev.GetGpuInstanceProfileInfo(k)
		if ret != nvml.SUCCESS {
			continue
		}
		p := profile{info: info}
		if v2, ret := dev.GetGpuInstanceProfileInfoV(k).V2(); ret == nvml.SUCCESS {
			p.name = gpu.Text(v2.Name[:])
		}
		places, ret := dev.GetGpuInstancePossiblePlacements(&info)
		if ret != nvml.SUCCESS || len(places) == 0 {
			continue
		}
		for _, pl := range places {
			p.starts, p.size = append(p.starts, int(pl.Start)), int(pl.Size)
		}
		slices.Sort(p.starts)
		c.profiles = append(c.profiles, p)
	}
	slices.SortStableFunc(c.profiles, func(a, b profile) int { return cmp.Compare(a.size, b.size) })
	if c.mig {
		var err error
		c.foreign, err = c.instances()
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// title returns the profile's name for messages and records.
func (p profile) title() string {
	return cmp.Or(strings.TrimPrefix(p.name, "MIG "), fmt.Sprintf("profile-%d", p.info.Id))
}

// instances lists all GPU instances, by profile.
func (c *card) instances() ([]instance, error) {
	var all []instance
	for _, p := range c.profiles {
		began := time.Now()
		gis, ret := c.dev.GetGpuInstances(&p.info)
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("GPU %d: couldn't list the instances of %s: %s", c.index, p.title(),
				nvml.ErrorString(ret))
		}
		c.took("list GPU instances", began)
		for _, gi := range gis {
			info, ret := gi.GetInfo()
			if ret != nvml.SUCCESS {
				continue // another program has destroyed the instance
			}
			all = append(all, instance{int(info.Id), int(info.ProfileId),
				int(info.Placement.Start), int(info.Placement.Size)})
		}
	}
	slices.SortFunc(all, func(a, b instance) int { return cmp.Compare(a.GI, b.GI) })
	return all, nil
}

// took records the duration of a call.
func (c *card) took(call string, began time.Time) {
	c.facts.times[call] = append(c.facts.times[call], time.Since(began))
}

// free reports whether no instance occupies a placement.
func (c *card) free(start, size int) bool {
	for _, in := range c.foreign {
		if in.overlaps(start, size) {
			return false
		}
	}
	for _, s := range c.own {
		if s.overlaps(start, size) {
			return false
		}
	}
	return true
}

// room returns the smallest profile and the first start at which it is free. ok is false if there is none.
func (c *card) room() (p profile, start int, ok bool) {
	if len(c.profiles) == 0 {
		return p, 0, false
	}
	p = c.profiles[0]
	k := slices.IndexFunc(p.starts, func(start int) bool { return c.free(start, p.size) })
	if k < 0 {
		return p, 0, false
	}
	return p, p.starts[k], true
}

// describe checks the profiles against Caelum's table (A23, A24) and records them.
func (c *card) describe(rep *Report) {
	var table *mig.Model
	for _, m := range mig.Models() {
		if m.Device == c.name {
			table = m
		}
	}
	if table == nil {
		rep.skip("A23", "%s is not in Caelum's table of GPU models", c.name)
		rep.skip("A24", "%s is not in Caelum's table of GPU models", c.name)
	}
	for _, p := range c.profiles {
		i := p.info
		gib := math.Round(float64(i.MemorySizeMB)/1024*100) / 100
		c.facts.lgip = append(c.facts.lgip, []any{p.title(), i.Id, i.InstanceCount, gib, i.MultiprocessorCount,
			i.CopyEngineCount, i.DecoderCount, i.EncoderCount, i.JpegCount, i.OfaCount})
		c.facts.lgipp[fmt.Sprint(i.Id)] = []any{p.starts, p.size}
		if c.mig && p.name != "" && !strings.HasPrefix(p.name, "MIG ") {
			rep.differs("A23", "the name of profile %d is %q, without MIG", i.Id, p.name)
		}
		if table == nil {
			continue
		}
		k := slices.IndexFunc(table.Profiles, func(t mig.Profile) bool { return t.ID == int(i.Id) })
		if k < 0 {
			rep.differs("A23", "%s (id %d) is not in Caelum's table for %s", p.title(), i.Id, table.Name)
			continue
		}
		t := table.Profiles[k]
		rep.check(slices.Equal(t.Starts, p.starts) && t.Size == p.size, "A23",
			"the starts of the profiles of %s are those of the table", table.Name)
		if t.MemoryMiB > 0 {
			off := math.Abs(float64(i.MemorySizeMB)/float64(t.MemoryMiB) - 1)
			if off > memoryTolerance {
				rep.differs("A23", "%s has %d MiB, in the table %d", p.title(), i.MemorySizeMB, t.MemoryMiB)
			}
		}
		if int(i.InstanceCount) == t.Max {
			rep.holds("A24", "the counts of %s are those of the table", table.Name)
		} else {
			rep.differs("A24", "the count of %s is %d, in the table %d", p.title(), i.InstanceCount, t.Max)
		}
	}
	for k := nvml.GPU_INSTANCE_PROFILE_COUNT; k < nvml.GPU_INSTANCE_PROFILE_COUNT+16; k++ {
		if _, ret := c.dev.GetGpuInstanceProfileInfo(k); ret == nvml.SUCCESS {
			rep.differs("A23", "the driver offers profile number %d, which this release of Caelum does not know", k)
		}
	}
}

// memoryTolerance is the largest difference between the memory of a profile in two driver releases: up to 2 GiB of a
// 1g.35gb instance were seen.
const memoryTolerance = 0.07
