package jobcgroup_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"caelum/internal/node/jobcgroup"
)

// TestController checks the controller for each mode of the driver. Where the kernel does not have the controller, the
// error must name it.
func TestController(t *testing.T) {
	root := mount(t, "cgroup2", "rw")
	text, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	kernel := strings.Fields(string(text))
	automatic := "misc"
	if slices.Contains(kernel, "dmem") {
		automatic = "dmem"
	}
	for params, want := range map[string]string{
		"":                                   automatic,
		`RegistryDwords: ""`:                 automatic,
		`RegistryDwords: "RmMemacctMode=3;"`: automatic,
		`RegistryDwords: "RmMemacctMode=1"`:  "misc",
		`RegistryDwords: "A=1; rmmemacctmode = 0x1 ;B=2"`:           "misc",
		`RegistryDwords: "RmMemacctMode=2"`:                         "dmem",
		`RegistryDwords: "RmMemacctController=hugetlb"`:             "hugetlb",
		`RegistryDwords: "RmMemacctMode=3;RmMemacctController=no"`:  "no",
		"RegistryDwordsPerDevice: \"RmMemacctMode=0\"\n":            automatic,
		"RegistryDwords: \"RmMemacctMode=0;RmMemacctMode=1\"\nA: 1": "misc",
		`RegistryDwords: "RmMemacctMode=0"`:                         "",
		`RegistryDwords: "RmMemacctMode=0;RmMemacctController=no"`:  "",
	} {
		name, err := jobcgroup.Controller(root, procWith(t, params))
		switch {
		case want == "":
			if err == nil || !strings.Contains(err.Error(), "RmMemacctMode=0") {
				t.Errorf("%s: %q, %v", params, name, err)
			}
		case slices.Contains(kernel, want):
			if err != nil || name != want {
				t.Errorf("%s: %q, %v, want %q", params, name, err, want)
			}
		case err == nil || !strings.Contains(err.Error(), "the controller "+want+","):
			t.Errorf("%s: %q, %v, want an error with %q", params, name, err, want)
		}
	}
	if _, err := jobcgroup.Controller(root, t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a driver: %v", err)
	}
}

// procWith returns a directory with the driver's parameters.
func procWith(t *testing.T, params string) string {
	t.Helper()
	proc := t.TempDir()
	path := filepath.Join(proc, "driver/nvidia/params")
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(params), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return proc
}

// TestVersion1 checks that a hierarchy of cgroup v1 is refused.
func TestVersion1(t *testing.T) {
	for _, root := range []string{t.TempDir(), mount(t, "cgroup", "none,name=caelum-test")} {
		_, err := jobcgroup.Controller(root, procWith(t, ""))
		_, err2 := jobcgroup.Open(jobcgroup.Options{Mountpoint: root, Controller: controller})
		for _, err := range []error{err, err2} {
			if err == nil || !strings.Contains(err.Error(), root+" is not cgroup v2") {
				t.Errorf("%s: %v", root, err)
			}
		}
	}
}
