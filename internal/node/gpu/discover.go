package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/core/mig"
)

// GPUs implements Hardware.
func (n *NVML) GPUs() ([]GPU, error) {
	count, ret := n.lib.DeviceGetCount()
	if err := check(ret, "count the GPUs"); err != nil {
		return nil, err
	}
	n.devices = make([]atomic.Pointer[device], count)
	gpus := make([]GPU, count)
	for i := range gpus {
		d := new(device)
		gpus[i] = n.discover(i, d)
		n.devices[i].Store(d)
	}
	// While MIG mode is off, the driver may not report profile names. The names then come from GPUs of the same model
	// whose MIG mode is on.
	for i := range gpus {
		if gpus[i].Full {
			d := new(device)
			gpus[i] = n.discover(i, d)
			n.devices[i].Store(d)
		}
	}
	for i := range gpus {
		n.leave(&gpus[i])
	}
	return gpus, nil
}

// leave removes the model of a GPU without MIG beside GPUs that support MIG, so that it is not managed. Such a GPU is
// often there for graphics or tests, and the site's gres.conf contains its device file.
func (n *NVML) leave(g *GPU) {
	for i := range n.devices {
		if d := n.devices[i].Load(); g.Problem == WithoutMIG && d != nil && len(d.profiles) > 0 {
			g.Model = nil
		}
	}
}

// Discover implements Hardware.
func (n *NVML) Discover(gpu int) GPU {
	d := new(device)
	g := n.discover(gpu, d)
	if g.Problem == "" && gpu < len(n.devices) {
		n.devices[gpu].Store(d)
	}
	n.leave(&g)
	return g
}

// discover reads the properties of GPU i into d.
func (n *NVML) discover(i int, d *device) GPU {
	g := GPU{Index: i, Minor: i}
	dev, ret := n.lib.DeviceGetHandleByIndex(i)
	if ret != nvml.SUCCESS {
		g.Problem = unreadable + fmt.Sprintf("open the GPU: %s; see the kernel log for Xid messages",
			nvml.ErrorString(ret))
		return g
	}
	d.handle, d.caps, d.learned = dev, n.caps, newLearned()
	g.UUID, _ = dev.GetUUID()
	g.Name, _ = dev.GetName()
	if minor, ret := dev.GetMinorNumber(); ret == nvml.SUCCESS {
		g.Minor = minor
	}
	d.minor = g.Minor
	current, pending, ret := dev.GetMigMode()
	if memory, ret := dev.GetMemoryInfo(); ret == nvml.SUCCESS {
		g.MemoryMiB = memory.Total >> 20
	}
	switch {
	case ret == nvml.ERROR_NOT_SUPPORTED:
		g.Model, g.Full, g.Problem = mig.Without(g.Name), true, WithoutMIG
		d.name, d.uuid, d.grid = g.Name, g.UUID, g.Model.Grid
		return g
	case ret != nvml.SUCCESS:
		g.Problem = unreadable + "read the MIG mode: " + nvml.ErrorString(ret)
	case current != pending:
		g.Problem = fmt.Sprintf(
			"a MIG mode change is pending; reset the GPU with `nvidia-smi --gpu-reset -i %d` or reboot the node",
			i,
		)
	}
	if g.Problem != "" {
		return g
	}
	model, err := d.model(g.Name, n.namesOf(g.Name))
	if err != nil {
		g.Problem = err.Error()
		return g
	}
	g.Model, d.name, d.uuid, d.grid = model, g.Name, g.UUID, model.Grid
	g.Reset = n.resets(dev)
	g.Virtual = n.virtual(dev)
	d.virtual = g.Virtual
	if g.Full = current != nvml.DEVICE_MIG_ENABLE; g.Full {
		g.Problem = fmt.Sprintf("MIG mode is off; turn it on with `nvidia-smi -i %d -mig 1`", i)
	}
	return g
}

// resets reports whether the driver must reset the GPU to switch its MIG mode. This is the case for Ampere and older
// GPUs (NVIDIA MIG User Guide, "Enable MIG Mode"), and is assumed if the driver does not report the architecture.
func (n *NVML) resets(dev nvml.Device) bool {
	if n.lib.Extensions().LookupSymbol("nvmlDeviceGetArchitecture") != nil {
		return true
	}
	arch, ret := dev.GetArchitecture()
	return ret != nvml.SUCCESS || arch < nvml.DEVICE_ARCH_HOPPER || arch == nvml.DEVICE_ARCH_UNKNOWN
}

// namesOf returns the names of a GPU model's profiles, by profile id, for drivers that do not report names while MIG
// mode is off. The names come from another GPU of the same model or, if no such GPU reported names, from the table in
// package mig.
func (n *NVML) namesOf(model string) map[uint32]string {
	for i := range n.devices {
		if d := n.devices[i].Load(); d != nil && d.name == model && d.named {
			return d.names
		}
	}
	names := map[uint32]string{}
	for _, b := range mig.Models() {
		if b.Device == model {
			for _, p := range b.Profiles {
				names[uint32(p.ID)] = p.Name
			}
		}
	}
	return names
}

// maxProfiles limits the numbers of GPU instance profiles and compute instance profiles that are asked for. A newer
// driver has more profiles than go-nvml has names for, and returns INVALID_ARGUMENT for the first number that it does
// not know.
const maxProfiles = 64

// model returns a GPU model with the profiles and placements that the driver reports. They take precedence over the
// tables in package mig, because names and memory sizes differ between driver releases. The argument names supplies the
// profile names that the driver does not report.
func (d *device) model(name string, names map[uint32]string) (*mig.Model, error) {
	d.profiles = map[string]nvml.GpuInstanceProfileInfo{}
	d.names = map[uint32]string{}
	d.placements = map[string]map[int]nvml.GpuInstancePlacement{}
	var profiles []mig.Profile
	grid := 0
	for k := range maxProfiles {
		info, ret := d.handle.GetGpuInstanceProfileInfo(k)
		if ret == nvml.ERROR_INVALID_ARGUMENT && k >= nvml.GPU_INSTANCE_PROFILE_COUNT {
			break
		}
		if ret != nvml.SUCCESS {
			continue // the GPU model does not have the profile
		}
		p := mig.Profile{
			Name: cmp.Or(names[info.Id], fmt.Sprintf("profile-%d", info.Id)), ID: int(info.Id),
			Compute: int(info.SliceCount), MemoryMiB: info.MemorySizeMB,
			SM: int(info.MultiprocessorCount), CE: int(info.CopyEngineCount),
			DEC: int(info.DecoderCount), ENC: int(info.EncoderCount),
			JPEG: int(info.JpegCount), OFA: int(info.OfaCount),
		}
		if v2, ret := d.handle.GetGpuInstanceProfileInfoV(k).V2(); ret == nvml.SUCCESS {
			p.Name, d.named = strings.TrimPrefix(Text(v2.Name[:]), "MIG "), true
		}
		if v3, ret := d.handle.GetGpuInstanceProfileInfoV(k).V3(); ret == nvml.SUCCESS {
			p.Gfx = v3.Capabilities&nvml.GPU_INSTANCE_PROFILE_CAPS_GFX != 0
		}
		places, ret := d.handle.GetGpuInstancePossiblePlacements(&info)
		if ret == nvml.ERROR_NO_PERMISSION {
			return nil, errors.New("the driver reports placements only to root; run the command as root")
		}
		if ret != nvml.SUCCESS || len(places) == 0 {
			continue
		}
		d.placements[p.Name] = map[int]nvml.GpuInstancePlacement{}
		for _, pl := range places {
			d.placements[p.Name][int(pl.Start)] = pl
			p.Starts = append(p.Starts, int(pl.Start))
			p.Size = int(pl.Size)
			grid = max(grid, int(pl.Start+pl.Size))
		}
		sort.Ints(p.Starts)
		// Some drivers report a wrong instance count on the A30 (noted in mig-parted's discovery). The number of
		// starts is an upper bound on the correct count.
		p.Max = int(info.InstanceCount)
		if p.Max < 1 || p.Max > len(p.Starts) {
			p.Max = len(p.Starts)
		}
		profiles = append(profiles, p)
		d.profiles[p.Name] = info
		d.names[info.Id] = p.Name
	}
	if len(profiles) == 0 {
		return nil, errors.New("the driver lists no MIG profiles for this GPU; update the driver")
	}
	sort.SliceStable(profiles, func(a, b int) bool { return profiles[a].Size < profiles[b].Size })
	return mig.NewModel(name, mig.GRESType(name), name, grid, profiles)
}

// Text converts a string in one of NVML's structures.
func Text(chars []int8) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}
