package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// An open descriptor of a capability file remains valid after the file's owner and mode have changed, and the devices
// cgroup restricts only calls to open(). Because the device number of a capability depends only on the GPU and the GPU
// instance id, a descriptor also gives access to the next instance with the same GPU instance id.
//
// A scan considers only the descriptors in the descriptor tables of processes. The kernel does not show which files are
// queued in a socket or registered with an io_uring, even though every process can use sockets and io_urings. If a scan
// treated every process with a socket or an io_uring as a holder, any user could make GPUs unavailable.

// Processes finds the processes that have device files open. Only one scan runs at a time. The calls that wait for it
// share the next scan.
type Processes struct {
	// Proc is the /proc directory of the initial PID namespace.
	Proc string
	// Limit is the maximum number of descriptors that a scan reads per owner (Process.Owner). It prevents users from
	// delaying the scan. 0 means scanLimit.
	Limit int
	// Budget is the time after which a scan reads no further descriptors. After twice this time, it fails. 0 means
	// scanBudget.
	Budget time.Duration

	running sync.Mutex
	mu      sync.Mutex
	next    map[bool]*sharedScan // the scans that have not begun yet, by whether they include root's processes
	// hung holds the ids of processes with an open file on a file system that does not complete statx, even for
	// cached data. Each of them blocks one of the agent's threads until the file system responds.
	hung sync.Map
}

// scanLimit is the default for Processes.Limit. A scan of 200,000 descriptors takes about half a second on one core.
const scanLimit = 200_000

// scanBudget is the default for Processes.Budget. A prolog waits for at most eight scans, and its plugin for 60 s.
const scanBudget = 3 * time.Second

// processCost is the cost of reading a process's data, expressed as a number of descriptors. Each statusCost bytes of
// /proc/PID/status add to it, because reading the status of a process with 65,536 groups takes 3 ms.
const (
	processCost = 10
	statusCost  = 512
)

// maxScanners limits the number of CPUs that one scan uses. A scan also uses at most about a quarter of the node's
// CPUs, because the prologs of other jobs need CPUs as well.
const maxScanners = 4

// hangLimit is the time without progress after which a scan skips a process.
const hangLimit = 2 * time.Second

// Held is the result of a scan.
type Held struct {
	// Open maps each device to the processes with an open descriptor.
	Open map[Device][]Process
	// Unread maps each owner of processes whose descriptors could not all be read to a reason.
	Unread map[uint32]Unread
}

// Unread is the reason why a scan did not read all descriptors of a user. Denied is true if the kernel denied access,
// for example because of a security module, which a user cannot bring about.
type Unread struct {
	Reason string
	Denied bool
}

// note adds a reason to Unread. A reason that a user can bring about replaces any other.
func (h Held) note(uid uint32, unread Unread) {
	if old, ok := h.Unread[uid]; !ok || old.Denied {
		h.Unread[uid] = unread
	}
}

// Scan reads the descriptor tables of all processes except root's. The caller must not change the result, which may
// contain other devices as well.
func (s *Processes) Scan(devices []Device) (Held, error) { return s.share(devices, false) }

// ScanRoot is like Scan, but also reads the descriptor tables of root's processes.
func (s *Processes) ScanRoot(devices []Device) (Held, error) { return s.share(devices, true) }

// sharedScan is a scan for several callers.
type sharedScan struct {
	devices []Device
	done    chan struct{}
	held    Held
	err     error
}

// share returns the result of a scan that begins after the call. An earlier scan may have read a process before it
// opened a device.
func (s *Processes) share(devices []Device, root bool) (Held, error) {
	s.mu.Lock()
	scan := s.next[root]
	begins := scan == nil
	if begins {
		scan = &sharedScan{done: make(chan struct{})}
		if s.next == nil {
			s.next = map[bool]*sharedScan{}
		}
		s.next[root] = scan
	}
	scan.devices = append(scan.devices, devices...)
	s.mu.Unlock()
	if begins {
		s.running.Lock()
		defer s.running.Unlock()
		s.mu.Lock()
		delete(s.next, root)
		s.mu.Unlock()
		scan.held, scan.err = s.scanAll(scan.devices, root)
		close(scan.done)
	}
	<-scan.done
	return scan.held, scan.err
}

func (s *Processes) scanAll(devices []Device, root bool) (Held, error) {
	proc, err := os.Open(s.Proc)
	if err != nil {
		return Held{}, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return Held{}, fmt.Errorf("couldn't list the processes: %w", err)
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	deadline := time.Now().Add(s.budget())
	// Each part of the scan counts an owner's descriptors separately.
	parts := min(runtime.GOMAXPROCS(0)/4+1, maxScanners, len(pids)/50+1)
	found := make([]Held, parts)
	var done sync.WaitGroup
	for k := range parts {
		done.Go(func() {
			found[k] = s.scan(pids[len(pids)*k/parts:len(pids)*(k+1)/parts], devices, root, deadline)
		})
	}
	done.Wait()
	if time.Since(deadline) > s.budget() {
		return Held{}, fmt.Errorf("couldn't examine %d processes in %v", len(pids), 2*s.budget())
	}
	all := found[0]
	for _, held := range found[1:] {
		for d, list := range held.Open {
			all.Open[d] = append(all.Open[d], list...)
		}
		for uid, unread := range held.Unread {
			all.note(uid, unread)
		}
	}
	return all, nil
}

func (s *Processes) budget() time.Duration { return cmp.Or(s.Budget, scanBudget) }

// result is the result of scanning one process.
type result struct {
	Process
	cost   int // the cost, as a number of descriptors
	open   []Device
	unread Unread // the reason why some descriptors of the process were not read
}

// scan examines processes one after another in a goroutine. If the goroutine hangs, scan abandons it and starts a new
// one.
func (s *Processes) scan(pids []int, devices []Device, root bool, deadline time.Time) Held {
	held := Held{Open: map[Device][]Process{}, Unread: map[uint32]Unread{}}
	spent := map[uint32]int{}
	add := func(r result) {
		spent[r.Owner] += r.cost
		if r.unread.Reason != "" {
			held.note(r.Owner, r.unread)
		}
		for _, d := range r.open {
			held.Open[d] = append(held.Open[d], r.Process)
		}
	}
	late := func() bool { return time.Since(deadline) > s.budget() } // scanAll then fails
	for len(pids) > 0 && !late() {
		c := &scan{
			s: s, limit: cmp.Or(s.Limit, scanLimit), devices: devices, root: root, spent: maps.Clone(spent),
			deadline: deadline,
			results:  make(chan result), left: make(chan struct{}),
		}
		go c.run(pids)
		for progress := uint64(0); len(pids) > 0 && !late(); {
			select {
			case r := <-c.results:
				pids = pids[1:]
				add(r)
				continue
			case <-time.After(min(hangLimit, max(time.Until(deadline), hangLimit/20))):
			}
			if now := c.progress.Load(); now != progress {
				progress = now
				continue
			}
			r := result{Process: *c.current.Load(), unread: Unread{Reason: hangs}}
			r.cost = c.limit/20 + 1 // 20 hanging processes exhaust the user's limit
			s.hung.Store(r.PID, true)
			pids = pids[1:]
			add(r)
			break
		}
		close(c.left)
	}
	return held
}

const hangs = "a process of the user has a file open on a file system that does not respond"

// scan is the state of a goroutine that reads processes.
type scan struct {
	s        *Processes
	limit    int
	devices  []Device
	root     bool           // also read root's processes
	spent    map[uint32]int // by owner
	deadline time.Time      // the time after which no descriptors are read
	stopped  bool           // whether the limit or the deadline has been reached
	results  chan result
	left     chan struct{} // closed when the run is abandoned
	current  atomic.Pointer[Process]
	progress atomic.Uint64
}

// run sends one result for each process.
func (c *scan) run(pids []int) {
	for _, pid := range pids {
		c.current.Store(&Process{PID: pid})
		r := c.process(pid)
		c.spent[r.Owner] += r.cost
		select {
		case c.results <- r:
		case <-c.left:
			c.s.hung.Delete(pid)
			return
		}
	}
}

func (c *scan) process(pid int) (r result) {
	c.progress.Add(1)
	dir := filepath.Join(c.s.Proc, strconv.Itoa(pid))
	if kernelThread(dir) {
		return r
	}
	if c.stopped {
		r.Process = Process{PID: pid, Owner: c.s.namespaceOwner(pid)}
		if r.Owner != 0 && c.stop(&r) { // the process need not be read, which could take long
			return r
		}
	}
	p, err := c.s.read(pid)
	if err != nil || p.Root() && !c.root {
		return r
	}
	r.Process, r.cost = p, p.cost
	c.current.Store(&p)
	if _, hung := c.s.hung.Load(pid); hung {
		r.unread.Reason = hangs
		return r
	}
	if c.stop(&r) {
		return r
	}
	c.tables(&r, dir)
	if len(r.open) > 0 {
		if r.Start, err = c.s.Started(pid); err != nil {
			r.open = nil // the process has ended
		}
	}
	return r
}

// stop reports whether the scan must not read further descriptors of a process, and sets r.unread if so.
func (c *scan) stop(r *result) bool {
	switch {
	case c.spent[r.Owner]+r.cost > c.limit:
		r.unread.Reason = fmt.Sprintf("the user's processes have more than %d open descriptors", c.limit)
	case time.Now().After(c.deadline):
		r.unread.Reason = "the search for open descriptors took too long"
	default:
		return false
	}
	c.stopped = true
	return true
}

// tables reads the descriptor tables of a process. Each thread may have its own table (unshare(CLONE_FILES)). A main
// thread that has exited no longer has a table.
func (c *scan) tables(r *result, dir string) {
	if r.threads <= 1 {
		c.table(r, dir)
		return
	}
	tasks, err := os.Open(filepath.Join(dir, "task"))
	if err != nil {
		return // the process has ended
	}
	defer tasks.Close()
	names, _ := tasks.Readdirnames(-1)
	var tables []int // one task for each distinct descriptor table, sorted by order
	for _, name := range names {
		if r.cost++; c.stop(r) {
			return
		}
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		at, same := slices.BinarySearchFunc(tables, tid, order)
		if !same {
			tables = slices.Insert(tables, at, tid)
			c.table(r, filepath.Join(dir, "task", name))
		}
	}
}

// kernelThread reports whether a process is a kernel thread or has ended. In both cases, it has no program and only one
// task. A large node has thousands of kernel threads, and this check is much faster than reading the status of each
// process.
func kernelThread(dir string) bool {
	var one [1]byte
	if _, err := unix.Readlink(filepath.Join(dir, "exe"), one[:]); !errors.Is(err, unix.ENOENT) {
		return false
	}
	var st unix.Stat_t
	return unix.Stat(filepath.Join(dir, "task"), &st) == nil && st.Nlink == 3
}

// order compares the descriptor tables of two tasks. If the kernel does not support kcmp, all tables are considered
// different.
func order(a, b int) int {
	const files = 2 // KCMP_FILES of linux/kcmp.h
	n, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), files, 0, 0, 0)
	switch {
	case errno != 0:
		return 1
	case n == 1:
		return -1
	default:
		return int(n) // 0: equal; 2: greater; 3: different, order unknown
	}
}

// table reads one descriptor table in /proc/PID or /proc/PID/task/TID.
func (c *scan) table(r *result, dir string) {
	fds, err := unix.Open(filepath.Join(dir, "fd"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		r.failed(err)
		return
	}
	defer unix.Close(fds)
	entries := make([]byte, 8192)
	var names []string
	for {
		n, err := unix.Getdents(fds, entries)
		if err != nil {
			r.failed(err)
		}
		if n <= 0 {
			return
		}
		_, _, names = unix.ParseDirent(entries[:n], -1, names[:0])
		for _, fd := range names {
			if r.cost++; c.stop(r) {
				return
			}
			c.progress.Add(1)
			c.descriptor(r, dir, fds, fd)
		}
	}
}

// descriptor identifies the device behind a descriptor by its device number, because a device file can have any path.
func (c *scan) descriptor(r *result, dir string, fds int, fd string) {
	var st unix.Statx_t
	if err := unix.Statx(fds, fd, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st); err != nil {
		// If another user's FUSE file system denied access, the file is not a device. Otherwise, /proc denied access.
		var one [1]byte
		if _, err := unix.Readlinkat(fds, fd, one[:]); !errors.Is(err, unix.ENAMETOOLONG) {
			r.failed(err)
		}
		return
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return
	}
	d := Device{st.Rdev_major, st.Rdev_minor}
	if slices.Contains(c.devices, d) && !slices.Contains(r.open, d) && opened(filepath.Join(dir, "fdinfo", fd)) {
		r.open = append(r.open, d)
	}
}

// opened reports whether a descriptor gives access to its device. O_PATH descriptors, which every user can open, do not
// give access to the device.
func opened(fdinfo string) bool {
	data, err := os.ReadFile(fdinfo)
	if err != nil {
		return false // the descriptor is closed
	}
	flags, err := strconv.ParseUint(field(data, "flags:"), 8, 64)
	return err == nil && flags&unix.O_PATH == 0
}

// failed records that the descriptors of a running process could not be read, for example because of a security module
// or because the agent lacks CAP_SYS_PTRACE.
func (r *result) failed(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		r.unread = Unread{"couldn't read the descriptors of a process: " + err.Error(), true}
	}
}
