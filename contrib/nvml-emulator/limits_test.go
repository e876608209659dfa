package nvmlemulator_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const (
	mib     = 1 << 20
	noLimit = math.MaxUint64
)

// cgroupTest runs the subtests in a private mount namespace with cgroup v2 at /sys/fs/cgroup, in a second process.
func cgroupTest(t *testing.T, subtests map[string]func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, because only root may mount and create cgroups")
	}
	if os.Getenv("NVML_EMULATOR_TEST_CGROUPS") == "" {
		cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "NVML_EMULATOR_TEST_CGROUPS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		sources()
		out, err := cmd.CombinedOutput()
		switch {
		case err != nil:
			t.Fatalf("%v\n%s", err, out)
		case strings.Contains(string(out), "--- SKIP: "+t.Name()):
			t.Skipf("%s", out)
		}
		return
	}
	if err := syscall.Mount("cgroup2", cgroupRoot, "cgroup2", 0, ""); err != nil {
		t.Skipf("couldn't mount cgroup v2: %v", err)
	}
	if err := enable(cgroupRoot, "+hugetlb"); err != nil {
		t.Skipf("couldn't enable the controller: %v", err)
	}
	for name, f := range subtests {
		t.Run(name, f)
	}
}

const cgroupRoot = "/sys/fs/cgroup"

// enable changes the controllers of a cgroup's children.
func enable(cgroup, change string) error {
	return os.WriteFile(filepath.Join(cgroup, "cgroup.subtree_control"), []byte(change), 0)
}

// site is a machine with two L40S and Slurm's cgroups: the controller is enabled on the jobs, and not on their steps.
type site struct {
	*machine
	scope string // the parent of the jobs' cgroups
}

func newSite(t *testing.T, backend string) site {
	t.Helper()
	m := newMachine(t, "--board", "L40S-48GB", "--gpus", "2", "--memory-limits", backend)
	client := exec.Command("cc", "-o", filepath.Join(m.dir, "limits"), "testdata/limits.c", "-ldl")
	if out, err := client.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", client, err, out)
	}
	top := filepath.Join(cgroupRoot, fmt.Sprintf("nvml-emulator.%d", os.Getpid()))
	s := site{m, filepath.Join(top, "scope")}
	for _, dir := range []string{top, s.scope} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(dir) })
		if err := enable(dir, "+hugetlb"); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// job creates the cgroups of a job with two steps, and returns the job's.
func (s site) job(name string) string {
	s.Helper()
	job := filepath.Join(s.scope, name)
	for _, dir := range []string{job, filepath.Join(job, "step_0"), filepath.Join(job, "step_1")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { os.Remove(dir) })
	}
	return job
}

func (s site) remove(job string) {
	s.Helper()
	for _, dir := range []string{"step_0", "step_1", "."} {
		if err := os.Remove(filepath.Join(job, dir)); err != nil {
			s.Fatal(err)
		}
	}
}

// in lets a command run in a cgroup.
func (s site) in(cgroup string, cmd *exec.Cmd) *exec.Cmd {
	s.Helper()
	dir, err := os.Open(cgroup)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { dir.Close() })
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	return cmd
}

// use runs a cuda-process on GPU 0 in step 0 of a job to its end.
func (s site) use(job string, args ...string) (string, int) {
	s.Helper()
	return s.exit(s.in(filepath.Join(job, "step_0"), s.cuda("0", args...)))
}

// keep starts a cuda-process on GPU 0 in step 1 of a job, and returns when it uses the memory. The returned function
// ends it.
func (s site) keep(job string, memory int, args ...string) (cmd *exec.Cmd, end func()) {
	s.Helper()
	before, ret := s.device(0).GetMemoryInfo()
	s.want(ret, nvml.SUCCESS, "GetMemoryInfo")
	args = append(args, "--memory", fmt.Sprint(memory), "--seconds", "3600", "--print")
	cmd = s.in(filepath.Join(job, "step_1"), s.cuda("0", args...))
	s.running(cmd)
	for now := before; now.Used != before.Used+uint64(memory)*mib; {
		now, _ = s.device(0).GetMemoryInfo()
	}
	end = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	s.Cleanup(end)
	return cmd, end
}

// call runs testdata/limits.c in a cgroup, or outside all of them if cgroup is empty, and returns the return code and
// the other numbers that it prints.
func (s site) call(cgroup string, args ...any) (nvml.Return, []uint64) {
	s.Helper()
	words := []string{library()}
	for _, a := range args {
		words = append(words, fmt.Sprint(a))
	}
	cmd := exec.Command(filepath.Join(s.dir, "limits"), words...)
	if cgroup != "" {
		s.in(cgroup, cmd)
	}
	out, status := s.exit(cmd)
	var ret int
	var numbers []uint64
	for i, word := range strings.Fields(out) {
		var n uint64
		if _, err := fmt.Sscan(word, &n); err != nil {
			s.Fatalf("%v: %v\n%s", cmd, err, out)
		}
		if i == 0 {
			ret = int(n)
		} else {
			numbers = append(numbers, n)
		}
	}
	if status != 0 {
		s.Fatalf("%v: exit status %d\n%s", cmd, status, out)
	}
	return nvml.Return(ret), numbers
}

func (s site) set(cgroup string, bytes uint64, want nvml.Return) {
	s.Helper()
	ret, _ := s.call("", "set", 0, cgroup, 0, bytes)
	s.want(ret, want, fmt.Sprintf("set %s to %d bytes", cgroup, bytes))
}

func (s site) wantLimit(cgroup string, bytes, used uint64) {
	s.Helper()
	ret, got := s.call("", "get", 0, cgroup)
	s.want(ret, nvml.SUCCESS, "get "+cgroup)
	if got[0] != 0 || got[1] != bytes || got[2] != used {
		s.Errorf("limits of %s: %v, want 0, %d and %d", cgroup, got, bytes, used)
	}
}

func (s site) wantNone(cgroup string, want nvml.Return) {
	s.Helper()
	ret, _ := s.call("", "get", 0, cgroup)
	s.want(ret, want, "get "+cgroup)
}

// wantFits checks that a process of a job can use the memory, but not more.
func (s site) wantFits(job string, memory int) {
	s.Helper()
	if out, status := s.use(job, "--memory", fmt.Sprint(memory)); status != 0 {
		s.Errorf("%d MiB in %s: exit status %d\n%s", memory, job, status, out)
	}
	if out, status := s.use(job, "--memory", fmt.Sprint(memory+1)); status != 1 ||
		!strings.Contains(out, "CUDA out of memory") {
		s.Errorf("%d MiB in %s: exit status %d\n%s", memory+1, job, status, out)
	}
}

func TestMemoryLimits(t *testing.T) {
	cgroupTest(t, map[string]func(t *testing.T){
		"enforced by misc": func(t *testing.T) { limitIsEnforced(newSite(t, "misc")) },
		"enforced by dmem": func(t *testing.T) { limitIsEnforced(newSite(t, "dmem")) },
		"shared GPU":       limitsOnOneGPU, "misc": limitsOfMisc, "inherited": limitIsInherited,
		"dmem": limitsOfDmem, "not charged": memoryIsNotCharged, "refused": limitsAreRefused,
		"controller dropped": controllerIsDropped,
	})
}

// limitIsEnforced checks that the processes of all steps of a job share its limit, and see it as the GPU's memory.
func limitIsEnforced(s site) {
	job := s.job("job_1")
	s.set(job, 11389*mib, nvml.SUCCESS)
	s.wantFits(job, 11389)
	if out, status := s.use(job, "--print"); status != 0 || !strings.Contains(out, " memory_mib=11389\n") {
		s.Errorf("--print: exit status %d\n%s", status, out)
	}
	s.keep(job, 6000)
	s.wantFits(job, 5389)
	s.wantLimit(job, 11389*mib, 6000*mib)
	for cgroup, want := range map[string]uint64{job + "/step_0": 11389 * mib, "": 46068 * mib} {
		ret, got := s.call(cgroup, "memory", 0)
		if ret != nvml.SUCCESS || got[0] != want || got[1] != 6000*mib {
			s.Errorf("memory in %s: %v, %v, want %d", cgroup, ret, got, want)
		}
	}
	s.set(job, 22778*mib, nvml.SUCCESS) // a running job's limit can grow
	s.wantFits(job, 22778-6000)
	ooms := 0
	for _, e := range s.log() {
		if e.name == "process-oom" && e.at["gpu"] == "0" {
			ooms++
		}
	}
	if ooms != 3 {
		s.Errorf("%d process-oom events, want 3", ooms)
	}
}

// limitsOnOneGPU checks that NVML reports the memory of several jobs' processes on a GPU separately, and that the sum
// is at most the GPU's memory.
func limitsOnOneGPU(t *testing.T) {
	s := newSite(t, "misc")
	a, b := s.job("job_1"), s.job("job_2")
	s.set(a, noLimit, nvml.SUCCESS)
	s.set(b, 22778*mib, nvml.SUCCESS)
	one, _ := s.keep(a, 30000)
	two, _ := s.keep(b, 10000)
	procs, ret := s.device(0).GetComputeRunningProcesses()
	s.want(ret, nvml.SUCCESS, "GetComputeRunningProcesses")
	used := map[uint32]uint64{}
	for _, p := range procs {
		used[p.Pid] = p.UsedGpuMemory
	}
	if len(used) != 2 || used[uint32(one.Process.Pid)] != 30000*mib || used[uint32(two.Process.Pid)] != 10000*mib {
		t.Errorf("processes %+v", procs)
	}
	s.wantLimit(a, noLimit, 30000*mib)
	s.wantLimit(b, 22778*mib, 10000*mib)
	for _, job := range []string{a, b} {
		s.wantFits(job, 46068-40000)
	}
	if out, status := s.exit(s.in(b, s.cuda("1", "--memory", "46068"))); status != 0 {
		t.Errorf("the limit on GPU 0 applies to GPU 1: exit status %d\n%s", status, out)
	}
	s.check()
}

// limitsOfMisc checks that the nearest limit applies, and only if the cgroup has the controller.
func limitsOfMisc(t *testing.T) {
	s := newSite(t, "misc")
	job := s.job("job_1")
	s.wantNone(job, nvml.ERROR_NOT_SUPPORTED)
	s.set(job+"/step_0", 100*mib, nvml.SUCCESS)
	s.wantFits(job, 46068)
	s.wantLimit(job+"/step_0", 100*mib, 0)
	s.set(s.scope, 5000*mib, nvml.SUCCESS)
	s.wantFits(job, 5000)
	s.set(job, 11389*mib, nvml.SUCCESS)
	s.wantFits(job, 11389)
	s.keep(job, 8000)
	s.wantLimit(s.scope, 5000*mib, 0)
	s.set(job, 7999*mib, nvml.ERROR_INVALID_ARGUMENT)
	s.wantLimit(job, 11389*mib, 8000*mib)
	s.set(job, 8000*mib, nvml.SUCCESS)
	s.set(job, noLimit, nvml.SUCCESS)
	s.wantFits(job, 46068-8000)
}

// limitIsInherited checks that with misc, a limit outlives its cgroup.
func limitIsInherited(t *testing.T) {
	s := newSite(t, "misc")
	older, old := s.job("job_0"), s.job("job_1")
	s.set(old, 5000*mib, nvml.SUCCESS)
	s.remove(old)
	s.wantNone(older, nvml.ERROR_NOT_SUPPORTED)
	s.wantFits(older, 46068)
	for _, name := range []string{"job_1", "job_3"} {
		job := s.job(name)
		s.wantLimit(job, 5000*mib, 0)
		s.wantFits(job, 5000)
		s.remove(job)
	}
	job := s.job("job_4")
	s.set(job, noLimit, nvml.SUCCESS)
	s.wantFits(job, 46068)
	s.wantNone(s.job("job_5"), nvml.ERROR_NOT_SUPPORTED) // the only limit that was left is now job 4's
	s.remove(job)
	s.ctl("reboot")
	s.wantNone(s.job("job_6"), nvml.ERROR_NOT_SUPPORTED)
}

// limitsOfDmem checks that all limits upwards apply, that a process sees only that of the cgroup that is charged, and
// that a limit ends with its cgroup.
func limitsOfDmem(t *testing.T) {
	s := newSite(t, "dmem")
	job := s.job("job_1")
	s.wantNone(job, nvml.ERROR_NOT_FOUND)
	s.set(job+"/step_0", 100*mib, nvml.ERROR_NOT_FOUND)
	s.set(s.scope, 5000*mib, nvml.SUCCESS)
	s.wantFits(job, 5000)
	if _, got := s.call(job, "memory", 0); got[0] != 46068*mib {
		t.Errorf("with a limit of the parent, a process sees %d MiB", got[0]/mib)
	}
	s.set(job, 11389*mib, nvml.SUCCESS)
	s.wantFits(job, 5000)
	s.wantLimit(job+"/step_0", 11389*mib, 0) // without the controller, the nearest cgroup with it is read
	_, end := s.keep(job, 3000)
	s.wantLimit(s.scope, 5000*mib, 3000*mib)
	s.set(job, 1000*mib, nvml.SUCCESS)
	if _, status := s.use(job, "--memory", "1"); status != 1 {
		t.Error("a process got memory above the lowered limit")
	}
	end()
	s.remove(job)
	s.wantNone(s.job("job_1"), nvml.ERROR_NOT_FOUND)
}

// memoryIsNotCharged checks memory that evades the limit. Managed memory leaves the GPU if other processes need it.
func memoryIsNotCharged(t *testing.T) {
	s := newSite(t, "misc")
	job, other := s.job("job_1"), s.job("job_2")
	s.set(job, 11389*mib, nvml.SUCCESS)
	_, end := s.keep(job, 20000, "--uncharged")
	s.wantLimit(job, 11389*mib, 0)
	s.wantFits(other, 46068-20000)
	end()
	s.keep(job, 40000, "--managed")
	s.wantLimit(job, 11389*mib, 0)
	s.wantFits(job, 11389)
	s.wantFits(other, 46068)
	if out, status := s.use(job, "--managed", "--memory", "60000"); status != 0 {
		t.Errorf("more managed memory than the GPU has: exit status %d\n%s", status, out)
	}
}

// controllerIsDropped checks that a limit no longer applies if the controller is disabled on the cgroup.
func controllerIsDropped(t *testing.T) {
	s := newSite(t, "misc")
	job := s.job("job_1")
	s.set(job, 11389*mib, nvml.SUCCESS)
	if err := enable(s.scope, "-hugetlb"); err != nil {
		t.Fatal(err)
	}
	s.wantLimit(job, 11389*mib, 0)
	s.wantFits(job, 46068)
	s.ctl("limit", "0", s.scope, "100")
	s.wantFits(job, 100)
	shown := regexp.MustCompile(`"limits":\[\{"gpu":0,"inode":\d+,"mib":11389\},\{"gpu":0,"inode":\d+,"mib":100\}\]`)
	if show := s.ctl("show", "--json"); !shown.MatchString(show) {
		t.Errorf("show --json: %s", show)
	}
	s.ctl("limit", "0", s.scope, "none")
	s.wantFits(job, 46068)
}

// limitsAreRefused checks the errors of old drivers, other users, MIG mode and wrong arguments.
func limitsAreRefused(t *testing.T) {
	s := newSite(t, "misc")
	job := s.job("job_1")
	s.ctl("fault", "add", "--call", "SET_LIMITS", "--error", "UNKNOWN")
	s.set(job, mib, nvml.ERROR_UNKNOWN)
	s.set(job, 0, nvml.ERROR_INVALID_ARGUMENT)
	s.set(job+"/none", mib, nvml.ERROR_INVALID_ARGUMENT)
	s.set(s.dir, mib, nvml.ERROR_INVALID_ARGUMENT)
	ret, _ := s.call(job, "set", 0, job, mib, mib)
	s.want(ret, nvml.ERROR_NOT_SUPPORTED, "set a soft limit")
	user := asNobody(exec.Command(filepath.Join(s.dir, "limits"), library(), "set", "0", job, "0", fmt.Sprint(mib)))
	if out, _ := s.exit(user); out != fmt.Sprintln(int(nvml.ERROR_NO_PERMISSION)) {
		t.Errorf("set by a user: %s", out)
	}
	for _, c := range []struct {
		init []string
		want nvml.Return
	}{
		{[]string{"--board", "L40S-48GB"}, nvml.ERROR_FUNCTION_NOT_FOUND},
		{[]string{"--board", "L40S-48GB", "--driver-version", "615.71.09"}, nvml.ERROR_NOT_SUPPORTED},
		{[]string{"--board", "A100-40GB", "--memory-limits", "misc"}, nvml.ERROR_NOT_SUPPORTED},
	} {
		s.ctl(append([]string{"init", "--dev-root", "none"}, c.init...)...)
		s.set(job, mib, c.want)
		s.wantNone(job, c.want)
	}
	out, status := s.exit(s.command("nvml-emulator", "init", "--board", "L40S-48GB", "--driver-version", "610.43.02",
		"--memory-limits", "misc"))
	if status != 2 || !strings.Contains(out, "release 615") {
		t.Errorf("init: exit status %d\n%s", status, out)
	}
}

// TestDriverVersion checks the driver's version and parameters with and without memory limits.
func TestDriverVersion(t *testing.T) {
	for _, c := range []struct {
		init            []string
		version, dwords string
		cuda            int
	}{
		{nil, "595.45.04", "", 13010},
		{[]string{"--driver-version", "615.71.09"}, "615.71.09", "RmMemacctMode=0", 13040},
		{[]string{"--memory-limits", "misc"}, "615.71.09", "RmMemacctController=hugetlb", 13040},
		{[]string{"--memory-limits", "dmem", "--driver-version", "620.1"}, "620.1", "RmMemacctController=hugetlb",
			13040},
	} {
		t.Run(strings.Join(c.init, " "), func(t *testing.T) {
			proc := t.TempDir()
			m := newMachine(t, append(c.init, "--board", "L40S-48GB", "--proc-root", proc)...)
			version, _ := m.SystemGetDriverVersion()
			library, _ := m.SystemGetNVMLVersion()
			cuda, _ := m.SystemGetCudaDriverVersion()
			if version != c.version || library != "13."+c.version || cuda != c.cuda {
				t.Errorf("%v: driver %s, NVML %s, CUDA %d", c.init, version, library, cuda)
			}
			params, err := os.ReadFile(filepath.Join(proc, "driver/nvidia/params"))
			if err != nil || !strings.Contains(string(params), "\nRegistryDwords: \""+c.dwords+"\"\n") {
				t.Errorf("%v: params %q (%v)", c.init, params, err)
			}
		})
	}
}
