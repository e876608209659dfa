package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestCgroup parses the samples in testdata/cgroup.txt under the address and undefined-behaviour sanitizers.
func TestCgroup(t *testing.T) {
	program(t, "cgroup_check")
	datadriven.RunTest(t, "testdata/cgroup.txt", func(t *testing.T, d *datadriven.TestData) string {
		out, err := exec.Command(program(t, "cgroup_check"), d.Cmd, write(t, d.Input+"\n")).CombinedOutput()
		if err != nil {
			t.Errorf("cgroup_check %s: %v", d.Cmd, err)
		}
		return string(out)
	})
}

// TestJobCgroup checks the inode number of a real job's cgroup, from a process in the cgroup of the job's step.
func TestJobCgroup(t *testing.T) {
	program(t, "cgroup_check")
	if os.Getuid() != 0 {
		t.Skip("needs root to create cgroups")
	}
	step := openStep(t)
	if step == nil {
		t.Skip("needs cgroup v2")
	}
	defer step.Close()
	job := filepath.Dir(step.Name())
	inode := func(path string) uint64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	mountpoint := filepath.Dir(filepath.Dir(job))
	for _, c := range []struct {
		mountpoint string
		inode      uint64
		want       string
	}{
		{mountpoint, inode(job), "ok"},
		{mountpoint, inode(step.Name()), job + " has the inode number"},
		{mountpoint, inode(filepath.Dir(job)), job + " has the inode number"},
		{t.TempDir(), inode(job), "No such file or directory"},
	} {
		cmd := exec.Command(program(t, "cgroup_check"), "job", c.mountpoint, fmt.Sprint(c.inode))
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(step.Fd())}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s, inode %d: %q, %v, want %q", c.mountpoint, c.inode, out, err, c.want)
		}
	}
}
