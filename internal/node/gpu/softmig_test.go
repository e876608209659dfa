package gpu_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"caelum/internal/node/gpu"
	"caelum/internal/node/jobcgroup"
)

const (
	scope = "/sys/fs/cgroup/system.slice/slurmstepd.scope/"
	gib   = uint64(1) << 30
)

// atUmask077 sets the umask of the agent's unit during a test.
func atUmask077(t *testing.T) {
	old := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(old) })
}

// TestSoftMig sets, changes and removes limits.
func TestSoftMig(t *testing.T) {
	atUmask077(t)
	s := gpu.SoftMig{Dir: filepath.Join(t.TempDir(), "softmig")}
	check := func(want uint64) {
		t.Helper()
		if got, used, err := s.Limit(0, scope+"job_71"); got != want || used != 0 || err != nil {
			t.Errorf("the limit is %d, %d in use, %v, want %d", got, used, err, want)
		}
	}
	check(gpu.NoLimit)
	for _, bytes := range []uint64{11389 << 20, 22778 << 20, gpu.NoLimit, gpu.NoLimit, gib} {
		if err := s.SetLimit(0, scope+"job_71", bytes); err != nil {
			t.Fatal(err)
		}
		check(bytes)
	}
	path := filepath.Join(s.Dir, "71.conf")
	text, err := os.ReadFile(path)
	if string(text) != "CUDA_DEVICE_MEMORY_LIMIT=1024M\n# written by caelumd\n" {
		t.Errorf("%q, %v", text, err)
	}
	for path, want := range map[string]os.FileMode{s.Dir: os.ModeDir | 0o755, path: 0o644} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info, err, want)
		}
	}
	if got, _, err := s.Limit(0, scope+"job_7"); got != gpu.NoLimit || err != nil {
		t.Errorf("the limit of another job is %d, %v", got, err)
	}
	if files, _ := os.ReadDir(s.Dir); len(files) != 1 {
		t.Errorf("%v", files)
	}
}

// TestSoftMigChanged checks that files which the library would refuse are no limits, and are replaced.
func TestSoftMigChanged(t *testing.T) {
	const good = "CUDA_DEVICE_MEMORY_LIMIT=1024M\n# written by caelumd\n"
	for name, spoil := range map[string]func(path, other string) error{
		"link":      func(path, other string) error { return os.Symlink(other, path) },
		"directory": func(path, _ string) error { return os.Mkdir(path, 0o755) },
		"fifo":      func(path, _ string) error { return unix.Mkfifo(path, 0o644) },
		"mode":      func(path, _ string) error { return os.WriteFile(path, []byte(good), 0o600) },
		"empty":     func(path, _ string) error { return os.WriteFile(path, nil, 0o644) },
		"text": func(path, _ string) error {
			return os.WriteFile(path, []byte("CUDA_DEVICE_MEMORY_LIMIT=x\n# written by caelumd\n"), 0o644)
		},
		"large": func(path, _ string) error {
			return os.WriteFile(path, []byte(strings.Repeat("#\n", 200)+good), 0o644)
		},
		"overflow": func(path, _ string) error {
			return os.WriteFile(path, []byte(strings.Replace(good, "1024", "17592186044416", 1)), 0o644)
		},
	} {
		s := gpu.SoftMig{Dir: t.TempDir()}
		path, other := filepath.Join(s.Dir, "71.conf"), filepath.Join(t.TempDir(), "other")
		if err := os.WriteFile(other, []byte(good), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := spoil(path, other); err != nil {
			t.Fatal(err)
		}
		if got, _, err := s.Limit(0, scope+"job_71"); got != gpu.NoLimit || err != nil {
			t.Errorf("%s: the limit is %d, %v", name, got, err)
		}
		err := s.SetLimit(0, scope+"job_71", 2*gib)
		if name == "directory" {
			if err == nil || !strings.Contains(err.Error(), "couldn't write SoftMig's memory limit") {
				t.Errorf("%s: %v", name, err)
			}
		} else if got, _, err2 := s.Limit(0, scope+"job_71"); err != nil || err2 != nil || got != 2*gib {
			t.Errorf("%s: the limit is %d, %v, %v", name, got, err, err2)
		}
		if text, _ := os.ReadFile(other); string(text) != good {
			t.Errorf("%s: the other file has been changed: %q", name, text)
		}
		if left, _ := filepath.Glob(filepath.Join(s.Dir, ".*")); len(left) > 0 {
			t.Errorf("%s: %v", name, left)
		}
	}
}

// TestSoftMigNames checks cgroups whose names do not contain the job's ID.
func TestSoftMigNames(t *testing.T) {
	s := gpu.SoftMig{Dir: t.TempDir()}
	for _, name := range []string{"s3EVJ5A7QCC0F", "job_", "job_7x", "job_-7", "xjob_7", "job_70000000000", ""} {
		err := s.SetLimit(0, scope+name, gib)
		if err == nil || !strings.Contains(err.Error(), "set CgroupJobIdPaths=yes") {
			t.Errorf("%q: %v", name, err)
		}
		if err := s.SetLimit(0, scope+name, gpu.NoLimit); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if got, _, err := s.Limit(0, scope+name); got != gpu.NoLimit || err != nil {
			t.Errorf("%q: the limit is %d, %v", name, got, err)
		}
	}
}

// TestSoftMigDirectory checks that all users can read the directory, and that it cannot be another one.
func TestSoftMigDirectory(t *testing.T) {
	atUmask077(t)
	private, other := t.TempDir(), t.TempDir()
	link := filepath.Join(t.TempDir(), "softmig")
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		private:                "",
		link:                   "is not a directory",
		other + "/missing/dir": "no such file or directory; compare caelumd.service",
	} {
		err := gpu.SoftMig{Dir: dir}.SetLimit(0, scope+"job_71", gib)
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
	if info, err := os.Stat(private); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if files, _ := os.ReadDir(other); len(files) > 0 {
		t.Errorf("%v", files)
	}
}

// TestSoftMigRemoveOthers checks that only files which an agent wrote for ended jobs are removed.
func TestSoftMigRemoveOthers(t *testing.T) {
	s := gpu.SoftMig{Dir: t.TempDir()}
	for _, job := range []string{"job_1", "job_2", "job_22"} {
		if err := s.SetLimit(0, scope+job, gib); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"3.conf", "4_1.conf", ".new-1", "notes"} {
		text := []byte("CUDA_DEVICE_MEMORY_LIMIT=12G\nCUDA_DEVICE_SM_LIMIT=25\n")
		if err := os.WriteFile(filepath.Join(s.Dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.RemoveOthers([]jobcgroup.Group{{Path: scope + "job_2"}, {Path: scope + "s3EVJ"}}); err != nil {
		t.Error(err)
	}
	var names []string
	files, _ := os.ReadDir(s.Dir)
	for _, f := range files {
		names = append(names, f.Name())
	}
	if got := fmt.Sprint(names); got != "[2.conf 3.conf 4_1.conf notes]" {
		t.Error(got)
	}
	if err := (gpu.SoftMig{Dir: s.Dir + "/missing"}).RemoveOthers(nil); err != nil {
		t.Error(err)
	}
}

// TestSoftMigPreload checks that memory is not limited without the library.
func TestSoftMigPreload(t *testing.T) {
	dir := t.TempDir()
	library, preload := filepath.Join(dir, "libsoftmig.so"), filepath.Join(dir, "ld.so.preload")
	if err := os.WriteFile(library, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const none, unusable = "does not name SoftMig's library", "names a library that cannot be used"
	cases := map[string]string{
		"":                                       none,
		"/lib/libother.so\n":                     none,
		"# " + library + "\n":                    none,
		dir + "/softmig/other.so":                none,
		library:                                  "",
		"/lib/a.so:" + library + " /lib/b.so\n":  "",
		"/lib/a.so # first\n\t" + library + "\n": "",
		strings.ToUpper(library):                 unusable,
		"/nowhere/libsoftmig.so\n":               unusable,
		"libsoftmig.so\n":                        unusable,
	}
	for _, text := range slices.Sorted(maps.Keys(cases)) {
		if err := os.WriteFile(preload, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, want := gpu.SoftMig{Preload: preload}.LimitsProblem(), cases[text]
		if (got == "") != (want == "") || !strings.Contains(got, want) || want != "" && !strings.Contains(got, "; ") {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if why := (gpu.SoftMig{Preload: dir + "/missing"}).LimitsProblem(); !strings.Contains(why, none) {
		t.Errorf("without the file: %q", why)
	}
}

// TestSoftMigGroups checks that SoftMig needs neither the driver's limits nor a cgroup controller.
func TestSoftMigGroups(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"libsoftmig.so", "preload"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(dir+"/libsoftmig.so\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// dir is not cgroup v2, and has no driver's files
	_, err := gpu.OpenJobGroups(gpu.SoftMig{Preload: dir + "/preload"}, jobcgroup.Options{Mountpoint: dir}, dir)
	if err == nil || !strings.Contains(err.Error(), dir+" is not cgroup v2") {
		t.Errorf("with SoftMig: %v", err)
	}
	_, err = gpu.OpenJobGroups(gpu.SoftMig{Preload: dir + "/missing"}, jobcgroup.Options{}, dir)
	if err == nil || !strings.Contains(err.Error(), "libsoftmig.so, and restart") {
		t.Errorf("without the library: %v", err)
	}
}
