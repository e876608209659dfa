package nvmlemulator_test

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

type modelProfile struct {
	name                    string
	id, slices, size, limit int
	memory                  int // MiB; 0 if the table has a dash
	starts                  []int
	enum                    string
}

type modelTable struct {
	name, device string
	grid         int
	live         bool
	profiles     []modelProfile
}

// readModels parses models.txt independently of boards.awk.
func readModels(t *testing.T) []modelTable {
	t.Helper()
	f, err := os.Open("../../internal/core/mig/models.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("models.txt: %v", err)
		}
		return n
	}
	var all []modelTable
	for s := bufio.NewScanner(f); s.Scan(); {
		w := strings.Fields(s.Text())
		switch {
		case len(w) > 6 && w[0] == "board":
			all = append(
				all,
				modelTable{name: w[1], grid: number(w[2]), live: w[5] == "live", device: strings.Join(w[6:], " ")},
			)
		case len(w) > 0 && w[0] == "profile":
			p := modelProfile{
				name:   w[1],
				id:     number(w[2]),
				slices: number(w[3]),
				size:   number(w[4]),
				limit:  number(w[5]),
				enum:   w[14],
			}
			if w[7] != "-" {
				p.memory = number(w[7])
			}
			for _, start := range strings.Split(w[15], ",") {
				p.starts = append(p.starts, number(start))
			}
			b := &all[len(all)-1]
			b.profiles = append(b.profiles, p)
		}
	}
	if len(all) == 0 {
		t.Fatal("models.txt contains no GPU model")
	}
	return all
}

// TestEveryModel checks, for every GPU model, that the emulator reports the values in models.txt in all three versions
// of the profile info. It also checks that the emulator allows each placement.
func TestEveryModel(t *testing.T) {
	for _, b := range readModels(t) {
		t.Run(b.name, func(t *testing.T) {
			m := newMachine(t, "--board", b.name)
			d := m.device(0)
			name, ret := d.GetName()
			m.want(ret, nvml.SUCCESS, "GetName")
			if name != b.device {
				t.Errorf("the name of the GPU is %q, want %q", name, b.device)
			}
			seen := 0
			for enum := range nvml.GPU_INSTANCE_PROFILE_COUNT {
				info, ret := d.GetGpuInstanceProfileInfo(enum)
				if ret == nvml.ERROR_NOT_SUPPORTED {
					continue
				}
				m.want(ret, nvml.SUCCESS, "GetGpuInstanceProfileInfo")
				seen++
				i := slices.IndexFunc(b.profiles, func(p modelProfile) bool { return p.id == int(info.Id) })
				if i < 0 {
					t.Fatalf("models.txt does not contain profile id %d", info.Id)
				}
				checkProfile(m, d, b, b.profiles[i], enum, info)
			}
			if seen != len(b.profiles) {
				t.Errorf("the GPU has %d profiles, want %d", seen, len(b.profiles))
			}
			_, ret = d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_COUNT)
			if ret != nvml.ERROR_INVALID_ARGUMENT {
				t.Errorf("a profile number out of range returned %v", ret)
			}
			m.check()
		})
	}
}

func checkProfile(m *machine, d nvml.Device, b modelTable, p modelProfile, enum int, info nvml.GpuInstanceProfileInfo) {
	m.Helper()
	if int(info.SliceCount) != p.slices || int(info.InstanceCount) != p.limit ||
		(p.memory != 0 && int(info.MemorySizeMB) != p.memory) {
		m.Errorf("%s: the profile info differs from models.txt: %+v", p.name, info)
	}
	if info.MemorySizeMB == 0 || info.MultiprocessorCount == 0 {
		m.Errorf("%s: the emulator has no approximation for a dash in models.txt: %+v", p.name, info)
	}
	v2, ret := d.GetGpuInstanceProfileInfoV(enum).V2()
	m.want(ret, nvml.SUCCESS, "V2")
	v3, ret := d.GetGpuInstanceProfileInfoV(enum).V3()
	m.want(ret, nvml.SUCCESS, "V3")
	if text(v2.Name[:]) != "MIG "+p.name || text(v3.Name[:]) != "MIG "+p.name {
		m.Errorf("the names of the profile are %q and %q, want MIG %s", text(v2.Name[:]), text(v3.Name[:]), p.name)
	}
	if v2.MemorySizeMB != info.MemorySizeMB || v3.MemorySizeMB != info.MemorySizeMB || v2.OfaCount != info.OfaCount ||
		v3.OfaCount != info.OfaCount {
		m.Errorf("%s: the versions of the profile info differ: %+v %+v %+v", p.name, info, v2, v3)
	}
	if gfx := v3.Capabilities&nvml.GPU_INSTANCE_PROFILE_CAPS_GFX != 0; gfx != strings.HasSuffix(p.name, "+gfx") {
		m.Errorf("%s: the profile reports %v for the graphics capability", p.name, gfx)
	}
	places, ret := d.GetGpuInstancePossiblePlacements(&info)
	m.want(ret, nvml.SUCCESS, "GetGpuInstancePossiblePlacements")
	var starts []int
	for _, at := range places {
		starts = append(starts, int(at.Start))
		if int(at.Size) != p.size {
			m.Errorf("%s: a placement has %d units, want %d", p.name, at.Size, p.size)
		}
		gi, ret := d.CreateGpuInstanceWithPlacement(&info, &at)
		m.want(ret, nvml.SUCCESS, fmt.Sprintf("create %s at %d", p.name, at.Start))
		got, ret := gi.GetInfo()
		m.want(ret, nvml.SUCCESS, "GetInfo")
		if int(got.Id) != giID(b.grid, int(at.Start), p.size) || got.Placement != at || got.ProfileId != info.Id {
			m.Errorf("%s at %d: the info of the instance is wrong: %+v", p.name, at.Start, got)
		}
		_, ret = m.fullCI(gi)
		m.want(ret, nvml.SUCCESS, "create compute instance")
		m.checkMigDevice(d, p, info)
		m.ctl("destroy", "0", strconv.Itoa(int(got.Id)))
	}
	if !slices.Equal(starts, p.starts) {
		m.Errorf("%s: the starts are %v, want %v", p.name, starts, p.starts)
	}
}

func (m *machine) checkMigDevice(d nvml.Device, p modelProfile, info nvml.GpuInstanceProfileInfo) {
	m.Helper()
	all := m.migDevices(d)
	if len(all) != 1 {
		m.Fatalf("the GPU has %d MIG devices, want 1", len(all))
	}
	a, ret := all[0].GetAttributes()
	m.want(ret, nvml.SUCCESS, "GetAttributes")
	if a.MemorySizeMB != info.MemorySizeMB || int(a.GpuInstanceSliceCount) != p.slices ||
		int(a.ComputeInstanceSliceCount) != p.slices ||
		a.MultiprocessorCount != info.MultiprocessorCount {
		m.Errorf("%s: the attributes %+v do not match the profile info %+v", p.name, a, info)
	}
	name, ret := all[0].GetName()
	m.want(ret, nvml.SUCCESS, "GetName")
	if !strings.HasSuffix(name, " MIG "+p.name) {
		m.Errorf("the name of the MIG device is %q, want the suffix MIG %s", name, p.name)
	}
}

// giID returns the id of a GPU instance, from the published ids of GPU models with 4, 8 and 12 units instead of the
// emulator's formula.
func giID(grid, start, size int) int {
	ids := map[int]map[int][]int{
		4:  {4: {0}, 2: {1, 2}, 1: {3, 4, 5, 6}},
		8:  {8: {0}, 4: {1, 2}, 2: {3, 4, 5, 6}, 1: {7, 8, 9, 10, 11, 12, 13, 14}},
		12: {12: {0}, 6: {1, 2}, 3: {3, 4, 5, 6}},
	}
	return ids[grid][size][start/size]
}
