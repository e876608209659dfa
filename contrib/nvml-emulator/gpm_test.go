package nvmlemulator_test

import (
	"math"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// gpm holds two samples of an instance's counters.
type gpm struct {
	*machine
	one, two nvml.GpmSample
}

func newGPM(m *machine) gpm {
	m.Helper()
	g := gpm{machine: m}
	for _, s := range []*nvml.GpmSample{&g.one, &g.two} {
		var ret nvml.Return
		*s, ret = m.GpmSampleAlloc()
		m.want(ret, nvml.SUCCESS, "GpmSampleAlloc")
		m.Cleanup(func() { (*s).Free() })
	}
	return g
}

// metric returns the value and the return code of a metric between the two samples.
func (g gpm) metric(id nvml.GpmMetricId) (float64, nvml.Return) {
	g.Helper()
	get := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: g.one, Sample2: g.two}
	get.Metrics[0].MetricId = uint32(id)
	g.want(g.GpmMetricsGet(&get), nvml.SUCCESS, "GpmMetricsGet")
	return get.Metrics[0].Value, nvml.Return(get.Metrics[0].NvmlReturn)
}

// TestGPM checks that an instance's utilization is the sum of the utilizations that its processes report, at most 100%.
// Processes on other instances must not affect it.
func TestGPM(t *testing.T) {
	m := newMachine(t, "--board", "H100-80GB")
	d := m.device(0)
	support, ret := d.GpmQueryDeviceSupport()
	m.want(ret, nvml.SUCCESS, "GpmQueryDeviceSupport")
	if support.IsSupportedDevice != 1 {
		t.Errorf("an H100 does not support GPM: %+v", support)
	}
	_, _, uuid := m.carve(d, "1g.10gb", 0) // GI 7
	m.carve(d, "1g.10gb", 1)               // GI 8
	g := newGPM(m)
	between := func(gi int) float64 {
		t.Helper()
		for _, s := range []nvml.GpmSample{g.one, g.two} {
			m.want(d.GpmMigSampleGet(gi, s), nvml.SUCCESS, "GpmMigSampleGet")
		}
		util, ret := g.metric(nvml.GPM_METRIC_SM_UTIL)
		m.want(ret, nvml.SUCCESS, "SM_UTIL")
		return util
	}
	if util := between(7); util != 0 {
		t.Errorf("the utilization without processes is %v%%, want 0", util)
	}
	m.running(m.cuda(uuid, "--util", "0.37", "--seconds", "3600", "--print"))
	if util := between(7); math.Abs(util-37) > 0.01 {
		t.Errorf("the utilization is %v%%, want 37", util)
	}
	if util := between(8); util != 0 {
		t.Errorf("the utilization of the other instance is %v%%, want 0", util)
	}
	m.running(m.cuda(uuid, "--util", "0.9", "--seconds", "3600", "--print"))
	if util := between(7); util != 100 {
		t.Errorf("the utilization of two processes is %v%%, want 100", util)
	}
	if _, ret := g.metric(nvml.GPM_METRIC_DRAM_BW_UTIL); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("a metric that is not emulated returned %v", ret)
	}

	m.want(d.GpmMigSampleGet(9, g.two), nvml.ERROR_NOT_FOUND, "sample of a missing instance")
	m.want(d.GpmMigSampleGet(8, g.two), nvml.SUCCESS, "sample of the other instance")
	get := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: g.one, Sample2: g.two}
	m.want(m.GpmMetricsGet(&get), nvml.ERROR_INVALID_ARGUMENT, "metrics of samples of two instances")
	m.ctl("lose", "0")
	m.want(d.GpmMigSampleGet(7, g.one), nvml.ERROR_GPU_IS_LOST, "sample of a lost GPU")
}

// TestNoGPM checks that GPU models before Hopper do not support GPM.
func TestNoGPM(t *testing.T) {
	for _, model := range []string{"A30-24GB", "A100-40GB", "A100-80GB"} {
		m := newMachine(t, "--board", model)
		d := m.device(0)
		support, ret := d.GpmQueryDeviceSupport()
		m.want(ret, nvml.SUCCESS, "GpmQueryDeviceSupport")
		if support.IsSupportedDevice != 0 {
			t.Errorf("%s supports GPM: %+v", model, support)
		}
		m.want(d.GpmMigSampleGet(7, newGPM(m).one), nvml.ERROR_NOT_SUPPORTED, "GpmMigSampleGet on "+model)
	}
}

// TestGPMArguments checks that invalid GPM arguments lead to an error.
func TestGPMArguments(t *testing.T) {
	m := newMachine(t, "--board", "H100-80GB")
	d := m.device(0)
	m.carve(d, "1g.10gb", 0)
	g := newGPM(m)
	get := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: g.one, Sample2: g.two}
	m.want(m.GpmMetricsGet(&get), nvml.ERROR_INVALID_ARGUMENT, "metrics without samples")
	for _, s := range []nvml.GpmSample{g.one, g.two} {
		m.want(d.GpmMigSampleGet(7, s), nvml.SUCCESS, "GpmMigSampleGet")
	}
	m.want(m.GpmMetricsGetV(&get).V1(), nvml.SUCCESS, "version 1")
	get.NumMetrics = uint32(nvml.GPM_METRIC_MAX) + 1
	m.want(m.GpmMetricsGet(&get), nvml.ERROR_INVALID_ARGUMENT, "too many metrics")
}

// TestUtilOption checks that invalid values of --util lead to an error.
func TestUtilOption(t *testing.T) {
	m := newMachine(t, "--board", "H100-80GB")
	_, _, uuid := m.carve(m.device(0), "1g.10gb", 0)
	for _, util := range []string{"1.1", "-0.1", "nan", "x", ""} {
		if out, status := m.exit(m.cuda(uuid, "--util", util)); status != 2 || out == "" {
			t.Errorf("--util %q: exit status %d, want 2 and a message\n%s", util, status, out)
		}
	}
}
