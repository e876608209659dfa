package nvmlemulator_test

import (
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestIdentity(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "2", "--board", "A30-24GB", "--seed", "7")
	if n, ret := m.DeviceGetCount(); ret != nvml.SUCCESS || n != 3 {
		t.Fatalf("DeviceGetCount returned %d and %v, want 3", n, ret)
	}
	uuids := map[string]bool{}
	for i := range 3 {
		d := m.device(i)
		uuid, ret := d.GetUUID()
		m.want(ret, nvml.SUCCESS, "GetUUID")
		uuids[uuid] = true
		pci, ret := d.GetPciInfo()
		m.want(ret, nvml.SUCCESS, "GetPciInfo")
		minor, ret := d.GetMinorNumber()
		m.want(ret, nvml.SUCCESS, "GetMinorNumber")
		if minor != i {
			t.Errorf("the minor number is %d, want %d", minor, i)
		}
		byUUID, ret := m.DeviceGetHandleByUUID(uuid)
		m.want(ret, nvml.SUCCESS, "DeviceGetHandleByUUID")
		byBus, ret := m.DeviceGetHandleByPciBusId(text(pci.BusId[:]))
		m.want(ret, nvml.SUCCESS, "DeviceGetHandleByPciBusId")
		for _, same := range []nvml.Device{byUUID, byBus} {
			if index, ret := same.GetIndex(); ret != nvml.SUCCESS || index != i {
				t.Errorf("GetIndex returned %d and %v, want %d", index, ret, i)
			}
		}
	}
	if len(uuids) != 3 {
		t.Errorf("UUIDs are not unique: %v", uuids)
	}
	_, ret := m.DeviceGetHandleByIndex(3)
	m.want(ret, nvml.ERROR_INVALID_ARGUMENT, "index 3 of 3 GPUs")
	_, ret = m.DeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")
	m.want(ret, nvml.ERROR_NOT_FOUND, "DeviceGetHandleByUUID of an unknown UUID")
	if s := m.ErrorString(nvml.ERROR_IN_USE); !strings.Contains(s, "In use") {
		t.Errorf("ErrorString returned %q", s)
	}
	if v, ret := m.SystemGetDriverVersion(); ret != nvml.SUCCESS || v == "" {
		t.Errorf("SystemGetDriverVersion returned %q and %v", v, ret)
	}
	mem, ret := m.device(0).GetMemoryInfo()
	m.want(ret, nvml.SUCCESS, "GetMemoryInfo")
	mem2, ret := m.device(0).GetMemoryInfo_v2()
	m.want(ret, nvml.SUCCESS, "GetMemoryInfo_v2")
	if mem.Total != 40960<<20 || mem2.Total != mem.Total || mem.Free != mem.Total-mem.Used {
		t.Errorf("the memory of the GPU is wrong: %+v, %+v", mem, mem2)
	}
}

func TestLifeOfASlice(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	gi, ret := m.place(d, "3g.20gb", 4)
	m.want(ret, nvml.SUCCESS, "create")
	if n := len(m.migDevices(d)); n != 0 {
		t.Errorf("a GPU instance without a compute instance has %d MIG devices, want 0", n)
	}
	ci, ret := m.fullCI(gi)
	m.want(ret, nvml.SUCCESS, "create compute instance")
	all := m.migDevices(d)
	if len(all) != 1 {
		t.Fatalf("the GPU has %d MIG devices, want 1", len(all))
	}
	mig := all[0]
	uuid := m.checkMIGDevice(d, mig)
	info, ret := ci.GetInfo()
	m.want(ret, nvml.SUCCESS, "ComputeInstance.GetInfo")
	if info.Placement.Size != 3 || info.Id != 0 {
		t.Errorf("the info of the compute instance is wrong: %+v", info)
	}

	m.want(gi.Destroy(), nvml.ERROR_IN_USE, "destroy a GPU instance that has a compute instance")
	m.want(ci.Destroy(), nvml.SUCCESS, "destroy the compute instance")
	m.want(ci.Destroy(), nvml.ERROR_INVALID_ARGUMENT, "destroy the compute instance again")
	_, ret = mig.GetUUID()
	m.want(ret, nvml.ERROR_INVALID_ARGUMENT, "GetUUID of a destroyed MIG device")
	_, ret = m.DeviceGetHandleByUUID(uuid)
	m.want(ret, nvml.ERROR_NOT_FOUND, "DeviceGetHandleByUUID of a destroyed MIG device")
	m.want(gi.Destroy(), nvml.SUCCESS, "destroy the GPU instance")
	_, ret = d.GetGpuInstanceById(2)
	m.want(ret, nvml.ERROR_NOT_FOUND, "GetGpuInstanceById")

	var names []string
	for _, e := range m.log() {
		names = append(names, e.name+"/"+e.at["rc"])
	}
	want := "create-gi/SUCCESS create-ci/SUCCESS destroy-gi/IN_USE destroy-ci/SUCCESS " +
		"destroy-ci/INVALID_ARGUMENT destroy-gi/SUCCESS"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the log contains\n%s\nwant\n%s", got, want)
	}
}

// checkMIGDevice checks what the driver reports about a MIG device, which must be a 3g.20gb and the GPU's first
// instance, and returns its UUID.
func (m *machine) checkMIGDevice(gpu, mig nvml.Device) string {
	m.Helper()
	if is, ret := mig.IsMigDeviceHandle(); ret != nvml.SUCCESS || !is {
		m.Errorf("IsMigDeviceHandle of a MIG device returned %v and %v", is, ret)
	}
	if is, ret := gpu.IsMigDeviceHandle(); ret != nvml.SUCCESS || is {
		m.Errorf("IsMigDeviceHandle of the GPU returned %v and %v", is, ret)
	}
	uuid, ret := mig.GetUUID()
	m.want(ret, nvml.SUCCESS, "GetUUID")
	same, ret := m.DeviceGetHandleByUUID(uuid)
	m.want(ret, nvml.SUCCESS, "DeviceGetHandleByUUID")
	if id, ret := same.GetGpuInstanceId(); ret != nvml.SUCCESS || id != 2 {
		m.Errorf("GetGpuInstanceId returned %d and %v, want 2", id, ret)
	}
	if id, ret := same.GetComputeInstanceId(); ret != nvml.SUCCESS || id != 0 {
		m.Errorf("GetComputeInstanceId returned %d and %v, want 0", id, ret)
	}
	parent, ret := mig.GetDeviceHandleFromMigDeviceHandle()
	m.want(ret, nvml.SUCCESS, "GetDeviceHandleFromMigDeviceHandle")
	if index, _ := parent.GetIndex(); index != 0 {
		m.Errorf("the MIG device belongs to GPU %d, want 0", index)
	}
	mem, ret := mig.GetMemoryInfo()
	m.want(ret, nvml.SUCCESS, "GetMemoryInfo")
	if mem.Total != 19968<<20 || mem.Used != 0 {
		m.Errorf("the memory of the MIG device is wrong: %+v", mem)
	}
	_, ret = mig.GetUtilizationRates()
	m.want(ret, nvml.ERROR_NOT_SUPPORTED, "GetUtilizationRates")
	return uuid
}

// TestComputeInstances checks that several smaller compute instances can share a GPU instance.
func TestComputeInstances(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	gi, ret := m.place(d, "7g.40gb", 0)
	m.want(ret, nvml.SUCCESS, "create")
	two, ret := gi.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE, 0)
	m.want(ret, nvml.SUCCESS, "2c")
	v2, ret := gi.GetComputeInstanceProfileInfoV(nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE, 0).V2()
	m.want(ret, nvml.SUCCESS, "2c, version 2")
	v3, ret := gi.GetComputeInstanceProfileInfoV(nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE, 0).V3()
	m.want(ret, nvml.SUCCESS, "7c, version 3")
	if text(v2.Name[:]) != "MIG 2c.7g.40gb" || text(v3.Name[:]) != "MIG 7g.40gb" || v2.MultiprocessorCount != 28 {
		t.Errorf("2c is %q with %d SMs, and 7c is %q", text(v2.Name[:]), v2.MultiprocessorCount, text(v3.Name[:]))
	}
	places, ret := gi.GetComputeInstancePossiblePlacements(&two)
	m.want(ret, nvml.SUCCESS, "placements")
	if len(places) != 3 {
		t.Errorf("2c has the placements %v, want 3 placements", places)
	}
	_, ret = gi.CreateComputeInstanceWithPlacement(&two, &nvml.ComputeInstancePlacement{Start: 2, Size: 2})
	m.want(ret, nvml.SUCCESS, "2c at 2")
	_, ret = gi.CreateComputeInstanceWithPlacement(&two, &nvml.ComputeInstancePlacement{Start: 2, Size: 2})
	m.want(ret, nvml.ERROR_INSUFFICIENT_RESOURCES, "2c at 2 again")
	if n, ret := gi.GetComputeInstanceRemainingCapacity(&two); ret != nvml.SUCCESS || n != 2 {
		t.Errorf("the remaining capacity of 2c is %d (%v), want 2", n, ret)
	}
	_, ret = m.fullCI(gi)
	m.want(ret, nvml.ERROR_INSUFFICIENT_RESOURCES, "7c beside 2c")
	all, ret := gi.GetComputeInstances(&two)
	m.want(ret, nvml.SUCCESS, "GetComputeInstances")
	if len(all) != 1 {
		t.Errorf("the GPU instance has %d compute instances of 2c, want 1", len(all))
	}
	m.check()
}

// TestForeignInstances checks that enumerating GPU instances also finds those without a compute instance and those that
// another program has created.
func TestForeignInstances(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	m.ctl("create", "0", "2g.10gb", "2", "--no-ci")
	m.ctl("create", "0", "2g.10gb", "4")
	info := m.profile(d, "2g.10gb")
	all, ret := d.GetGpuInstances(&info)
	m.want(ret, nvml.SUCCESS, "GetGpuInstances")
	if len(all) != 2 || len(m.migDevices(d)) != 1 {
		t.Errorf("the GPU has %d GPU instances and %d MIG devices, want 2 and 1", len(all), len(m.migDevices(d)))
	}
	_, ret = m.place(d, "3g.20gb", 0)
	m.want(ret, nvml.ERROR_INSUFFICIENT_RESOURCES, "create a 3g.20gb that overlaps a foreign instance")
	gi, ret := d.GetGpuInstanceById(5)
	m.want(ret, nvml.SUCCESS, "GetGpuInstanceById")
	m.ctl("hold", "0", "5")
	m.ctl("hold", "0", "4")
	ci, ret := gi.GetComputeInstanceById(0)
	m.want(ret, nvml.SUCCESS, "GetComputeInstanceById")
	m.want(ci.Destroy(), nvml.ERROR_IN_USE, "destroy a held compute instance")
	empty, _ := d.GetGpuInstanceById(4)
	m.want(empty.Destroy(), nvml.ERROR_IN_USE, "destroy a held GPU instance")
	m.ctl("unhold", "0", "4")
	m.want(empty.Destroy(), nvml.SUCCESS, "destroy a GPU instance without clients")
}

func TestUUIDs(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	again := func() string {
		gi, ci, uuid := m.carve(d, "1g.5gb", 3)
		m.want(ci.Destroy(), nvml.SUCCESS, "destroy")
		m.want(gi.Destroy(), nvml.SUCCESS, "destroy")
		return uuid
	}
	if a, b := again(), again(); a == b {
		t.Errorf("two instances have the UUID %s", a)
	}
	m.ctl("uuid", "repeat")
	if a, b := again(), again(); a != b {
		t.Errorf("after `uuid repeat`, two instances at one place have the UUIDs %s and %s", a, b)
	}
}

func (m *machine) placeByID(d nvml.Device, id uint32, start uint32) (nvml.GpuInstance, nvml.Return) {
	return d.CreateGpuInstanceWithPlacement(
		&nvml.GpuInstanceProfileInfo{Id: id},
		&nvml.GpuInstancePlacement{Start: start, Size: 1},
	)
}
