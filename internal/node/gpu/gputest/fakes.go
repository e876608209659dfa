package gputest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"caelum/internal/node/gpu"
	"caelum/internal/node/jobcgroup"
)

// onGPU is a cgroup on a GPU.
type onGPU struct {
	gpu    int
	cgroup string
}

var _ gpu.MemoryLimits = (*FakeLimits)(nil)

// FakeLimits implements gpu.MemoryLimits in memory. The zero value has no limits.
type FakeLimits struct {
	mu           sync.Mutex
	limits, used map[onGPU]uint64
	err          error
}

// Fail makes all further calls return err, or succeed if err is nil.
func (f *FakeLimits) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// Use sets the memory in use that Limit returns, in bytes.
func (f *FakeLimits) Use(gpu int, cgroup string, bytes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.used == nil {
		f.used = map[onGPU]uint64{}
	}
	f.used[onGPU{gpu, cgroup}] = bytes
}

// SetLimit implements gpu.MemoryLimits.
func (f *FakeLimits) SetLimit(on int, cgroup string, bytes uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if f.limits == nil {
		f.limits = map[onGPU]uint64{}
	}
	if f.limits[onGPU{on, cgroup}] = bytes; bytes == gpu.NoLimit {
		delete(f.limits, onGPU{on, cgroup})
	}
	return nil
}

// Limit implements gpu.MemoryLimits.
func (f *FakeLimits) Limit(on int, cgroup string) (limit, used uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return 0, 0, f.err
	}
	limit, ok := f.limits[onGPU{on, cgroup}]
	if !ok {
		return gpu.NoLimit, 0, nil
	}
	return limit, f.used[onGPU{on, cgroup}], nil
}

// fakeScope contains the cgroups of FakeGroups, and fakePath is its path in /proc/PID/cgroup.
const (
	fakeScope = "/sys/fs/cgroup" + fakePath
	fakePath  = "/system.slice/slurmstepd.scope"
)

// FakeGroups has the methods of jobcgroup.Tree, and keeps the cgroups in memory. The zero value has none.
type FakeGroups struct {
	mu     sync.Mutex
	inodes uint64            // the last inode number
	groups map[string]uint64 // the inode numbers of the cgroups, by path
	busy   map[uint64]bool   // cgroups with processes, by inode number
	errs   map[string]error
}

// Fail makes further calls of a method, such as "Make", return err, or succeed if err is nil.
func (f *FakeGroups) Fail(method string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.errs == nil {
		f.errs = map[string]error{}
	}
	f.errs[method] = err
}

// Enter puts a process into a cgroup, or removes all processes from it if in is false.
func (f *FakeGroups) Enter(g jobcgroup.Group, in bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy == nil {
		f.busy = map[uint64]bool{}
	}
	f.busy[g.Inode] = in
}

// Vanish removes a cgroup as another program would.
func (f *FakeGroups) Vanish(g jobcgroup.Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.groups, g.Path)
}

// Exists reports whether a cgroup exists.
func (f *FakeGroups) Exists(g jobcgroup.Group) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.exists(g)
}

func (f *FakeGroups) exists(g jobcgroup.Group) bool {
	return g.Inode != 0 && f.groups[g.Path] == g.Inode
}

// Make creates a cgroup, as jobcgroup.Tree does.
func (f *FakeGroups) Make(name string) (jobcgroup.Group, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.errs["Make"]; err != nil {
		return jobcgroup.Group{}, err
	}
	g := jobcgroup.Group{Path: filepath.Join(fakeScope, name)}
	if f.groups[g.Path] == 0 {
		if f.groups == nil {
			f.groups = map[string]uint64{}
		}
		f.inodes++
		f.groups[g.Path] = f.inodes
	}
	g.Inode = f.groups[g.Path]
	return g, nil
}

// Made returns the cgroups that exist.
func (f *FakeGroups) Made() (all []jobcgroup.Group, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path, inode := range f.groups {
		all = append(all, jobcgroup.Group{Path: path, Inode: inode})
	}
	return all, f.errs["Made"]
}

// Find returns the cgroup with an inode number.
func (f *FakeGroups) Find(number uint64) (jobcgroup.Group, bool) {
	all, err := f.Made()
	for _, g := range all {
		if err == nil && g.Inode == number {
			return g, true
		}
	}
	return jobcgroup.Group{}, false
}

// Check returns an error if a cgroup does not exist.
func (f *FakeGroups) Check(g jobcgroup.Group) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.errs["Check"]; err != nil {
		return err
	}
	if !f.exists(g) {
		return fmt.Errorf("the job's cgroup %s is gone", g.Path)
	}
	return nil
}

// Empty reports whether a cgroup has no processes.
func (f *FakeGroups) Empty(g jobcgroup.Group) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.exists(g) || !f.busy[g.Inode], f.errs["Empty"]
}

// FakePID is the process in each cgroup that has processes.
const FakePID = 4711

// Processes returns the processes in a cgroup.
func (f *FakeGroups) Processes(g jobcgroup.Group, _ int) []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy[g.Inode] {
		return []int{FakePID}
	}
	return nil
}

// Remove removes a cgroup, or returns an error if it has processes.
func (f *FakeGroups) Remove(g jobcgroup.Group) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.errs["Remove"] != nil:
		return f.errs["Remove"]
	case f.exists(g) && f.busy[g.Inode]:
		return errors.New("couldn't remove the job's cgroup: device or resource busy")
	case f.exists(g):
		delete(f.groups, g.Path)
	}
	return nil
}

// Has reports whether a process with the given cgroup paths is in a cgroup.
func (f *FakeGroups) Has(g jobcgroup.Group, paths []string) bool {
	own, ok := strings.CutPrefix(g.Path, fakeScope)
	for _, path := range paths {
		if ok && (path == fakePath+own || strings.HasPrefix(path, fakePath+own+"/")) {
			return true
		}
	}
	return false
}
