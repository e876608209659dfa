package gpu

import (
	"errors"
	"fmt"
	"sort"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// learned holds what earlier calls have shown about a GPU. It saves calls, because each call to the driver takes time
// and other programs may keep the driver busy.
type learned struct {
	mu sync.Mutex
	// cis maps the id of each GPU instance to the number of its compute instances.
	cis map[int]int
	// profiles holds the compute instance profiles of a GPU instance, by the id of its own profile.
	profiles map[uint32][]nvml.ComputeInstanceProfileInfo
}

func newLearned() *learned {
	return &learned{cis: map[int]int{}, profiles: map[uint32][]nvml.ComputeInstanceProfileInfo{}}
}

// set records the number of compute instances of a GPU instance.
func (l *learned) set(gi, cis int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cis[gi] = cis
}

// rank returns the expected index of the first MIG device of a GPU instance. The driver numbers MIG devices in the
// order of the ids of their GPU instances.
func (l *learned) rank(gi int) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, cis := range l.cis {
		if id < gi {
			n += cis
		}
	}
	return n
}

// Instances implements Hardware. It asks for each possible id, because a list by profile omits the instances whose
// profile this library does not know.
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
	all, err := d.list()
	if err != nil {
		return nil, fmt.Errorf("GPU %d: %w", gpu, err)
	}
	return all, nil
}

func (d *device) list() ([]Instance, error) {
	var all []Instance
	devices := 0
	cis := map[int]int{}
	for id := range maxGI {
		gi, ret := d.handle.GetGpuInstanceById(id)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if err := check(ret, "open a GPU instance"); err != nil {
			return nil, err
		}
		in, err := d.describe(gi)
		if errors.Is(err, ErrNotFound) {
			continue // another program may have destroyed the instance
		} else if err != nil {
			return nil, err
		}
		all = append(all, in)
		devices += len(in.CIs)
		cis[in.GI] = len(in.CIs)
	}
	d.learned.mu.Lock()
	d.learned.cis = cis
	d.learned.mu.Unlock()
	uuids, err := d.migUUIDs(devices)
	if err != nil {
		return nil, err
	}
	for i, in := range all {
		if len(in.CIs) > 0 {
			all[i].UUID = uuids[[2]int{in.GI, in.CIs[0]}]
		}
	}
	sort.Slice(all, func(a, b int) bool { return all[a].Start < all[b].Start })
	return all, nil
}

// describe returns an instance without its UUID.
func (d *device) describe(gi nvml.GpuInstance) (Instance, error) {
	in, info, err := d.placed(gi)
	if err != nil {
		return in, err
	}
	return in, d.describeCIs(gi, info.ProfileId, &in)
}

// placed returns an instance without its compute instances.
func (d *device) placed(gi nvml.GpuInstance) (Instance, nvml.GpuInstanceInfo, error) {
	info, ret := gi.GetInfo()
	if err := check(ret, "read a GPU instance"); err != nil {
		return Instance{}, info, err
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
	return in, info, nil
}

// uuidOf returns the UUID of the MIG device of a GPU instance's only compute instance. It first tries the expected
// index of the MIG device, and walks all of the GPU's MIG devices only if another program has changed the order.
func (d *device) uuidOf(gi int) (string, error) {
	if uuid, ok, err := d.uuidAt(d.learned.rank(gi), gi); ok || err != nil {
		return uuid, err
	}
	uuids, err := d.migUUIDs(maxGI)
	if err != nil {
		return "", err
	}
	for ids, uuid := range uuids {
		if ids[0] == gi {
			return uuid, nil
		}
	}
	return "", errors.New("the driver lists no MIG device for the instance")
}

// uuidAt returns the UUID of the MIG device with the given index. ok is false if the MIG device does not belong to the
// given GPU instance.
func (d *device) uuidAt(index, gi int) (uuid string, ok bool, _ error) {
	m, ret := d.handle.GetMigDeviceHandleByIndex(index)
	if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
		return "", false, nil
	}
	if err := check(ret, "open a MIG device"); err != nil {
		return "", false, err
	}
	if id, ret := m.GetGpuInstanceId(); ret != nvml.SUCCESS || id != gi {
		return "", false, nil
	}
	uuid, ret = m.GetUUID()
	return uuid, ret == nvml.SUCCESS, nil
}

// migUUIDs maps the ids of a GPU instance and a compute instance to the UUID of their MIG device. It stops as soon as
// it has found the given number of MIG devices.
func (d *device) migUUIDs(devices int) (map[[2]int]string, error) {
	uuids := map[[2]int]string{}
	if devices == 0 {
		return uuids, nil
	}
	most, ret := d.handle.GetMaxMigDeviceCount()
	if err := check(ret, "count the MIG devices"); err != nil {
		return nil, err
	}
	for i := 0; i < most && len(uuids) < devices; i++ {
		m, ret := d.handle.GetMigDeviceHandleByIndex(i)
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
