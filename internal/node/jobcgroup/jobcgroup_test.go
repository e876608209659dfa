package jobcgroup_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"caelum/internal/node/gpu/gputest"
	"caelum/internal/node/jobcgroup"
)

// controller is a controller of the tests' kernels. Few kernels have misc and dmem.
const controller = "hugetlb"

// mount mounts a file system on a new directory and returns its path. It skips the test if this is not possible.
func mount(t *testing.T, kind, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", kind, "-o", options, kind, dir).CombinedOutput(); err != nil {
		t.Skipf("couldn't mount %s: %s", kind, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// mkdir creates a directory.
func mkdir(t *testing.T, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// rmdir removes a cgroup and those below it.
func rmdir(t *testing.T, root string) {
	t.Helper()
	var dirs []string
	filepath.WalkDir(root, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		if err := unix.Rmdir(dir); err != nil {
			t.Errorf("rmdir %s: %v", dir, err)
		}
	}
}

// newTree creates a slice with the given scopes in the machine's cgroup v2 hierarchy. It returns the tree, and the path
// of the slice. The tests leave the controller enabled at the root, because other tests may use it at the same time.
func newTree(t *testing.T, scopes ...string) (*jobcgroup.Tree, string) {
	t.Helper()
	root := mount(t, "cgroup2", "rw")
	control := filepath.Join(root, "cgroup.subtree_control")
	slice, err := os.MkdirTemp(root, "caelum-test.")
	if err != nil || os.WriteFile(control, []byte("+"+controller), 0) != nil {
		os.Remove(slice)
		t.Skip("needs the root of a cgroup v2 hierarchy with the controller " + controller)
	}
	t.Cleanup(func() { rmdir(t, slice) })
	for _, name := range scopes {
		mkdir(t, slice, name)
	}
	tree, err := jobcgroup.Open(jobcgroup.Options{
		Mountpoint: root, Slice: filepath.Base(slice), Node: "n1", Controller: controller,
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree, slice
}

// enter starts a process in a cgroup and returns a function that ends it.
func enter(t *testing.T, cgroup string) (end func()) {
	t.Helper()
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("sleep", "3600")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(end)
	return end
}

// control writes to a cgroup's cgroup.subtree_control.
func control(t *testing.T, cgroup, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.subtree_control"), []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// makeGroup creates the cgroup of a job and checks it.
func makeGroup(t *testing.T, tree *jobcgroup.Tree, name string) jobcgroup.Group {
	t.Helper()
	g, err := tree.Make(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Check(g); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestMake checks the directories that Make creates, also if the cgroup exists already.
func TestMake(t *testing.T) {
	tree, slice := newTree(t, "slurmstepd.scope")
	mask := unix.Umask(0o077)
	defer unix.Umask(mask)
	g := makeGroup(t, tree, "job_7")
	if want := filepath.Join(slice, "slurmstepd.scope", "job_7"); g.Path != want {
		t.Errorf("the path is %s, want %s", g.Path, want)
	}
	for path, mode := range map[string]fs.FileMode{g.Path: 0o755, filepath.Join(g.Path, "caelum"): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode() != fs.ModeDir|mode {
			t.Errorf("%v, %v, want mode %v", info, err, mode)
		}
	}
	if files, err := filepath.Glob(filepath.Join(g.Path, controller+".*")); err != nil || len(files) == 0 {
		t.Errorf("the controller's files: %v, %v", files, err)
	}
	mkdir(t, g.Path, "step_0")
	if again := makeGroup(t, tree, "job_7"); again != g {
		t.Errorf("the second call returned %+v, want %+v", again, g)
	}
	slurms := mkdir(t, slice, "slurmstepd.scope", "sA1B2C3")
	if g := makeGroup(t, tree, "sA1B2C3"); g.Path != slurms {
		t.Errorf("the path is %s, want %s", g.Path, slurms)
	}
}

// TestLife follows a cgroup from Make to Remove, while Slurm uses it.
func TestLife(t *testing.T) {
	tree, _ := newTree(t, "slurmstepd.scope")
	g := makeGroup(t, tree, "job_7")
	if err := unix.Mkdir(g.Path, 0o755); err != unix.EEXIST {
		t.Errorf("Slurm's mkdir returned %v", err)
	}
	if err := unix.Rmdir(g.Path); err != unix.EBUSY && err != unix.ENOTEMPTY {
		t.Errorf("Slurm's rmdir returned %v", err)
	}
	empty := func(want bool) {
		t.Helper()
		if got, err := tree.Empty(g); err != nil || got != want {
			t.Errorf("empty: %v, %v, want %v", got, err, want)
		}
	}
	empty(true)
	step := mkdir(t, g.Path, "step_0")
	end := enter(t, step)
	empty(false)
	endOther := enter(t, step)
	if one, two := tree.Processes(g, 1), tree.Processes(g, 5); len(one) != 1 || len(two) != 2 || two[0] <= 1 {
		t.Errorf("processes: %v, %v", one, two)
	}
	endOther()
	if err := tree.Remove(g); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Remove with a process: %v", err)
	}
	makeGroup(t, tree, "job_7") // the agent's next attempt at the same lease
	end()
	empty(true)
	rmdir(t, step)
	for range 2 {
		if err := tree.Remove(g); err != nil {
			t.Errorf("Remove: %v", err)
		}
		empty(true)
	}
	if _, err := os.Stat(g.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cgroup is still there: %v", err)
	}
	if err := tree.Check(g); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("Check: %v", err)
	}
}

// TestReplaced replaces a job's cgroup by another with the same name.
func TestReplaced(t *testing.T) {
	tree, _ := newTree(t, "slurmstepd.scope")
	g := makeGroup(t, tree, "job_7")
	rmdir(t, g.Path)
	enter(t, mkdir(t, g.Path))
	if made, err := tree.Made(); len(made) > 0 || err != nil {
		t.Errorf("made: %v, %v", made, err)
	}
	if found, ok := tree.Find(inode(t, g.Path)); !ok || found.Path != g.Path {
		t.Errorf("Find: %+v, %v", found, ok)
	}
	if err := tree.Check(g); err == nil || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("Check: %v", err)
	}
	if empty, err := tree.Empty(g); err != nil || !empty {
		t.Errorf("Empty: %v, %v", empty, err)
	}
	mkdir(t, g.Path, "caelum")
	if err := tree.Remove(g); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if _, err := os.Stat(filepath.Join(g.Path, "caelum")); err != nil {
		t.Errorf("Remove changed the other cgroup: %v", err)
	}
	link := filepath.Join(t.TempDir(), "job_7")
	if err := os.Symlink(g.Path, link); err != nil {
		t.Fatal(err)
	}
	if err := tree.Check(jobcgroup.Group{Path: link, Inode: inode(t, link)}); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("Check of a symbolic link: %v", err)
	}
}

// inode returns the inode number of the file to which a path leads.
func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// TestControllerDisabled disables the controller, as systemd may.
func TestControllerDisabled(t *testing.T) {
	tree, slice := newTree(t, "slurmstepd.scope")
	g := makeGroup(t, tree, "job_7")
	enter(t, mkdir(t, g.Path, "step_0"))
	control(t, filepath.Join(slice, "slurmstepd.scope"), "-"+controller)
	control(t, slice, "-"+controller)
	if err := tree.Check(g); err == nil || !strings.Contains(err.Error(), "disabled the controller "+controller) {
		t.Errorf("Check: %v", err)
	}
	if again := makeGroup(t, tree, "job_7"); again != g {
		t.Errorf("Make returned %+v, want %+v", again, g)
	}
}

// TestDisable checks that Disable undoes what Make does to the controllers, except while a cgroup needs them.
func TestDisable(t *testing.T) {
	tree, slice := newTree(t, "slurmstepd.scope")
	scope := filepath.Join(slice, "slurmstepd.scope")
	without := func(want ...string) []string {
		t.Helper()
		dirs, err := tree.Without()
		if err != nil || !slices.Equal(dirs, want) {
			t.Errorf("without the controller: %q, %v, want %q", dirs, err, want)
		}
		return dirs
	}
	dirs := without(slice, scope)
	g := makeGroup(t, tree, "job_7")
	without()
	disable := func() {
		t.Helper()
		if err := tree.Disable(dirs); err != nil {
			t.Error(err)
		}
	}
	control(t, g.Path, "+"+controller)
	disable()
	without()
	control(t, g.Path, "-"+controller)
	disable()
	without(slice, scope)
	if err := tree.Remove(g); err != nil {
		t.Error(err)
	}
	disable()
}

// TestProcessInScope checks that Make explains why the kernel refuses to enable the controller.
func TestProcessInScope(t *testing.T) {
	tree, slice := newTree(t, "slurmstepd.scope")
	scope := filepath.Join(slice, "slurmstepd.scope")
	enter(t, scope)
	_, err := tree.Make("job_7")
	if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), scope) {
		t.Errorf("Make: %v", err)
	}
	if _, err := os.Stat(filepath.Join(scope, "job_7")); err == nil {
		t.Error("the job's cgroup exists after an error")
	}
}

// TestScopes checks which scope Make uses.
func TestScopes(t *testing.T) {
	tree, slice := newTree(t)
	_, err := tree.Make("job_7")
	if err == nil || !strings.Contains(err.Error(), "couldn't find slurmstepd.scope in "+slice) {
		t.Errorf("without a scope: %v", err)
	}
	for _, name := range []string{"slurmstepd.scope", "n1_slurmstepd.scope"} {
		path := mkdir(t, slice, name)
		if g := makeGroup(t, tree, "job_7"); filepath.Dir(g.Path) != path {
			t.Errorf("the path is %s, want one in %s", g.Path, path)
		}
	}
}

// TestWithoutController checks that a tree without a controller enables none.
func TestWithoutController(t *testing.T) {
	root := mount(t, "cgroup2", "rw")
	slice, err := os.MkdirTemp(root, "caelum-test.")
	if err != nil {
		t.Skip("needs a cgroup v2 hierarchy")
	}
	t.Cleanup(func() { rmdir(t, slice) })
	mkdir(t, slice, "slurmstepd.scope")
	tree, err := jobcgroup.Open(jobcgroup.Options{Mountpoint: root, Slice: filepath.Base(slice), Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	g := makeGroup(t, tree, "job_7")
	enabled, err := os.ReadFile(filepath.Join(slice, "cgroup.subtree_control"))
	if err = errors.Join(err, tree.Check(g), tree.Remove(g)); err != nil || strings.TrimSpace(string(enabled)) != "" {
		t.Errorf("enabled: %q, %v", enabled, err)
	}
}

// TestConcurrentSlurm creates and removes a job's cgroup while Slurm does the same.
func TestConcurrentSlurm(t *testing.T) {
	tree, slice := newTree(t, "slurmstepd.scope")
	path := filepath.Join(slice, "slurmstepd.scope", "job_7")
	stop, stopped := make(chan bool), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := unix.Mkdir(path, 0o755); err != nil && err != unix.EEXIST {
				t.Errorf("Slurm's mkdir: %v", err)
			}
			if err := unix.Rmdir(path); err != nil && err != unix.ENOENT && err != unix.EBUSY {
				t.Errorf("Slurm's rmdir: %v", err)
			}
		}
	}()
	for i := range 200 {
		g, err := tree.Make("job_7")
		if err == nil {
			err = errors.Join(tree.Check(g), tree.Remove(g))
		}
		if err != nil {
			t.Errorf("try %d: %v", i, err)
			break
		}
	}
	close(stop)
	<-stopped
}

// TestNames checks that Make uses no directory outside the scope.
func TestNames(t *testing.T) {
	tree, slice := newTree(t, "slurmstepd.scope")
	for _, name := range []string{"", ".", "..", "../job_7", "job_7/step_0", "/job_7", "job_7\n", "job 7",
		"job_7\x00", "cgroup.procs", "job_" + strings.Repeat("7", 100)} {
		if g, err := tree.Make(name); err == nil {
			t.Errorf("Make(%q) = %+v", name, g)
		}
	}
	root := filepath.Dir(slice)
	for _, o := range []jobcgroup.Options{
		{Mountpoint: root, Slice: "../system.slice"},
		{Mountpoint: root, Slice: "/system.slice"},
		{Mountpoint: "cgroup"},
		{Mountpoint: root, Controller: "none"},
		{Mountpoint: root + "/missing"},
	} {
		if o.Controller == "" {
			o.Controller = controller
		}
		if _, err := jobcgroup.Open(o); err == nil || !strings.Contains(err.Error(), "; ") {
			t.Errorf("Open(%+v) returned the error %v", o, err)
		}
	}
}

func TestHas(t *testing.T) {
	tree, slice := newTree(t, "slurmstepd.scope")
	g := makeGroup(t, tree, "job_7")
	own := "/" + filepath.Base(slice) + "/slurmstepd.scope/job_7"
	for path, want := range map[string]bool{
		own: true, own + "/step_0/user/task_0": true, own + "1": false, own + "1/step_0": false, "/": false, "": false,
		"/user.slice" + own: false, filepath.Dir(own): false,
	} {
		if got := tree.Has(g, []string{"/init.scope", path}); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
	if tree.Has(g, nil) || tree.Has(jobcgroup.Group{}, []string{"", "/"}) {
		t.Error("a group without paths has processes")
	}
	end := enter(t, mkdir(t, g.Path, "step_0"))
	defer end()
	pids, err := os.ReadFile(filepath.Join(g.Path, "step_0", "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%s/cgroup", strings.TrimSpace(string(pids))))
	if err != nil {
		t.Fatal(err)
	}
	_, path, _ := strings.Cut("\n"+string(text), "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	if !tree.Has(g, []string{path}) {
		t.Errorf("a process in %s is not in %s", path, g.Path)
	}
}

// TestFake checks that gputest.FakeGroups behaves like a Tree.
func TestFake(t *testing.T) {
	tree, _ := newTree(t, "slurmstepd.scope")
	fake := new(gputest.FakeGroups)
	for _, c := range []struct {
		name  string
		tree  groups
		enter func(jobcgroup.Group) (leave func())
	}{
		{"Tree", tree, func(g jobcgroup.Group) func() {
			step := mkdir(t, g.Path, "step_0")
			end := enter(t, step)
			return func() { end(); rmdir(t, step) }
		}},
		{"FakeGroups", fake, func(g jobcgroup.Group) func() {
			fake.Enter(g, true)
			return func() { fake.Enter(g, false) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) { testGroups(t, c.tree, c.enter) })
	}
}

// groups has the methods of a Tree.
type groups interface {
	Make(name string) (jobcgroup.Group, error)
	Check(g jobcgroup.Group) error
	Empty(g jobcgroup.Group) (bool, error)
	Remove(g jobcgroup.Group) error
	Has(g jobcgroup.Group, paths []string) bool
	Find(number uint64) (jobcgroup.Group, bool)
}

func testGroups(t *testing.T, tree groups, enter func(jobcgroup.Group) (leave func())) {
	g, err := tree.Make("job_7")
	again, err2 := tree.Make("job_7")
	if err != nil || err2 != nil || g.Inode == 0 || again != g {
		t.Fatalf("%+v, %v, then %+v, %v", g, err, again, err2)
	}
	state := func(when string, exists, empty bool) {
		t.Helper()
		err := tree.Check(g)
		if got, err2 := tree.Empty(g); err2 != nil || got != empty || (err == nil) != exists {
			t.Errorf("%s: exists: %v, empty: %v, %v", when, err, got, err2)
		}
	}
	state("after Make", true, true)
	if found, ok := tree.Find(g.Inode); !ok || found != g {
		t.Errorf("Find: %+v, %v", found, ok)
	}
	leave := enter(g)
	state("with a process", true, false)
	if tree.Remove(g) == nil {
		t.Error("Remove returned no error")
	}
	state("after a failed Remove", true, false)
	leave()
	state("without processes", true, true)
	if err := errors.Join(tree.Remove(g), tree.Remove(g)); err != nil {
		t.Error(err)
	}
	state("after Remove", false, true)
	if found, ok := tree.Find(g.Inode); ok {
		t.Errorf("Find: %+v", found)
	}
	if next, err := tree.Make("job_7"); err != nil || next.Path != g.Path || next.Inode == g.Inode {
		t.Errorf("the next cgroup is %+v, %v", next, err)
	}
	state("after the next Make", false, true)
	if tree.Has(g, []string{"/", "/other"}) {
		t.Error("another cgroup belongs to the group")
	}
}
