package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"caelum/internal/config"
)

// TestReadOwners tests that readOwners detects changed modes of two files: a directory of the agent, and the library
// that caelum.yaml names.
func TestReadOwners(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this test needs root, because the agent's files belong to root")
	}
	dir := t.TempDir()
	jobs, library := filepath.Join(dir, "run", "jobs"), filepath.Join(dir, "libnvidia-ml.so.1")
	for _, err := range []error{os.MkdirAll(jobs, 0o755), os.Chmod(jobs, 0o700), os.WriteFile(library, nil, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p := Host{
		RunDir: filepath.Join(dir, "run"),
		Config: config.Config{
			StateDir:    dir + "/state",
			DeviceDir:   dir + "/dev",
			Repo:        dir + "/repo.db",
			NVMLLibrary: library,
		},
	}
	read := func() Files {
		f := &Facts{}
		f.readOwners(p)
		return f.Owners
	}
	if got := read(); len(got.Wrong) != 0 || len(got.Untrusted) != 0 {
		t.Errorf("readOwners reported files with the owners and modes that the agent sets: %+v", got)
	}
	if err := os.Chmod(jobs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(library, 0o666); err != nil {
		t.Fatal(err)
	}
	got := read()
	if want := (WrongFile{jobs, 0, 0o755, 0o700}); !slices.Contains(got.Wrong, want) || len(got.Wrong) != 1 {
		t.Errorf("jobs has mode 0755: got %+v, want only %+v", got.Wrong, want)
	}
	want := "couldn't use " + library + ": " + library + " is writable by group and others; chmod go-w " + library
	if !slices.Contains(got.Untrusted, want) {
		t.Errorf("all users can change the library: got %q, want %q", got.Untrusted, want)
	}
}

// TestWholeGPUsWithoutConstrainDevices tests that, on a host without a devices cgroup, wholeGPUs reports an unmanaged
// GPU that jobs can open, but not one that only root can open.
func TestWholeGPUsWithoutConstrainDevices(t *testing.T) {
	f := healthy()
	f.Config.Values["ConstrainDevices"] = "no"
	f.Unmanaged = []UnmanagedGPU{
		{Index: 0, Path: "/dev/nvidia0", Mode: 0o600}, {Index: 1, Path: "/dev/nvidia1", Mode: 0o666},
	}
	found := wholeGPUs(f)
	if len(found) != 1 ||
		!strings.HasPrefix(
			found[0].Text,
			"GPU 1 is not managed, and /dev/nvidia1 has mode 0666: jobs are not confined by a devices cgroup here",
		) {
		t.Errorf("%+v", found)
	}
}
