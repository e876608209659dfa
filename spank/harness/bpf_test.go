package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hangs limits how long bpf_check may run, so that the test fails if the plugin hangs.
const hangs = 20 * time.Second

// scope creates the v2 cgroups of a slurmstepd.scope with the given number of jobs, each with one step. It returns the
// path of the scope, or an empty string if the test may not write to a cgroup v2 hierarchy.
func scope(t *testing.T, jobs int) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var root string
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			root = f[1]
		}
	}
	path, err := os.MkdirTemp(root, "caelum-test.")
	if root == "" || err != nil {
		return ""
	}
	if err := os.Chmod(path, 0o755); err != nil { // Slurm creates the scope with this mode
		t.Fatal(err)
	}
	made := []string{path}
	for j := range jobs {
		job := filepath.Join(path, fmt.Sprint("job_", j))
		made = append(made, job, filepath.Join(job, "step_0"))
	}
	t.Cleanup(func() {
		for i := range made {
			if err := os.Remove(made[len(made)-1-i]); err != nil {
				t.Error(err)
			}
		}
	})
	for _, dir := range made[1:] {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// openStep opens the cgroup of a new step. It returns nil if the test cannot create cgroups.
func openStep(t *testing.T) *os.File {
	t.Helper()
	path := scope(t, 1)
	if path == "" {
		return nil
	}
	f, err := os.Open(filepath.Join(path, "job_0", "step_0"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// attrOf matches declarations of variables of the types union bpf_attr, which the kernel reads completely, and struct
// bpf_prog_info, which the kernel fills.
var attrOf = regexp.MustCompile(`(?m)^\s*(?:static )?(?:union bpf_attr|struct bpf_prog_info) \w+\s*[;=,].*`)

// TestAttributesCleared checks that each variable that attrOf matches is declared with CLEARED. An initializer of a
// union may not clear the bytes beyond the named member: gcc 15 does not, and the kernel then rejects the command with
// EINVAL. bpf_check is built such that uninitialized bytes are set to a pattern, so that the test detects uncleared
// bytes with every gcc.
func TestAttributesCleared(t *testing.T) {
	for _, path := range []string{"../bpf.c", "c/bpf_check.c"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range attrOf.FindAllString(string(text), -1) {
			t.Errorf("%s: %s: declare the variable with CLEARED", path, strings.TrimSpace(found))
		}
	}
}

// bpfScope creates a scope and returns its path. It skips the test if the machine does not allow BPF programs.
func bpfScope(t *testing.T, jobs int) string {
	t.Helper()
	program(t, "bpf_check")
	path := ""
	if os.Getuid() == 0 {
		path = scope(t, jobs)
	}
	if path == "" {
		t.Skip("needs root and cgroup v2")
	}
	got := bpfCheck(t, nil, "refuse", filepath.Join(path, "job_0", "step_0"), "1:9")
	if strings.Contains(got, "not permitted") {
		t.Skip(got)
	}
	if got != "ok" {
		t.Fatal(got)
	}
	return path
}

func bpfCheck(t *testing.T, cgroup *os.File, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, "bpf_check"), args...)
	if cgroup != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("bpf_check %q: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// checkAccess opens two devices as a user in every job. Each job must be able to open only its own device.
func checkAccess(t *testing.T, path string, jobs int) {
	t.Helper()
	if n := bpfCheck(t, nil, "programs", path); n != "1" {
		t.Errorf("%s programs are attached, want 1", n)
	}
	for j := range jobs {
		step, err := os.Open(filepath.Join(path, fmt.Sprint("job_", j), "step_0"))
		if err != nil {
			t.Fatal(err)
		}
		defer step.Close()
		got := bpfCheck(t, step, "open", "/dev/random") + ", " + bpfCheck(t, step, "open", "/dev/urandom")
		if want := []string{"ok, Operation not permitted", "Operation not permitted, ok"}[(j+1)%2]; got != want {
			t.Errorf("job %d opens random and urandom: %s, want %s", j, got, want)
		}
	}
}

// device returns the device that checkAccess assigns to a job.
func device(job int) string { return []string{"1:9", "1:8"}[job%2] }

// TestScopeLocked checks that the plugin does not wait for the scope's lock. Before the first task starts, every user
// can lock the scope; afterwards, this must not be possible.
func TestScopeLocked(t *testing.T) {
	path := bpfScope(t, 2)
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for j := range 2 {
		step := filepath.Join(path, fmt.Sprint("job_", j), "step_0")
		if got := bpfCheck(t, nil, "refuse", step, device(j)); got != "ok" {
			t.Errorf("job %d: %s", j, got)
		}
	}
	checkAccess(t, path, 2)
	if info, err := dir.Stat(); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("the scope's mode is %v, %v", info.Mode(), err)
	}
}

// TestFirstTasks checks tasks that start at the same time on a node without a program. All tasks must use the same
// program, and each job must be able to open its device. With -short, the test starts 4 tasks once instead of 12 tasks
// five times.
func TestFirstTasks(t *testing.T) {
	bpfScope(t, 1) // skips the test if the machine does not allow BPF programs
	jobs, rounds := 12, 5
	if testing.Short() {
		jobs, rounds = 4, 1
	}
	for range rounds {
		path := scope(t, jobs)
		var all sync.WaitGroup
		for j := range jobs {
			all.Go(func() {
				step := filepath.Join(path, fmt.Sprint("job_", j), "step_0")
				if got := bpfCheck(t, nil, "refuse", step, device(j)); got != "ok" {
					t.Errorf("job %d: %s", j, got)
				}
			})
		}
		all.Wait()
		checkAccess(t, path, jobs)
	}
}

// TestStrayProgram checks the case in which a task was killed after it had attached a second program, which denies
// every job its devices: the next task must remove this program.
func TestStrayProgram(t *testing.T) {
	path := bpfScope(t, 2)
	for range 3 {
		if got := bpfCheck(t, nil, "stray", path); got != "0" {
			t.Fatal(got)
		}
	}
	if n := bpfCheck(t, nil, "programs", path); n != "4" {
		t.Fatalf("%s programs are attached, want 4", n)
	}
	if got := bpfCheck(t, nil, "refuse", filepath.Join(path, "job_1", "step_0"), device(1)); got != "ok" {
		t.Error(got)
	}
	checkAccess(t, path, 2)
}
