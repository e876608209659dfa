package jobcgroup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"caelum/internal/node/api"
)

// Group is the cgroup of a job. Package api has the type, because the plugin's Go object uses only the standard
// library.
type Group = api.Cgroup

// Options describe the node's cgroups.
type Options struct {
	// Mountpoint and Slice are the values of CgroupMountpoint and CgroupSlice in cgroup.conf. If one is empty, Slurm's
	// default applies.
	Mountpoint, Slice string
	// Node is the NodeName.
	Node string
	// Controller is the result of [Controller], or empty if the cgroups need no controller.
	Controller string
}

// Tree creates, checks and removes the cgroups of jobs. Its methods may be called concurrently, but only one call at a
// time may use a given group.
type Tree struct {
	o Options
}

// Open returns the tree of the node's cgroups. It does not require slurmd to have started. The error is the reason why
// jobs cannot have such cgroups, with a remedy.
func Open(o Options) (*Tree, error) {
	o.Mountpoint = filepath.Clean(cmp.Or(o.Mountpoint, defaultMountpoint))
	o.Slice = cmp.Or(o.Slice, "system.slice")
	if !filepath.IsAbs(o.Mountpoint) || !filepath.IsLocal(o.Slice) {
		return nil, fmt.Errorf("%s in %s is not a path of a cgroup; correct CgroupMountpoint and CgroupSlice in "+
			"cgroup.conf", o.Slice, o.Mountpoint)
	}
	if err := errors.Join(unified(o.Mountpoint), available(o.Mountpoint, o.Controller)); err != nil {
		return nil, err
	}
	return &Tree{o}, nil
}

// Child is the name of the cgroup that prevents the removal of a job's cgroup.
const Child = "caelum"

// jobName matches the names of jobs' cgroups: job_N, or the SLUID since Slurm 26.05.
var jobName = regexp.MustCompile(`^[0-9A-Za-z_]{1,64}$`)

// maxTries limits how often Make creates a directory that Slurm removes at the same time, because an earlier run of the
// job has just ended.
const maxTries = 100

// Make creates the cgroup of a job and its child, and enables the controller in it. It changes nothing that is already
// correct. name is job_N or the job's SLUID. If an error occurs, Make removes the cgroup, unless Slurm uses it.
func (t *Tree) Make(name string) (Group, error) {
	if !jobName.MatchString(name) {
		return Group{}, fmt.Errorf("couldn't create a job's cgroup: %.80q is not the name of a job's cgroup", name)
	}
	scope, err := t.scope()
	if err == nil {
		err = t.enable(scope)
	}
	if err != nil {
		return Group{}, err
	}
	g := Group{Path: filepath.Join(scope, name)}
	for range maxTries {
		err = makeDirectory(g.Path, 0o755) // as Slurm does
		if err == nil {
			err = makeDirectory(filepath.Join(g.Path, Child), 0o700)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err == nil {
		g.Inode, err = inode(g.Path) // from now on, Slurm cannot replace the directory
	}
	if err == nil {
		err = t.Check(g)
	}
	if err != nil {
		unix.Rmdir(filepath.Join(g.Path, Child))
		unix.Rmdir(g.Path)
		return Group{}, fmt.Errorf("couldn't create the job's cgroup: %w", err)
	}
	return g, nil
}

// scope returns the cgroup that contains the cgroups of all jobs. slurmd creates it when it starts. If several slurmd
// daemons can run on a host (--enable-multiple-slurmd), its name includes the node's name.
func (t *Tree) scope() (string, error) {
	slice := filepath.Join(t.o.Mountpoint, t.o.Slice)
	for _, name := range []string{t.o.Node + "_slurmstepd.scope", "slurmstepd.scope"} {
		path := filepath.Join(slice, name)
		if _, err := inode(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("couldn't find slurmstepd.scope in %s; set CgroupPlugin=cgroup/v2 in cgroup.conf, correct "+
		"CgroupMountpoint and CgroupSlice there, and restart slurmd", slice)
}

// enable enables the controller in the children of each cgroup from the mountpoint down to scope. systemd may disable
// it later, because it does not know that the controller is in use.
func (t *Tree) enable(scope string) error {
	for _, dir := range t.without(scope) {
		if err := t.control(dir, "+"); err != nil {
			return fmt.Errorf("couldn't enable the cgroup controller %s, which limits GPU memory: %w",
				t.o.Controller, err)
		}
	}
	return nil
}

// without returns the cgroups from the mountpoint down to scope whose children do not have the controller.
func (t *Tree) without(scope string) (dirs []string) {
	for dir := scope; ; dir = filepath.Dir(dir) {
		if !lists(dir, "cgroup.subtree_control", t.o.Controller) {
			dirs = append(dirs, dir)
		}
		if dir == t.o.Mountpoint {
			slices.Reverse(dirs)
			return dirs
		}
	}
}

// control enables (+) or disables (-) the controller in the children of a cgroup.
func (t *Tree) control(dir, sign string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(sign+t.o.Controller), 0)
}

// Without returns the cgroups in whose children Make would enable the controller.
func (t *Tree) Without() ([]string, error) {
	scope, err := t.scope()
	if err != nil {
		return nil, err
	}
	return t.without(scope), nil
}

// Disable disables the controller in the children of the cgroups that Without has returned. It leaves the controller
// enabled where other cgroups use it.
func (t *Tree) Disable(dirs []string) (err error) {
	for _, dir := range slices.Backward(dirs) {
		if e := t.control(dir, "-"); e != nil && !gone(e) && !errors.Is(e, unix.EBUSY) {
			err = errors.Join(err, fmt.Errorf("couldn't disable the cgroup controller %s: %w", t.o.Controller, e))
		}
	}
	return err
}

// makeDirectory creates a cgroup if it does not exist.
func makeDirectory(path string, mode os.FileMode) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = os.Chmod(path, mode) // the umask may have cleared permission bits
	}
	return err
}

// inode returns the inode number of a directory. It does not follow a symbolic link.
func inode(path string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		return 0, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return st.Ino, nil
}

// gone reports whether an error means that a cgroup does not exist.
func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) }

// Made returns the cgroups that Make has created and Remove has not removed, also those of an earlier agent.
func (t *Tree) Made() (all []Group, err error) {
	scope, err := t.scope()
	if err != nil {
		return nil, nil // slurmd has never started
	}
	children, _ := filepath.Glob(filepath.Join(scope, "*", Child))
	for _, path := range children {
		g := Group{Path: filepath.Dir(path)}
		if g.Inode, err = inode(g.Path); err == nil {
			all = append(all, g)
		}
	}
	return all, nil
}

// Find returns the cgroup of a job with the given inode number, also if another program has removed its child.
func (t *Tree) Find(number uint64) (g Group, ok bool) {
	scope, err := t.scope()
	if err != nil {
		return g, false
	}
	entries, _ := os.ReadDir(scope)
	for _, e := range entries {
		g = Group{Path: filepath.Join(scope, e.Name()), Inode: number}
		if now, err := inode(g.Path); err == nil && now == number {
			return g, true
		}
	}
	return Group{}, false
}

// Check returns an error unless the cgroup still exists and has the controller. Make enables the controller again.
func (t *Tree) Check(g Group) error {
	switch now, err := inode(g.Path); {
	case err != nil:
		return fmt.Errorf("the job's cgroup is gone: %w", err)
	case now != g.Inode:
		return fmt.Errorf("the job's cgroup %s was replaced by another with the same name", g.Path)
	case !lists(g.Path, "cgroup.controllers", t.o.Controller):
		return fmt.Errorf("another program, such as systemd, disabled the controller %s in %s, so the driver does not "+
			"limit the job's GPU memory", t.o.Controller, g.Path)
	}
	return nil
}

// Empty reports whether there is no process in the cgroup or below it, or the cgroup no longer exists.
func (t *Tree) Empty(g Group) (bool, error) {
	now, err := inode(g.Path)
	var events []byte
	if err == nil && now == g.Inode {
		events, err = os.ReadFile(filepath.Join(g.Path, "cgroup.events"))
	}
	switch {
	case gone(err) || err == nil && now != g.Inode:
		return true, nil
	case err != nil:
		return false, fmt.Errorf("couldn't read the job's cgroup: %w", err)
	}
	return bytes.Contains(events, []byte("populated 0\n")), nil
}

// Processes returns the ids of the processes in the cgroup and below it, but at most the given number.
func (t *Tree) Processes(g Group, most int) (pids []int) {
	filepath.WalkDir(g.Path, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "cgroup.procs" {
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer file.Close()
		for pid := 0; len(pids) < most; pids = append(pids, pid) {
			if _, err := fmt.Fscan(file, &pid); err != nil {
				return nil
			}
		}
		return fs.SkipAll
	})
	return pids
}

// Remove removes the cgroup and its child. If Slurm still uses the cgroup, Remove returns an error, but removes the
// child, so that Slurm can remove the cgroup. It does nothing if the cgroup no longer exists.
func (t *Tree) Remove(g Group) error {
	if now, err := inode(g.Path); err == nil && now != g.Inode || gone(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("couldn't remove the job's cgroup: %w", err)
	}
	for _, path := range []string{filepath.Join(g.Path, Child), g.Path} {
		if err := unix.Rmdir(path); err != nil && !gone(err) {
			return fmt.Errorf("couldn't remove the job's cgroup: %w", &fs.PathError{Op: "rmdir", Path: path, Err: err})
		}
	}
	return nil
}

// Has reports whether a process with the given cgroup paths (gpu.Processes.Cgroups) is in the cgroup or below it.
func (t *Tree) Has(g Group, paths []string) bool {
	own, ok := strings.CutPrefix(g.Path, t.o.Mountpoint)
	for _, path := range paths {
		if ok && (path == own || strings.HasPrefix(path, own+"/")) {
			return true
		}
	}
	return false
}
