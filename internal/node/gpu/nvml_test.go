package gpu_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"caelum/internal/core/mig"
	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
)

func TestDiscoveryFindsEveryModel(t *testing.T) {
	for _, want := range mig.Models() {
		t.Run(want.Name, func(t *testing.T) {
			node := gputest.New(t, want.Name, 1)
			gpus, err := node.GPUs()
			if err != nil {
				t.Fatal(err)
			}
			got := gpus[0].Model
			if gpus[0].Reset != want.Reset {
				t.Errorf("a change of the MIG mode needs a reset: %v, want %v", gpus[0].Reset, want.Reset)
			}
			if gpus[0].Problem != "" || got == nil {
				t.Fatalf("problem: %s", gpus[0].Problem)
			}
			if got.Type != want.Type || got.Grid != want.Grid || len(got.Placements) != len(want.Placements) {
				t.Fatalf(
					"type %s grid %d, %d placements; want %s %d %d",
					got.Type,
					got.Grid,
					len(got.Placements),
					want.Type,
					want.Grid,
					len(want.Placements),
				)
			}
			if g, w := len(got.Maximal()), len(want.Maximal()); g != w {
				t.Errorf("%d maximal layouts, want %d as in the table of package mig", g, w)
			}
			for _, p := range want.Placements {
				name := want.Profiles[p.Profile].Name
				if _, ok := got.Placement(name, p.Start); !ok {
					t.Errorf("no %s at %d", name, p.Start)
				}
			}
		})
	}
}

func TestCreateAndDestroy(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 2)
	if _, err := node.GPUs(); err != nil {
		t.Fatal(err)
	}
	a, err := node.Create(1, "3g.20gb", 4)
	if err != nil {
		t.Fatal(err)
	}
	if a.Start != 4 || a.Size != 4 || len(a.CIs) != 1 || a.UUID == "" {
		t.Errorf("Create returned %+v", a)
	}
	list, err := node.Instances(1)
	if err != nil || len(list) != 1 || list[0].UUID != a.UUID || list[0].Profile != "3g.20gb" {
		t.Fatalf("%+v, %v", list, err)
	}
	if other, err := node.Instances(0); err != nil || len(other) != 0 {
		t.Errorf("GPU 0 has %+v, %v", other, err)
	}
	if _, err := node.Create(1, "2g.10gb", 4); !errors.Is(err, gpu.ErrNoRoom) {
		t.Errorf("an occupied placement: %v", err)
	}
	if _, err := node.Create(1, "2g.10gb", 3); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("an invalid start: %v", err)
	}
	if _, err := node.Create(1, "9g.90gb", 0); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("an unknown profile: %v", err)
	}
	if err := node.Destroy(1, a.GI); err != nil {
		t.Fatal(err)
	}
	if err := node.Destroy(1, a.GI); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("destroyed twice: %v", err)
	}
}

func TestFaults(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 1)
	if _, err := node.GPUs(); err != nil {
		t.Fatal(err)
	}
	// If the driver cannot create the compute instance, no GPU instance may remain.
	node.Emulator(t, "fault", "add", "--call", "CREATE_CI", "--nth", "1", "--error", "UNKNOWN")
	if _, err := node.Create(0, "1g.5gb", 0); err == nil {
		t.Error("no error although the driver cannot create the compute instance")
	}
	if list, err := node.Instances(0); err != nil || len(list) != 0 {
		t.Errorf("remaining instances: %+v, %v", list, err)
	}
	node.Emulator(t, "fault", "clear")

	// A monitoring program has a handle on an instance.
	in, err := node.Create(0, "1g.5gb", 0)
	if err != nil {
		t.Fatal(err)
	}
	node.Emulator(t, "hold", "0", strconv.Itoa(in.GI))
	if err := node.Destroy(0, in.GI); !errors.Is(err, gpu.ErrInUse) {
		t.Errorf("destroying an instance in use: %v", err)
	}
	node.Emulator(t, "unhold", "0", strconv.Itoa(in.GI))
	if err := node.Destroy(0, in.GI); err != nil {
		t.Error(err)
	}

	node.Emulator(t, "lose", "0")
	if _, err := node.Instances(0); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("a lost GPU: %v", err)
	}
}

func TestMIGModeOff(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 1)
	node.Emulator(t, "init", "--board", "A100-40GB", "--gpus", "1", "--mig", "off", "--dev-root", node.Dev)
	gpus, err := node.GPUs()
	if err != nil || !gpus[0].Full || gpus[0].Problem == "" {
		t.Fatalf("%+v, %v", gpus, err)
	}
	if g := gpus[0].Managed(mig.FullGPUs{Switch: true}); g.Model != nil || g.Problem == "" {
		t.Errorf("a GPU that needs a reset: %+v", g)
	}
	if g := gpus[0].Managed(mig.FullGPUs{Switch: true, Reset: true}); g.Model.Full() == 0 || g.Problem != "" {
		t.Errorf("a GPU that may be reset: %+v", g)
	}
}

// TestWithoutMIG checks that GPUs that do not support MIG are managed as full GPUs, whatever whole_gpus allows, and
// that nothing tries to switch their MIG mode.
func TestWithoutMIG(t *testing.T) {
	for name, want := range map[string]struct {
		kind string
		mib  uint64
	}{
		"V100-32GB": {"v100", 32768}, "T4-16GB": {"t4", 15360}, "A40-48GB": {"a40", 46068},
		"L40S-48GB": {"l40s", 46068},
	} {
		t.Run(name, func(t *testing.T) {
			node := gputest.New(t, name, 1)
			gpus, err := node.GPUs()
			if err != nil || gpus[0].Problem != gpu.WithoutMIG || !gpus[0].Full {
				t.Fatalf("%+v, %v", gpus, err)
			}
			g := gpus[0].Managed(mig.FullGPUs{})
			if g.Problem != "" || g.Model.Type != want.kind || len(g.Model.Placements) != 1 || g.Model.Full() == 0 ||
				g.Model.Profiles[0].MemoryMiB != want.mib || !g.Model.WithoutMIG() {
				t.Errorf("%+v", g)
			}
			in := gpu.Instance{GI: gpu.FullGI, Profile: mig.Full, Size: 1, CIs: []int{0}, Whole: true, UUID: g.UUID}
			if all, err := node.Instances(0); err != nil || !reflect.DeepEqual(all, []gpu.Instance{in}) {
				t.Errorf("instances %+v, %v", all, err)
			}
			if there, err := node.Exists(0, in); err != nil || !there {
				t.Errorf("exists: %v, %v", there, err)
			}
			if _, err := node.Create(0, mig.Full, 0); err == nil {
				t.Errorf("the MIG mode was switched off")
			}
			if err := node.Destroy(0, gpu.FullGI); err == nil {
				t.Errorf("the MIG mode was switched on")
			}
		})
	}
}

// TestWithoutMIGBesideMIG checks that a GPU without MIG is not managed beside a GPU that supports MIG.
func TestWithoutMIGBesideMIG(t *testing.T) {
	node := gputest.New(t, "T4-16GB", 1, "--board", "A100-40GB")
	gpus, err := node.GPUs()
	if err != nil || len(gpus) != 2 {
		t.Fatalf("%+v, %v", gpus, err)
	}
	for _, g := range []gpu.GPU{gpus[0], node.Discover(0)} {
		if g = g.Managed(mig.FullGPUs{Switch: true, Reset: true}); g.Model != nil || g.Problem != gpu.WithoutMIG {
			t.Errorf("the T4: %+v", g)
		}
	}
	if g := gpus[1].Managed(mig.FullGPUs{}); g.Model == nil || g.Problem != "" {
		t.Errorf("the A100: %+v", g)
	}
}

// TestFull switches a GPU's MIG mode off and on by creating and destroying an instance of the `full` profile.
func TestFull(t *testing.T) {
	node := gputest.New(t, "H100-80GB", 2)
	if _, err := node.GPUs(); err != nil {
		t.Fatal(err)
	}
	in, err := node.Create(1, mig.Full, 0)
	if err != nil || in.GI != gpu.FullGI || in.Size != 8 || !strings.HasPrefix(in.UUID, "GPU-") {
		t.Fatalf("%+v, %v", in, err)
	}
	if all, err := node.Instances(1); err != nil || !reflect.DeepEqual(all, []gpu.Instance{in}) {
		t.Errorf("instances of a full GPU: %+v, %v", all, err)
	}
	if all, err := node.Instances(0); err != nil || len(all) > 0 {
		t.Errorf("instances of the other GPU: %+v, %v", all, err)
	}
	if pids, err := node.Processes(1, in.GI); err != nil || len(pids) > 0 {
		t.Errorf("processes of a full GPU: %v, %v", pids, err)
	}
	m, err := node.Meter(1, in)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if use, err := m.Read(); err != nil || use.Processes != 0 {
		t.Errorf("usage of a full GPU: %+v, %v", use, err)
	}
	if _, err := node.Create(1, "1g.10gb", 0); err == nil {
		t.Error("a slice was created on a full GPU")
	}
	if err := node.Destroy(1, in.GI); err != nil {
		t.Fatal(err)
	}
	if there, err := node.Exists(1, in); err != nil || there {
		t.Errorf("exists after the switch: %v, %v", there, err)
	}
	if _, err := node.Create(1, "1g.10gb", 0); err != nil {
		t.Error(err)
	}
	// The driver refuses a switch while instances exist, and no switch may remain pending.
	if _, err := node.Create(1, mig.Full, 0); !errors.Is(err, gpu.ErrInUse) {
		t.Errorf("switching while an instance exists: %v", err)
	}
	if g := node.Discover(1); g.Problem != "" || g.Full {
		t.Errorf("after a refused switch: %+v", g)
	}
}

// TestSwitchNeedsReset checks the error for a GPU whose MIG mode the driver does not switch without a reset.
func TestSwitchNeedsReset(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 1)
	node.Emulator(t, "init", "--board", "A100-40GB", "--mode-reset", "manual", "--dev-root", node.Dev)
	if _, err := node.GPUs(); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Create(0, mig.Full, 0); err == nil {
		t.Fatal("the MIG mode was switched without a reset")
	}
	if g := node.Discover(0); g.Problem != "" {
		t.Errorf("a switch is pending: %s", g.Problem)
	}
}

// TestDeviceFile checks the owner and mode of a GPU's device file.
func TestDeviceFile(t *testing.T) {
	node := gputest.New(t, "H100-80GB", 1)
	caps := gpu.Caps{Dev: node.Dev, Proc: node.Proc}
	full := gpu.Instance{GI: gpu.FullGI, Profile: mig.Full}
	check := func(what string, uid, mode uint32) {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(caps.DeviceFile(0), &st); err != nil {
			t.Fatal(err)
		}
		if st.Uid != uid || st.Mode&0o777 != mode {
			t.Errorf("%s: owner %d and mode %#o, want %d and %#o", what, st.Uid, st.Mode&0o777, uid, mode)
		}
	}
	for _, step := range []struct {
		what      string
		do        func() error
		uid, mode uint32
	}{
		{"idle", func() error { return caps.Make(0, full) }, 0, 0o600},
		{"leased", func() error { return caps.Open(0, full, 20001) }, 20001, 0o600},
		{"released", func() error { return caps.Close(0, full) }, 0, 0o600},
		{"MIG mode on", func() error { return caps.Share(0) }, 0, 0o666},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		check(step.what, step.uid, step.mode)
	}
	var before, after unix.Stat_t
	if err := errors.Join(unix.Stat(caps.DeviceFile(0), &before), caps.Share(0),
		unix.Stat(caps.DeviceFile(0), &after)); err != nil || before.Ctim != after.Ctim {
		t.Errorf("a device file that all users could open was changed: %v, %v, %v", before.Ctim, after.Ctim, err)
	}
	if files := caps.Files(0, full); len(files) != 1 || files[0] != caps.DeviceFile(0) {
		t.Errorf("files of a full GPU: %v", files)
	}
	d, err := caps.Device(0)
	if own, err2 := caps.Devices(0, full); err != nil || err2 != nil || !reflect.DeepEqual(own, []gpu.Device{d}) {
		t.Errorf("devices of a full GPU: %v, %v, %v", own, err, err2)
	}
}

// create2g creates an instance of GPU 0.
func create2g(t *testing.T, node *gputest.Node) gpu.Instance {
	t.Helper()
	if _, err := node.GPUs(); err != nil {
		t.Fatal(err)
	}
	in, err := node.Create(0, "2g.10gb", 2)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// capFiles returns the paths of an instance's capability files on GPU 0 according to the driver's formula.
func capFiles(node *gputest.Node, in gpu.Instance) []string {
	cap := func(minor int) string { return filepath.Join(node.Dev, "nvidia-caps", fmt.Sprint("nvidia-cap", minor)) }
	return []string{cap(3 + 9*in.GI), cap(3 + 9*in.GI + 1)}
}

func TestCaps(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 1)
	in := create2g(t, node)
	caps := gpu.Caps{Dev: node.Dev, Proc: "/nonexistent"}
	files := capFiles(node, in)
	check := func(uid uint32) {
		t.Helper()
		for _, f := range files {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			st := info.Sys().(*syscall.Stat_t)
			if st.Uid != uid || st.Gid != 0 || info.Mode().Perm() != 0o400 {
				t.Errorf("%s: uid %d gid %d mode %o", filepath.Base(f), st.Uid, st.Gid, info.Mode().Perm())
			}
		}
	}
	if err := caps.Close(0, in); err != nil {
		t.Fatal(err)
	}
	check(0)
	if err := caps.Open(0, in, 12345); err != nil {
		t.Fatal(err)
	}
	check(12345)
}

// TestCapsKeepsModprobeOut checks that Close sets DeviceFileModify to 0, because at 1, nvidia-modprobe would make the
// capability files readable by all users.
func TestCapsKeepsModprobeOut(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 1)
	in := create2g(t, node)
	caps := gpu.Caps{Dev: node.Dev, Proc: node.Proc}
	modify := func() (lines []string) {
		for _, f := range []string{"access", "ci0/access"} {
			dir := filepath.Join(node.Proc, "driver/nvidia/capabilities/gpu0/mig", fmt.Sprint("gi", in.GI))
			data, err := os.ReadFile(filepath.Join(dir, f))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(data)) {
				if strings.HasPrefix(line, "DeviceFileModify") {
					lines = append(lines, strings.TrimSpace(line))
				}
			}
		}
		return lines
	}
	// Create has restricted the file of the GPU instance, before it created the compute instance.
	if got := modify(); !slices.Equal(got, []string{"DeviceFileModify: 0", "DeviceFileModify: 1"}) {
		t.Fatalf("before Close: %q", got)
	}
	if err := caps.Close(0, in); err != nil {
		t.Fatal(err)
	}
	if got := modify(); !slices.Equal(got, []string{"DeviceFileModify: 0", "DeviceFileModify: 0"}) {
		t.Errorf("after Close: %q", got)
	}
	if got := caps.Files(0, in); !slices.Equal(got, capFiles(node, in)) {
		t.Errorf("after Close the files are %q", got)
	}
}

// TestCapsMakesFiles checks a driver with NVreg_ModifyDeviceFiles=0. Create makes the file of the GPU instance, and
// Make that of the compute instance. Only root may be able to open new files.
func TestCapsMakesFiles(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 1, "--modify-device-files", "0")
	in := create2g(t, node)
	caps := gpu.Caps{Dev: node.Dev, Proc: node.Proc}
	files := caps.Files(0, in)
	if info, err := os.Lstat(files[0]); err != nil || info.Mode().Perm() != 0o400 {
		t.Fatalf("%s: %v, %v", files[0], info, err)
	}
	file := files[1]
	if _, err := os.Lstat(file); !os.IsNotExist(err) {
		t.Fatalf("the driver created %s (%v)", file, err)
	}
	if err := caps.Close(0, in); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(file); !os.IsNotExist(err) {
		t.Errorf("Close created %s (%v)", file, err)
	}
	if err := caps.Make(0, in); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(file)
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); info.Mode().Type() != os.ModeDevice|os.ModeCharDevice ||
		info.Mode().Perm() != 0o400 ||
		st.Uid != 0 ||
		st.Rdev != unix.Mkdev(60, uint32(3+9*in.GI+1)) {
		t.Errorf("%s: %v, uid %d, device %d:%d", file, info.Mode(), st.Uid, unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
}

func TestCapDevices(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 1)
	caps := gpu.Caps{Dev: node.Dev, Proc: node.Proc}
	got, err := caps.Devices(1, gpu.Instance{GI: 12, CIs: []int{0}})
	if err != nil || fmt.Sprint(got) != "[60:246 60:247]" { // GI: 3 + 135 + 9*12; CI: the next number
		t.Errorf("%v, %v", got, err)
	}
	all, err := caps.Possible(1)
	if err != nil || len(all) != 30 || fmt.Sprint(all[0], all[1], all[29]) != "60:138 60:139 60:265" {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := (gpu.Caps{Dev: "/dev", Proc: t.TempDir()}).Devices(0, gpu.Instance{}); err == nil {
		t.Error("no error without a driver")
	}
}

// TestCapFiles checks the minor numbers of capability files. According to the kernel modules' formula, GI 12 of GPU 0
// has the minor number 111, and its CI 0 has 112. If the driver provides files under /proc, the numbers in them take
// precedence.
func TestCapFiles(t *testing.T) {
	proc := t.TempDir()
	caps := gpu.Caps{Dev: "/dev", Proc: proc}
	in := gpu.Instance{GI: 12, CIs: []int{0}}
	if got := caps.Files(0, in); !slices.Equal(
		got,
		[]string{"/dev/nvidia-caps/nvidia-cap111", "/dev/nvidia-caps/nvidia-cap112"},
	) {
		t.Errorf("by the formula: %v", got)
	}
	if got := caps.Files(1, gpu.Instance{}); !slices.Equal(got, []string{"/dev/nvidia-caps/nvidia-cap138"}) {
		t.Errorf("gpu1 gi0: %v", got)
	}
	access := filepath.Join(proc, "driver/nvidia/capabilities/gpu0/mig/gi12/ci0/access")
	if err := os.MkdirAll(filepath.Dir(access), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(access, []byte("DeviceFileMinor: 900\nDeviceFileMode: 292\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	if got := caps.Files(0, in); !slices.Equal(
		got,
		[]string{"/dev/nvidia-caps/nvidia-cap111", "/dev/nvidia-caps/nvidia-cap900"},
	) {
		t.Errorf("by the driver: %v", got)
	}
}

// TestOpenNVMLOfOthers checks that root does not load a library that other users can change.
func TestOpenNVMLOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, because OpenNVML checks the path only for root")
	}
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if err := os.WriteFile(path, nil, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := gpu.OpenNVML(path, gpu.Caps{}); err == nil ||
		!strings.Contains(err.Error(), "writable by group and others; chmod go-w "+path) {
		t.Errorf("got %v", err)
	}
}

// TestProfilesWithMIGModeOff checks that a GPU has the same profiles whether MIG mode is on or off. The emulated driver
// reports no names while MIG mode is off.
func TestProfilesWithMIGModeOff(t *testing.T) {
	for _, want := range mig.Models() {
		node := gputest.New(t, want.Name, 1)
		on, err := node.GPUs()
		if err != nil {
			t.Fatal(err)
		}
		node.Emulator(t, "init", "--board", want.Name, "--gpus", "1", "--mig", "off", "--dev-root", node.Dev)
		off, err := node.GPUs()
		if err != nil || !off[0].Full {
			t.Fatalf("%s: %+v, %v", want.Name, off, err)
		}
		both := mig.FullGPUs{Switch: true, Reset: true}
		was, is := on[0].Managed(both).Model, off[0].Managed(both).Model
		for i, p := range was.Profiles {
			q := is.Profiles[i]
			if p.Name != q.Name || p.ID != q.ID || p.Size != q.Size || !slices.Equal(p.Starts, q.Starts) {
				t.Errorf("%s: profile %+v with MIG mode on and %+v with MIG mode off", want.Name, p, q)
			}
		}
	}
}

// TestManaged checks which profiles a GPU has for each value of whole_gpus.
func TestManaged(t *testing.T) {
	model, err := mig.ModelByName("H100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text         string
		index        int
		reset        bool
		slices, full bool
	}{
		{"never", 0, false, true, false},
		{"auto", 0, false, true, true},
		{"auto", 0, true, true, false},
		{"reset", 0, true, true, true},
		{"1", 0, true, false, true},
		{"1", 1, false, true, false},
	} {
		w, err := mig.ParseFullGPUs(c.text)
		if err != nil {
			t.Fatal(err)
		}
		g := gpu.GPU{Index: c.index, Reset: c.reset, Model: model, MemoryMiB: 81920}.Managed(w)
		_, has := g.Model.ProfileIndex("1g.10gb")
		if has != c.slices || g.Model.Full() != 0 != c.full {
			t.Errorf("%s: GPU %d has slices: %v, full: %v", c.text, c.index, has, g.Model.Full() != 0)
		}
	}
	for _, text := range []string{"", "on", "-1", "1.5"} {
		if _, err := mig.ParseFullGPUs(text); err == nil {
			t.Errorf("%q is valid", text)
		}
	}
}
