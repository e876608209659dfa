package gpu

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/mig"
	"caelum/internal/trust"
)

// NVML implements Hardware with the driver's libnvidia-ml.so.1.
type NVML struct {
	lib     nvml.Interface
	devices []atomic.Pointer[device]
}

// device holds a GPU's handle and the profiles that Create needs. The devices in NVML.devices never change.
type device struct {
	handle   nvml.Device
	name     string // the device name
	named    bool   // true if the driver has reported profile names
	uuid     string
	grid     int // units
	profiles map[string]nvml.GpuInstanceProfileInfo
	names    map[uint32]string
}

// OpenNVML loads the library from path or, if path is empty, from the linker's search path. If the process runs as
// root, OpenNVML rejects a path that other users can change.
func OpenNVML(path string) (*NVML, error) {
	lib := nvml.New()
	if path != "" {
		if os.Geteuid() == 0 && strings.Contains(path, "/") { // see dlopen(3)
			var err error
			if path, err = trust.Path(path); err != nil {
				return nil, fmt.Errorf("couldn't open NVML: %w", err)
			}
		}
		lib = nvml.New(nvml.WithLibraryPath(path))
	}
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf(
			"couldn't open NVML: %s; check with `nvidia-smi` that the NVIDIA driver is loaded",
			nvml.ErrorString(ret),
		)
	}
	return &NVML{lib: lib}, nil
}

// Close unloads the library.
func (n *NVML) Close() { n.lib.Shutdown() }

// Instances implements Hardware.
func (n *NVML) Instances(gpu int) ([]Instance, error) {
	d, err := n.device(gpu)
	if err != nil {
		return nil, err
	}
	if full, err := d.isFull(); err != nil {
		return nil, fmt.Errorf("GPU %d: %w", gpu, err)
	} else if full {
		return []Instance{d.full()}, nil
	}
	uuids, err := migUUIDs(d.handle)
	if err != nil {
		return nil, fmt.Errorf("GPU %d: %w", gpu, err)
	}
	var all []Instance
	for name, info := range d.profiles {
		gis, ret := d.handle.GetGpuInstances(&info)
		if err := check(ret, "list the GPU instances of profile "+name); err != nil {
			return nil, fmt.Errorf("GPU %d: %w", gpu, err)
		}
		for _, gi := range gis {
			in, err := d.describe(gi, uuids)
			if errors.Is(err, ErrNotFound) {
				continue // another program may have destroyed the instance
			} else if err != nil {
				return nil, fmt.Errorf("GPU %d: %w", gpu, err)
			}
			all = append(all, in)
		}
	}
	sort.Slice(all, func(a, b int) bool { return all[a].Start < all[b].Start })
	return all, nil
}

func (d *device) describe(gi nvml.GpuInstance, uuids map[[2]int]string) (Instance, error) {
	info, ret := gi.GetInfo()
	if err := check(ret, "read a GPU instance"); err != nil {
		return Instance{}, err
	}
	in := Instance{
		GI:      int(info.Id),
		Profile: d.names[info.ProfileId],
		Start:   int(info.Placement.Start),
		Size:    int(info.Placement.Size),
	}
	if in.Profile == "" {
		in.Profile = fmt.Sprintf("profile-%d", info.ProfileId)
	}
	cis, err := computeInstances(gi)
	if err != nil {
		return in, err
	}
	for _, ci := range cis {
		ciInfo, ret := ci.GetInfo()
		if err := check(ret, "read a compute instance"); err != nil {
			return in, err
		}
		in.CIs = append(in.CIs, int(ciInfo.Id))
		in.Whole = len(cis) == 1 && ciInfo.Placement.Size == d.profiles[in.Profile].SliceCount
	}
	if len(in.CIs) > 0 {
		in.UUID = uuids[[2]int{in.GI, in.CIs[0]}]
	}
	return in, nil
}

// migUUIDs maps the ids of a GPU instance and a compute instance to the UUID of their MIG device.
func migUUIDs(dev nvml.Device) (map[[2]int]string, error) {
	most, ret := dev.GetMaxMigDeviceCount()
	if err := check(ret, "count the MIG devices"); err != nil {
		return nil, err
	}
	uuids := map[[2]int]string{}
	for i := range most {
		m, ret := dev.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if err := check(ret, "open a MIG device"); err != nil {
			return nil, err
		}
		gi, r1 := m.GetGpuInstanceId()
		ci, r2 := m.GetComputeInstanceId()
		uuid, r3 := m.GetUUID()
		if r1 == nvml.SUCCESS && r2 == nvml.SUCCESS && r3 == nvml.SUCCESS {
			uuids[[2]int{gi, ci}] = uuid
		}
	}
	return uuids, nil
}

// computeInstances returns all compute instances of a GPU instance, regardless of their profile.
func computeInstances(gi nvml.GpuInstance) ([]nvml.ComputeInstance, error) {
	var all []nvml.ComputeInstance
	for k := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gi.GetComputeInstanceProfileInfo(k, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != nvml.SUCCESS {
			continue
		}
		cis, ret := gi.GetComputeInstances(&info)
		if err := check(ret, "list the compute instances"); err != nil {
			return nil, err
		}
		all = append(all, cis...)
	}
	return all, nil
}

// Create implements Hardware.
func (n *NVML) Create(gpu int, profile string, start int) (Instance, error) {
	d, err := n.device(gpu)
	if err != nil {
		return Instance{}, err
	}
	in, err := d.create(profile, start)
	if err != nil {
		return in, fmt.Errorf("couldn't create %s at start %d of GPU %d: %w", profile, start, gpu, err)
	}
	return in, nil
}

func (d *device) create(profile string, start int) (Instance, error) {
	if profile == mig.Full {
		return d.full(), d.switchTo(nvml.DEVICE_MIG_DISABLE)
	}
	info, ok := d.profiles[profile]
	if !ok {
		return Instance{}, fmt.Errorf("profile %w", ErrNotFound)
	}
	places, ret := d.handle.GetGpuInstancePossiblePlacements(&info)
	if err := check(ret, "list the placements"); err != nil {
		return Instance{}, err
	}
	var place *nvml.GpuInstancePlacement
	for i := range places {
		if int(places[i].Start) == start {
			place = &places[i]
		}
	}
	if place == nil {
		return Instance{}, fmt.Errorf("placement %w", ErrNotFound)
	}
	var gi nvml.GpuInstance
	err := retryInUse(func() (err error) {
		gi, ret = d.handle.CreateGpuInstanceWithPlacement(&info, place)
		return check(ret, "create the GPU instance")
	})
	if err != nil {
		return Instance{}, err
	}
	if err := createFullCI(gi, info.SliceCount); err != nil {
		return Instance{}, errors.Join(err, destroy(gi))
	}
	uuids, err := migUUIDs(d.handle)
	if err != nil {
		return Instance{}, errors.Join(err, destroy(gi))
	}
	in, err := d.describe(gi, uuids)
	if err == nil && in.UUID == "" {
		err = errors.New("the driver lists no MIG device for the new instance")
	}
	if err != nil {
		return in, errors.Join(err, destroy(gi))
	}
	return in, nil
}

// createFullCI creates a compute instance that occupies the whole GPU instance.
func createFullCI(gi nvml.GpuInstance, slices uint32) error {
	for k := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gi.GetComputeInstanceProfileInfo(k, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != nvml.SUCCESS || info.SliceCount != slices {
			continue
		}
		return retryInUse(func() error {
			_, ret := gi.CreateComputeInstance(&info)
			return check(ret, "create the compute instance")
		})
	}
	return fmt.Errorf("compute instance profile of %d slices %w", slices, ErrNotFound)
}

// Destroy implements Hardware.
func (n *NVML) Destroy(gpu, gi int) error {
	d, err := n.device(gpu)
	if err != nil {
		return err
	}
	if gi == FullGI {
		if err := d.switchTo(nvml.DEVICE_MIG_ENABLE); err != nil {
			return fmt.Errorf("GPU %d: %w", gpu, err)
		}
		return nil
	}
	handle, ret := d.handle.GetGpuInstanceById(gi)
	err = check(ret, "open the GPU instance")
	if err == nil {
		err = destroy(handle)
	}
	if err != nil {
		return fmt.Errorf("couldn't destroy GPU instance %d of GPU %d: %w", gi, gpu, err)
	}
	return nil
}

func destroy(gi nvml.GpuInstance) error {
	cis, err := computeInstances(gi)
	if err != nil {
		return err
	}
	for _, ci := range cis {
		if err := retryInUse(func() error { return check(ci.Destroy(), "destroy the compute instance") }); err != nil {
			return err
		}
	}
	return retryInUse(func() error { return check(gi.Destroy(), "destroy the GPU instance") })
}

// Processes implements Hardware. If the caller is root, the driver lists the processes of all instances of the GPU
// (nvml.h).
func (n *NVML) Processes(gpu, gi int) ([]int, error) {
	d, err := n.device(gpu)
	if err != nil {
		return nil, err
	}
	all, ret := d.handle.GetComputeRunningProcesses()
	if err := check(ret, "list the processes"); err != nil {
		return nil, fmt.Errorf("GPU %d: %w", gpu, err)
	}
	var pids []int
	for _, p := range all {
		// The driver reports the id 0xffffffff for a process on a GPU whose MIG mode is off (nvml.h).
		if int(int32(p.GpuInstanceId)) == gi {
			pids = append(pids, int(p.Pid))
		}
	}
	return pids, nil
}

// retryInUse repeats a call for about 1.3 s as long as it returns ErrInUse. After a job ends, about one destroy call in
// 40 initially returns ErrInUse. A create call returns ErrInUse while a profiler has a channel open. If a call still
// returns ErrInUse after 1.3 s, a process or a monitoring program is using the instance.
func retryInUse(call func() error) error {
	wait := 10 * time.Millisecond
	for {
		err := call()
		if !errors.Is(err, ErrInUse) || wait > 700*time.Millisecond {
			return err
		}
		time.Sleep(wait)
		wait *= 2
	}
}

func (n *NVML) device(gpu int) (*device, error) {
	if gpu >= 0 && gpu < len(n.devices) {
		if d := n.devices[gpu].Load(); d.handle != nil {
			return d, nil
		}
	}
	return nil, fmt.Errorf("GPU %d: %w", gpu, ErrNotFound)
}

// check converts an NVML return code to one of this package's errors, whose message is "couldn't" followed by action.
func check(ret nvml.Return, action string) error {
	var class error
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_INSUFFICIENT_RESOURCES:
		class = ErrNoRoom
	case nvml.ERROR_IN_USE:
		class = ErrInUse
	case nvml.ERROR_GPU_IS_LOST:
		class = ErrLost
	case nvml.ERROR_NOT_FOUND:
		class = ErrNotFound
	default:
		return fmt.Errorf("couldn't %s: %s (NVML error %d)", action, nvml.ErrorString(ret), int(ret))
	}
	return fmt.Errorf("couldn't %s: %w", action, class)
}
