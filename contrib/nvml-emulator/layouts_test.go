package nvmlemulator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// candidate is a placement of a profile that walk can use.
type candidate struct {
	info nvml.GpuInstanceProfileInfo
	at   nvml.GpuInstancePlacement
}

func (m *machine) candidates(d nvml.Device, profiles ...string) []candidate {
	m.Helper()
	var all []candidate
	for _, name := range profiles {
		info := m.profile(d, name)
		places, ret := d.GetGpuInstancePossiblePlacements(&info)
		m.want(ret, nvml.SUCCESS, "GetGpuInstancePossiblePlacements")
		for _, at := range places {
			all = append(all, candidate{info, at})
		}
	}
	return all
}

func overlap(a, b nvml.GpuInstancePlacement) bool {
	return a.Start < b.Start+b.Size && b.Start < a.Start+a.Size
}

// walk creates every layout of the candidates exactly once, by adding one instance per step. It expects that the
// emulator rejects exactly the overlapping placements, because no other rule applies to the candidates.
func (m *machine) walk(
	d nvml.Device,
	all []candidate,
	made []nvml.GpuInstancePlacement,
	from int,
	layouts, maximal *int,
) {
	m.Helper()
	*layouts++
	if m.full(d, all) {
		*maximal++
	}
	for i := from; i < len(all); i++ {
		taken := slices.ContainsFunc(made, func(p nvml.GpuInstancePlacement) bool { return overlap(p, all[i].at) })
		gi, ret := d.CreateGpuInstanceWithPlacement(&all[i].info, &all[i].at)
		if taken {
			m.want(ret, nvml.ERROR_INSUFFICIENT_RESOURCES, fmt.Sprintf("create at %+v beside %+v", all[i].at, made))
			continue
		}
		m.want(ret, nvml.SUCCESS, fmt.Sprintf("create at %+v beside %+v", all[i].at, made))
		m.walk(d, all, append(slices.Clone(made), all[i].at), i+1, layouts, maximal)
		m.want(gi.Destroy(), nvml.SUCCESS, "destroy")
	}
}

// full reports whether the remaining capacity of every profile is 0.
func (m *machine) full(d nvml.Device, all []candidate) bool {
	m.Helper()
	for i, c := range all {
		if i > 0 && all[i-1].info.Id == c.info.Id {
			continue
		}
		n, ret := d.GetGpuInstanceRemainingCapacity(&c.info)
		m.want(ret, nvml.SUCCESS, "GetGpuInstanceRemainingCapacity")
		if n > 0 {
			return false
		}
	}
	return true
}

// TestLayouts checks two numbers for each GPU model: the number of layouts, including the empty layout, and the number
// of maximal layouts. -short skips the case with the most layouts.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		model, profiles  string
		layouts, maximal int
	}{
		{"A100-40GB", "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", 723, 78},
		{"A100-40GB", "1g.5gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", 298, 19},
		{"A30-24GB", "1g.6gb 2g.12gb 4g.24gb", 26, 5},
		{"RTX-PRO-6000-96GB", "1g.24gb 2g.48gb 4g.96gb", 26, 5},
	} {
		t.Run(fmt.Sprintf("%s/%d", c.model, c.layouts), func(t *testing.T) {
			if testing.Short() && c.layouts > 500 {
				t.Skip("creates thousands of instances; runs without -short")
			}
			m := newMachine(t, "--board", c.model)
			d := m.device(0)
			var layouts, maximal int
			m.walk(d, m.candidates(d, strings.Fields(c.profiles)...), nil, 0, &layouts, &maximal)
			if layouts != c.layouts || maximal != c.maximal {
				t.Errorf("found %d layouts and %d maximal layouts, want %d and %d",
					layouts, maximal, c.layouts, c.maximal)
			}
			m.check()
		})
	}
}

// TestDriverOrder checks which starts the emulated driver chooses for seven 1g instances without a given placement. The
// expected starts were observed on an H100.
func TestDriverOrder(t *testing.T) {
	for _, model := range []string{"H100-80GB", "A100-40GB"} {
		t.Run(model, func(t *testing.T) {
			m := newMachine(t, "--board", model)
			d := m.device(0)
			info, ret := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
			m.want(ret, nvml.SUCCESS, "GetGpuInstanceProfileInfo")
			var starts []uint32
			for range 7 {
				gi, ret := d.CreateGpuInstance(&info)
				m.want(ret, nvml.SUCCESS, "CreateGpuInstance")
				got, _ := gi.GetInfo()
				starts = append(starts, got.Placement.Start)
			}
			if want := []uint32{6, 4, 5, 0, 1, 2, 3}; !slices.Equal(starts, want) {
				t.Errorf("the starts are %v, want %v", starts, want)
			}
			if _, ret := d.CreateGpuInstance(&info); ret != nvml.ERROR_INSUFFICIENT_RESOURCES {
				t.Errorf("the creation of an eighth instance returned %v", ret)
			}
		})
	}
}

// TestMediaEnginesAndLimits checks that a lack of media engines, or an instance limit, can prevent the creation of an
// instance although enough units are free.
func TestMediaEnginesAndLimits(t *testing.T) {
	t.Run("one +me on an A100", func(t *testing.T) {
		m := newMachine(t, "--board", "A100-40GB")
		d := m.device(0)
		_, ret := m.place(d, "1g.5gb+me", 0)
		m.want(ret, nvml.SUCCESS, "the first +me")
		_, ret = m.place(d, "1g.5gb+me", 1)
		m.want(ret, nvml.ERROR_INSUFFICIENT_RESOURCES, "a second +me")
		_, ret = m.place(d, "1g.5gb", 1)
		m.want(ret, nvml.SUCCESS, "a 1g.5gb beside the +me")
	})
	t.Run("A30: 1g+me and 2g+me share the engines", func(t *testing.T) {
		m := newMachine(t, "--board", "A30-24GB")
		d := m.device(0)
		_, ret := m.place(d, "2g.12gb+me", 0)
		m.want(ret, nvml.SUCCESS, "2g+me")
		_, ret = m.place(d, "1g.6gb+me", 2)
		m.want(ret, nvml.ERROR_INSUFFICIENT_RESOURCES, "1g+me")
		info := m.profile(d, "1g.6gb+me")
		if n, _ := d.GetGpuInstanceRemainingCapacity(&info); n != 0 {
			t.Errorf("the remaining capacity of 1g+me is %d, want 0", n)
		}
	})
	// According to nvml.h, an instance of an ALL_ME profile prevents all profiles except the _NO_ME profiles.
	t.Run("RTX PRO 6000: me.all prevents all profiles except -me", func(t *testing.T) {
		m := newMachine(t, "--board", "RTX-PRO-6000-96GB")
		d := m.device(0)
		_, ret := m.place(d, "1g.24gb+me.all", 0)
		m.want(ret, nvml.SUCCESS, "me.all")
		for name, want := range map[string]nvml.Return{
			"1g.24gb": nvml.ERROR_INSUFFICIENT_RESOURCES, "1g.24gb+me": nvml.ERROR_INSUFFICIENT_RESOURCES,
			"1g.24gb+gfx": nvml.ERROR_INSUFFICIENT_RESOURCES, "2g.48gb": nvml.ERROR_INSUFFICIENT_RESOURCES,
			"2g.48gb-me": nvml.SUCCESS,
		} {
			gi, ret := m.place(d, name, 6)
			m.want(ret, want, name)
			if ret == nvml.SUCCESS {
				m.want(gi.Destroy(), nvml.SUCCESS, "destroy")
			}
		}
		_, ret = m.place(d, "1g.24gb-me", 9)
		m.want(ret, nvml.SUCCESS, "1g-me")
	})
	t.Run("H100: seven 1g use all decoders but one", func(t *testing.T) {
		m := newMachine(t, "--board", "H100-80GB")
		d := m.device(0)
		for start := range 7 {
			_, ret := m.place(d, "1g.10gb", start)
			m.want(ret, nvml.SUCCESS, "1g")
		}
		m.check()
	})
}

// TestWrongPlacements checks that NVML returns INVALID_ARGUMENT, and not INSUFFICIENT_RESOURCES, for an illegal start
// or for the size of another profile.
func TestWrongPlacements(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	info := m.profile(d, "2g.10gb")
	for _, at := range []nvml.GpuInstancePlacement{
		{Start: 1, Size: 2}, {Start: 6, Size: 2}, {Start: 0, Size: 4}, {Start: 1 << 31, Size: 2},
	} {
		if _, ret := d.CreateGpuInstanceWithPlacement(&info, &at); ret != nvml.ERROR_INVALID_ARGUMENT {
			t.Errorf("the creation at %+v returned %v", at, ret)
		}
	}
	info.Id = 99
	if _, ret := d.CreateGpuInstance(&info); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("an unknown profile id returned %v", ret)
	}
}
