package gpu

import (
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Use is a usage sample of an instance.
type Use struct {
	// MemoryMiB is the memory in use in MiB, including memory that the driver reserves on the instance (nvmlMemory_t).
	MemoryMiB float64
	// Util is the fraction of the instance's SMs that were busy since the previous reading, from 0 to 1. It is -1 in
	// the first reading, and on GPUs that do not report utilisation.
	Util float64
	// Processes is the number of compute and graphics processes on the instance according to the driver, or -1 if the
	// driver does not report them.
	Processes int
	// PIDs lists the ids of these processes. ProcessMiB is the memory that each of them uses on the instance, in MiB,
	// or -1 if the driver does not report it.
	PIDs       []int
	ProcessMiB []float64
	// Others lists the processes on a GPU with fractions that do not belong to the instance's job. Unlimited is the
	// reason why the memory of the instance's job is not limited, or "". Overused is true if the job used more memory
	// than its limit, and Restored if the limit was not in force, but is again.
	Others             []int
	Unlimited          string
	Overused, Restored bool
}

// Meter reads the usage of one instance. It is not safe for concurrent use.
type Meter interface {
	// Read returns a sample. The error wraps ErrNotFound if the instance no longer exists, and ErrLost if its GPU is
	// lost. Callers should leave more than 100 ms between readings, because the GPU does not update its counters more
	// frequently (nvml.h, nvmlGpmMigSampleGet).
	Read() (Use, error)
	// Close frees the meter's buffers.
	Close()
}

// meter stores the last known index of the instance's MIG device and, on GPUs that have counters, the counters of the
// previous reading. Between readings, it keeps none of the instance's files open, so that the instance can still be
// destroyed.
type meter struct {
	n     *NVML
	gpu   int
	gi    int
	uuid  string
	index int
	// before and now hold the counters of the previous and the current reading. They are nil if the GPU has no
	// counters.
	before, now nvml.GpmSample
	counted     bool // before holds valid counters
	metrics     *nvml.GpmMetricsGetType
}

// Meter implements Hardware.
func (n *NVML) Meter(gpu int, in Instance) (Meter, error) {
	d, err := n.device(gpu)
	if err != nil {
		return nil, err
	}
	m := &meter{n: n, gpu: gpu, gi: in.GI, uuid: in.UUID}
	if !n.counts(d) {
		return m, nil
	}
	m.metrics = &nvml.GpmMetricsGetType{}
	for _, buffer := range []*nvml.GpmSample{&m.before, &m.now} {
		sample, ret := n.lib.GpmSampleAlloc()
		if err := check(ret, "allocate a buffer for GPU counters"); err != nil {
			m.Close()
			return nil, err
		}
		*buffer = sample
	}
	return m, nil
}

// counts reports whether the GPU has counters for the utilisation of its instances (GPM, since Hopper). It returns
// false for drivers without the GPM functions, because go-nvml would terminate the process if it called a missing
// function.
func (n *NVML) counts(d *device) bool {
	if n.lib.Extensions().LookupSymbol("nvmlGpmMigSampleGet") != nil {
		return false
	}
	support, ret := d.handle.GpmQueryDeviceSupport()
	return ret == nvml.SUCCESS && support.IsSupportedDevice != 0
}

// Close implements Meter.
func (m *meter) Close() {
	for _, buffer := range []*nvml.GpmSample{&m.before, &m.now} {
		if *buffer != nil {
			(*buffer).Free()
			*buffer = nil
		}
	}
}

// Read implements Meter.
func (m *meter) Read() (Use, error) {
	d, err := m.n.device(m.gpu)
	if err != nil {
		return Use{}, err
	}
	dev, err := m.find(d.handle)
	if err != nil {
		return Use{}, fmt.Errorf("GPU %d: %w", m.gpu, err)
	}
	memory, ret := dev.GetMemoryInfo()
	if err := check(ret, "read the memory in use"); err != nil {
		return Use{}, fmt.Errorf("GPU %d: %w", m.gpu, err)
	}
	use := Use{MemoryMiB: float64(memory.Used) / (1 << 20), Util: m.util(d.handle), Processes: -1}
	if all, err := m.n.processes(dev); err == nil {
		for _, p := range all {
			mib := -1.0
			if p.UsedGpuMemory != math.MaxUint64 { // NVML_VALUE_NOT_AVAILABLE
				mib = float64(p.UsedGpuMemory) / (1 << 20)
			}
			if k := slices.Index(use.PIDs, int(p.Pid)); k >= 0 {
				use.ProcessMiB[k] = max(use.ProcessMiB[k], mib)
				continue
			}
			use.PIDs, use.ProcessMiB = append(use.PIDs, int(p.Pid)), append(use.ProcessMiB, mib)
		}
		use.Processes = len(use.PIDs)
	}
	return use, nil
}

// Busy returns the fraction of time for which a program ran on a GPU whose MIG mode is off, from 0 to 1, over the last
// sample period of the driver (nvmlUtilization_t). Such a program may keep only some of the SMs busy. It returns -1 if
// the driver does not report the value.
func (n *NVML) Busy(gpu int) float64 {
	d, err := n.device(gpu)
	if err != nil {
		return -1
	}
	rates, ret := d.handle.GetUtilizationRates()
	if ret != nvml.SUCCESS {
		return -1
	}
	return min(float64(rates.Gpu)/100, 1)
}

// find opens the instance's MIG device. It first tries the last known index, and then the GPU's other indices. Other
// GPUs are not queried, because they may hang.
func (m *meter) find(parent nvml.Device) (nvml.Device, error) {
	if m.gi == FullGI {
		return parent, nil
	}
	if dev, ok, err := m.at(parent, m.index); ok || err != nil {
		return dev, err
	}
	most, ret := parent.GetMaxMigDeviceCount()
	if err := check(ret, "count the MIG devices"); err != nil {
		return nil, err
	}
	for i := range most {
		if dev, ok, err := m.at(parent, i); ok || err != nil {
			m.index = i
			return dev, err
		}
	}
	return nil, fmt.Errorf("MIG device %s: %w", m.uuid, ErrNotFound)
}

// at opens the GPU's MIG device with the given index and reports whether it belongs to the meter's instance.
func (m *meter) at(parent nvml.Device, index int) (nvml.Device, bool, error) {
	dev, ret := parent.GetMigDeviceHandleByIndex(index)
	if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
		return nil, false, nil
	}
	if err := check(ret, "open a MIG device"); err != nil {
		return nil, false, err
	}
	uuid, ret := dev.GetUUID()
	return dev, ret == nvml.SUCCESS && uuid == m.uuid, nil
}

// util returns the value of Use.Util.
func (m *meter) util(parent nvml.Device) float64 {
	if m.now == nil {
		return -1
	}
	if ret := m.sample(parent); ret != nvml.SUCCESS {
		m.counted = false
		return -1
	}
	util := -1.0
	if m.counted {
		m.metrics.NumMetrics, m.metrics.Sample1, m.metrics.Sample2 = 1, m.before, m.now
		metric := &m.metrics.Metrics[0]
		metric.MetricId = uint32(nvml.GPM_METRIC_SM_UTIL)
		ret := m.n.lib.GpmMetricsGet(m.metrics)
		if ret == nvml.SUCCESS && nvml.Return(metric.NvmlReturn) == nvml.SUCCESS && !math.IsNaN(metric.Value) {
			util = min(max(metric.Value/100, 0), 1)
		}
	}
	m.before, m.now, m.counted = m.now, m.before, true
	return util
}

// sample reads the instance's counters.
func (m *meter) sample(parent nvml.Device) nvml.Return {
	switch {
	case m.gi != FullGI:
		return parent.GpmMigSampleGet(m.gi, m.now)
	case m.n.lib.Extensions().LookupSymbol("nvmlGpmSampleGet") == nil:
		return parent.GpmSampleGet(m.now)
	}
	return nvml.ERROR_NOT_SUPPORTED
}
