package doctor

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadConfinement(t *testing.T) {
	if c := readConfinement(t.TempDir(), "", "n1"); c != (Confinement{}) {
		t.Errorf("an empty directory: got %+v, want no cgroups", c)
	}
	v1 := t.TempDir()
	if err := os.Mkdir(v1+"/devices", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(v1+"/devices/cgroup.procs", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if c := readConfinement(v1, "", "n1"); c != (Confinement{Cgroup: 1}) {
		t.Errorf("a hierarchy of version 1: got %+v, want version 1", c)
	}
}

// cgroup2 creates a v2 cgroup with the subdirectory below, and returns its path.
func cgroup2(t *testing.T, below string) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	root := ""
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			root = f[1]
		}
	}
	path, err := os.MkdirTemp(root, "caelum-test.")
	if root == "" || err != nil || os.Getuid() != 0 {
		t.Skip("this test needs root and cgroup v2")
	}
	if err := os.MkdirAll(filepath.Join(path, below), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for dir := filepath.Join(path, below); len(dir) >= len(path); dir = filepath.Dir(dir) {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
	})
	return path
}

// attach attaches a device BPF program with the given name, which allows every access, to a cgroup.
func attach(t *testing.T, cgroup, name string) {
	t.Helper()
	insn := [2]uint64{0x1_0000_00b7, unix.BPF_JMP | unix.BPF_EXIT} // r0 = 1
	var license [1]byte
	load := struct {
		kind, count     uint32
		insns, license  uint64
		_               [24]byte
		name            [16]byte
		_, expectedType uint32
	}{
		kind:    unix.BPF_PROG_TYPE_CGROUP_DEVICE,
		count:   uint32(len(insn)),
		insns:   address(&insn),
		license: address(&license),
	}
	copy(load.name[:], name)
	program, err := bpf(unix.BPF_PROG_LOAD, &load)
	runtime.KeepAlive(&insn)
	runtime.KeepAlive(&license)
	if err != nil {
		t.Skipf("this kernel does not support cgroup device BPF programs: %v", err)
	}
	defer unix.Close(program)
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	to := struct{ target, program, kind, flags uint32 }{
		uint32(dir.Fd()),
		uint32(program),
		unix.BPF_CGROUP_DEVICE,
		unix.BPF_F_ALLOW_MULTI,
	}
	if _, err := bpf(unix.BPF_PROG_ATTACH, &to); err != nil {
		t.Fatal(err)
	}
}

// TestReadScope tests that readScope considers only tasks and programs in the cgroup of this node's steps.
func TestReadScope(t *testing.T) {
	const none = "not known yet"
	const unconfined = "BPF program is not attached"
	for _, c := range []struct {
		name, below, program, says string
	}{
		{"slurmd has not started", "system.slice/other.scope", "", none},
		{"no job", "system.slice/slurmstepd.scope/system", "", none},
		{"a job without tasks", "system.slice/slurmstepd.scope/job_1/step_extern/user/task_special", "", none},
		{"tasks without a program", "system.slice/slurmstepd.scope/job_1/step_batch/user/task_0", "", unconfined},
		{
			"tasks and only Slurm's program",
			"system.slice/slurmstepd.scope/job_1/step_0/user/task_0",
			"Slurm_Cgroup_v2",
			unconfined,
		},
		{"tasks with the plugin's program", "system.slice/slurmstepd.scope/job_1/step_0/user/task_0", programName, ""},
		{"the plugin's program without tasks", "system.slice/n1_slurmstepd.scope/system", programName, ""},
		{"tasks in CgroupSlice", "slurm.slice/slurmstepd.scope/job_1/step_0/user/task_0", "", unconfined},
		{"another node's scope", "system.slice/n2_slurmstepd.scope/job_1/step_0/user/task_0", "", none},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := cgroup2(t, c.below)
			parts := strings.Split(c.below, "/")
			slice := "" // cgroup.conf has no CgroupSlice
			if parts[0] != "system.slice" {
				slice = parts[0]
			}
			if c.program != "" {
				attach(t, filepath.Join(path, parts[0], parts[1]), c.program)
			}
			f := healthy()
			f.Confinement = readConfinement(path, slice, "n1")
			found := isolation(f)
			if c.says == "" && len(found) > 0 ||
				c.says != "" && (len(found) != 1 || !strings.Contains(found[0].Text, c.says)) {
				t.Errorf("for %+v, isolation returned %+v, want %q", f.Confinement, found, c.says)
			}
		})
	}
}
