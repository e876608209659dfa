package gpu

import (
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Use is what an instance has in use at a moment.
type Use struct {
	// MemoryMiB is the memory in use, with what the driver itself keeps of the instance (nvmlMemory_t).
	MemoryMiB float64
	// Util is the share of its SMs that was busy since the reading before, from 0 to 1; -1: the GPU does not tell, or
	// not yet.
	Util float64
	// Processes is how many compute processes the driver shows on it; -1: it does not say.
	Processes int
	// PIDs are their ids.
	PIDs []int
}

// Meter reads what one instance has in use. One goroutine uses it at a time.
type Meter interface {
	// Read asks the driver: ErrNotFound when the instance is gone, ErrLost when its GPU is. Two readings should lie
	// more than 100 ms apart, since the GPU's counters are not refreshed sooner (nvml.h, nvmlGpmMigSampleGet).
	Read() (Use, error)
	// Close gives back what the meter keeps.
	Close()
}

// meter keeps the place where it found the instance's MIG device last, and on GPUs that count the counters of the
// reading before. Both are memory of this process: nothing of the instance is open between two readings, so that it can
// be destroyed.
type meter struct {
	n     *NVML
	gpu   int
	gi    int
	uuid  string
	index int
	// before and now are buffers of counters; nil where the GPU has none.
	before, now nvml.GpmSample
	counted     bool // before is filled
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
		if err := check(ret, "make a buffer for the GPU's counters"); err != nil {
			m.Close()
			return nil, err
		}
		*buffer = sample
	}
	return m, nil
}

// counts reports whether the GPU counts what its instances compute: GPM, of Hopper and later. A driver from before GPM
// lacks the functions, and go-nvml would end the process for calling one.
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
	if all, ret := dev.GetComputeRunningProcesses(); ret == nvml.SUCCESS {
		use.Processes = len(all)
		for _, p := range all {
			use.PIDs = append(use.PIDs, int(p.Pid))
		}
	}
	return use, nil
}

// find opens the instance's MIG device: where it was last, else wherever it is among those of its GPU. Another GPU is
// never asked: it may hang.
func (m *meter) find(parent nvml.Device) (nvml.Device, error) {
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

// at opens a MIG device of the GPU if it is the meter's.
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

// util is the share of the instance's SMs that was busy since the reading before, or -1.
func (m *meter) util(parent nvml.Device) float64 {
	if m.now == nil {
		return -1
	}
	if ret := parent.GpmMigSampleGet(m.gi, m.now); ret != nvml.SUCCESS {
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
