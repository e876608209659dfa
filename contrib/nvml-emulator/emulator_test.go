package nvmlemulator_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// built is the directory that TestMain copies the emulator to.
var built string

func TestMain(m *testing.M) {
	if mode := os.Getenv("NVML_EMULATOR_TEST_HELPER"); mode != "" {
		os.Exit(helper(mode))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "nvml-emulator-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	// Users other than root run cuda-process from the directory of the build.
	if err := os.Chmod(dir, 0o755); err != nil {
		panic(err)
	}
	built = dir
	// The lock excludes other packages' tests, which also run this Makefile.
	steps := "flock . make -s B=../../build && cd ../../build && " +
		"cp libnvidia-ml.so.1 nvml-emulator nvidia-smi cuda-process " + dir
	if out, err := exec.Command("sh", "-c", steps).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n%s", steps, err, out)
		return 1
	}
	return m.Run()
}

// sources opens the build's source files, so that go test does not use a cached result after the C code has changed:
// its cache considers only files that the test itself opens, not those that make opens.
var sources = sync.OnceFunc(func() {
	names, err := filepath.Glob("src/*")
	if err != nil || len(names) == 0 {
		panic("no sources")
	}
	for _, name := range append(names, "Makefile", "../../internal/core/mig/models.txt") {
		if _, err := os.ReadFile(name); err != nil {
			panic(err)
		}
	}
})

func library() string { return filepath.Join(built, "libnvidia-ml.so.1") }

// machine is an emulated machine with its own state.
type machine struct {
	*testing.T
	nvml.Interface
	dir string
}

// newMachine runs `nvml-emulator init` with the arguments. The machine has device files only if --dev-root is one of
// them.
func newMachine(t *testing.T, init ...string) *machine {
	t.Helper()
	sources()
	if os.Geteuid() != 0 {
		t.Skip("needs root, because only root may change instances")
	}
	dir, err := os.MkdirTemp(built, "machine-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NVML_EMULATOR_STATE", filepath.Join(dir, "state"))
	m := &machine{T: t, dir: dir, Interface: nvml.New(nvml.WithLibraryPath(library()))}
	if !strings.Contains(strings.Join(init, " "), "--dev-root") {
		init = append(init, "--dev-root", "none")
	}
	m.ctl(append([]string{"init"}, init...)...)
	m.want(m.Init(), nvml.SUCCESS, "Init")
	t.Cleanup(func() { m.Shutdown() })
	return m
}

func (m *machine) want(got, want nvml.Return, what string) {
	m.Helper()
	if got != want {
		m.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func (m *machine) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(built, name), args...)
	cmd.Env = append(os.Environ(), "NVML_EMULATOR_STATE="+filepath.Join(m.dir, "state"))
	return cmd
}

// exit runs a program and returns its output and exit status. The status is -1 if a signal ended the program.
func (m *machine) exit(cmd *exec.Cmd) (string, int) {
	m.Helper()
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		m.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// ctl runs the control command, which must succeed.
func (m *machine) ctl(args ...string) string {
	m.Helper()
	out, status := m.exit(m.command("nvml-emulator", args...))
	if status != 0 {
		m.Fatalf("nvml-emulator %s: exit status %d, want 0\n%s", strings.Join(args, " "), status, out)
	}
	return out
}

// check runs `nvml-emulator check`, which must report no violation.
func (m *machine) check() {
	m.Helper()
	if out, status := m.exit(m.command("nvml-emulator", "check")); status != 0 {
		m.Fatalf("nvml-emulator check: exit status %d, want 0\n%s", status, out)
	}
}

func (m *machine) device(i int) nvml.Device {
	m.Helper()
	d, ret := m.DeviceGetHandleByIndex(i)
	m.want(ret, nvml.SUCCESS, "DeviceGetHandleByIndex")
	return d
}

// profile returns the profile that the device reports under the given name, for example 1g.5gb.
func (m *machine) profile(d nvml.Device, name string) nvml.GpuInstanceProfileInfo {
	m.Helper()
	for i := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		v2, ret := d.GetGpuInstanceProfileInfoV(i).V2()
		if ret != nvml.SUCCESS || text(v2.Name[:]) != "MIG "+name {
			continue
		}
		info, ret := d.GetGpuInstanceProfileInfo(i)
		m.want(ret, nvml.SUCCESS, "GetGpuInstanceProfileInfo")
		return info
	}
	m.Fatalf("the GPU has no profile %s", name)
	panic("unreachable")
}

func text(chars []int8) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

// place creates a GPU instance of the profile at the start.
func (m *machine) place(d nvml.Device, name string, start int) (nvml.GpuInstance, nvml.Return) {
	m.Helper()
	info := m.profile(d, name)
	places, ret := d.GetGpuInstancePossiblePlacements(&info)
	m.want(ret, nvml.SUCCESS, "GetGpuInstancePossiblePlacements")
	at := nvml.GpuInstancePlacement{Start: uint32(start), Size: places[0].Size}
	return d.CreateGpuInstanceWithPlacement(&info, &at)
}

// carve creates a GPU instance and a full-size compute instance. It returns both instances and the MIG UUID.
func (m *machine) carve(d nvml.Device, name string, start int) (nvml.GpuInstance, nvml.ComputeInstance, string) {
	m.Helper()
	gi, ret := m.place(d, name, start)
	m.want(ret, nvml.SUCCESS, "create "+name)
	ci, ret := m.fullCI(gi)
	m.want(ret, nvml.SUCCESS, "create compute instance of "+name)
	info, ret := gi.GetInfo()
	m.want(ret, nvml.SUCCESS, "GpuInstance.GetInfo")
	return gi, ci, m.uuidOf(d, int(info.Id))
}

func (m *machine) fullCI(gi nvml.GpuInstance) (nvml.ComputeInstance, nvml.Return) {
	m.Helper()
	var largest nvml.ComputeInstanceProfileInfo
	for i := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gi.GetComputeInstanceProfileInfo(i, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == nvml.SUCCESS && info.MultiprocessorCount > largest.MultiprocessorCount {
			largest = info
		}
	}
	return gi.CreateComputeInstance(&largest)
}

// uuidOf returns the UUID of the MIG device in a GPU instance.
func (m *machine) uuidOf(d nvml.Device, gi int) string {
	m.Helper()
	for _, mig := range m.migDevices(d) {
		if id, _ := mig.GetGpuInstanceId(); id == gi {
			uuid, ret := mig.GetUUID()
			m.want(ret, nvml.SUCCESS, "GetUUID")
			return uuid
		}
	}
	m.Fatalf("GPU instance %d has no MIG device", gi)
	panic("unreachable")
}

func (m *machine) migDevices(d nvml.Device) []nvml.Device {
	m.Helper()
	count, ret := d.GetMaxMigDeviceCount()
	m.want(ret, nvml.SUCCESS, "GetMaxMigDeviceCount")
	var devices []nvml.Device
	for i := range count {
		mig, ret := d.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND {
			continue
		}
		m.want(ret, nvml.SUCCESS, "GetMigDeviceHandleByIndex")
		devices = append(devices, mig)
	}
	return devices
}

// event is a line of the emulator's log.
type event struct {
	ns   int64
	name string
	at   map[string]string
}

func (m *machine) log() []event {
	m.Helper()
	var events []event
	lines := bufio.NewScanner(strings.NewReader(m.ctl("log")))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		e := event{name: words[1], at: map[string]string{}}
		if _, err := fmt.Sscan(words[0], &e.ns); err != nil {
			m.Fatalf("couldn't parse the log line %q: %v", lines.Text(), err)
		}
		for _, w := range words[2:] {
			key, value, ok := strings.Cut(w, "=")
			if !ok {
				m.Fatalf("couldn't parse the log line %q", lines.Text())
			}
			e.at[key] = value
		}
		events = append(events, e)
	}
	return events
}

// onThread runs f on a thread that ends afterwards, so that f can change the thread's credentials.
func (m *machine) onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // without an unlock, the thread ends with the goroutine
		f()
	}()
	<-done
}
