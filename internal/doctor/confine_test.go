package doctor

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadConfinement(t *testing.T) {
	if c := readConfinement(t.TempDir()); c != (Confinement{}) {
		t.Errorf("an empty folder: %+v", c)
	}
	v1 := t.TempDir()
	if err := os.Mkdir(v1+"/devices", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(v1+"/devices/cgroup.procs", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if c := readConfinement(v1); c != (Confinement{Cgroup: 1}) {
		t.Errorf("a hierarchy of version 1: %+v", c)
	}
}

// A kernel that takes no BPF program at all says something else than one that lacks the question.
func TestTryDeviceProgram(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: only root may load BPF programs")
	}
	err := tryDeviceProgram()
	var u unix.Utsname
	unix.Uname(&u)
	t.Logf("kernel %s: %v", unix.ByteSliceToString(u.Release[:]), err)
	was := ancestor
	defer func() { ancestor = was }()
	ancestor = 1 << 20
	if err := tryDeviceProgram(); err == nil {
		t.Error("a program that calls what no kernel has was taken")
	}
}
