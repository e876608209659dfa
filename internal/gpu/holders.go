package gpu

import (
	"bytes"
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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// An open descriptor of a capability file outlives every change of the file's owner and mode, and the devices cgroup checks open()
// only. The capability's device number follows from GPU and placement, so the descriptor also opens the next instance there.

// Processes finds the processes that hold device files open. One scan runs at a time.
type Processes struct {
	// Proc is /proc of the initial PID namespace.
	Proc string
	// Limit is the number of descriptors that are read per user and scan; 0 means scanLimit. It keeps a user from delaying a scan.
	Limit int

	mu sync.Mutex
	// hung are the ids of processes with an open file whose file system does not describe it even from memory. Each keeps a thread of
	// this process until it does.
	hung sync.Map
}

// scanLimit is about half a second of one core.
const scanLimit = 200_000

// processCost is the cost of a process, in descriptors, beside those that it has.
const processCost = 10

// maxScanners is the number of CPUs that one scan may use, and never much more than a quarter of them: others wait for a prolog too.
const maxScanners = 4

// hangLimit is the time without any progress after which a process is left out of a scan.
const hangLimit = 2 * time.Second

// Process is a running process. Start tells two processes with one pid apart.
type Process struct {
	PID int
	// UIDs are the real, effective, saved and file-system user ids.
	UIDs    [4]uint32
	Command string
	Start   uint64

	threads int
}

// Root reports whether the process has no other user's id.
func (p Process) Root() bool { return p.UIDs == [4]uint32{} }

// Is reports whether the process acts for a user, or can.
func (p Process) Is(uid uint32) bool { return slices.Contains(p.UIDs[:], uid) }

func (p Process) String() string {
	return fmt.Sprintf("pid %d, uid %d, %q", p.PID, p.UIDs[0], p.Command)
}

// Holder is a process that has a device open, or may have it open in a place that shows no device number.
type Holder struct {
	Process
	// Hides says where a descriptor may be; empty when the descriptor was seen.
	Hides string
}

func (h Holder) String() string {
	if h.Hides == "" {
		return h.Process.String()
	}
	return h.Process.String() + ": " + h.Hides
}

// Held is the result of a scan.
type Held struct {
	// Open are the processes with an open descriptor, by device.
	Open map[Device][]Holder
	// Possible are the processes of a suspected user that may hold any descriptor.
	Possible map[uint32][]Holder
	// Skipped are the users whose processes were not all read: they have more descriptors than the limit.
	Skipped map[uint32]bool
}

// Scan reads the descriptor tables of all processes but root's. Only a process of a suspect can be in Possible: a descriptor that
// is on its way through a socket or registered with an io_uring shows no device number, and every user can have one of those.
func (s *Processes) Scan(devices []Device, suspects []uint32) (Held, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	// Each CPU that takes part counts for itself what it reads of a user.
	parts := min(runtime.GOMAXPROCS(0)/4+1, maxScanners, len(pids)/50+1)
	found := make([]Held, parts)
	var done sync.WaitGroup
	for k := range parts {
		done.Go(func() { found[k] = s.scan(pids[len(pids)*k/parts:len(pids)*(k+1)/parts], devices, suspects) })
	}
	done.Wait()
	all := found[0]
	for _, held := range found[1:] {
		for d, list := range held.Open {
			all.Open[d] = append(all.Open[d], list...)
		}
		for uid, list := range held.Possible {
			all.Possible[uid] = append(all.Possible[uid], list...)
		}
		maps.Copy(all.Skipped, held.Skipped)
	}
	return all, nil
}

// Holds reports whether one process, which is not root's, has one of the devices open.
func (s *Processes) Holds(pid int, devices []Device) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.scan([]int{pid}, devices, nil).Open) > 0
}

// result is what one process was found to hold.
type result struct {
	Process
	cost    int // in descriptors
	open    []Device
	hides   string // where a descriptor may be that shows no device number
	skipped bool
}

// scan reads processes one after the other, in a goroutine that is left behind when it hangs.
func (s *Processes) scan(pids []int, devices []Device, suspects []uint32) Held {
	held := Held{Open: map[Device][]Holder{}, Possible: map[uint32][]Holder{}, Skipped: map[uint32]bool{}}
	spent := map[uint32]int{}
	take := func(r result) {
		spent[r.UIDs[0]] += r.cost
		if r.skipped {
			held.Skipped[r.UIDs[0]] = true
		}
		for _, d := range r.open {
			held.Open[d] = append(held.Open[d], Holder{Process: r.Process})
		}
		for _, uid := range suspects {
			if r.hides != "" && r.Is(uid) {
				held.Possible[uid] = append(held.Possible[uid], Holder{r.Process, r.hides})
			}
		}
	}
	for len(pids) > 0 {
		c := &scan{
			s: s, limit: cmp.Or(s.Limit, scanLimit), devices: devices, suspects: suspects, spent: maps.Clone(spent),
			results: make(chan result), left: make(chan struct{}), buffer: make([]byte, 1<<16),
		}
		go c.run(pids)
		for progress := uint64(0); len(pids) > 0; {
			select {
			case r := <-c.results:
				pids = pids[1:]
				take(r)
				continue
			case <-time.After(hangLimit):
			}
			if now := c.progress.Load(); now != progress {
				progress = now
				continue
			}
			r := result{Process: *c.current.Load(), hides: "one of its files does not answer"}
			r.cost = c.limit/20 + 1 // with 20 of them no more of this user's are read
			s.hung.Store(r.PID, true)
			pids = pids[1:]
			take(r)
			break
		}
		close(c.left)
	}
	return held
}

// Read describes a process. The error is fs.ErrNotExist when it has ended.
func (s *Processes) Read(pid int) (Process, error) {
	p, err := s.read(pid)
	if err != nil {
		return p, err
	}
	stat, err := s.small(pid, "stat")
	if err != nil {
		return p, err
	}
	// The command, in parentheses, may hold anything; field 22 is the start time.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return p, fmt.Errorf("/proc/%d/stat is cut short", pid)
	}
	p.Start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return p, err
}

// read is Read without Start.
func (s *Processes) read(pid int) (Process, error) {
	p := Process{PID: pid}
	data, err := s.small(pid, "status")
	if err != nil {
		return p, err
	}
	uids := 0
	for line := range bytes.Lines(data) {
		key, value, _ := bytes.Cut(line, []byte{':'})
		switch string(key) {
		case "Name":
			p.Command = string(bytes.TrimSpace(value))
		case "Uid":
			for field := range bytes.FieldsSeq(value) {
				if uid, err := strconv.ParseUint(string(field), 10, 32); err == nil && uids < len(p.UIDs) {
					p.UIDs[uids] = uint32(uid)
					uids++
				}
			}
			if p.Root() {
				return p, nil // the rest matters of others only
			}
		case "Threads":
			p.threads, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
			return p, nil
		}
	}
	return p, fmt.Errorf("/proc/%d/status has no user ids or no number of threads", pid)
}

// small reads a file of a process. A process that ends meanwhile is fs.ErrNotExist.
func (s *Processes) small(pid int, name string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(s.Proc, strconv.Itoa(pid), name))
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist
	}
	return data, err
}

// Cgroups are the cgroups of a process, one path for each hierarchy.
func (s *Processes) Cgroups(pid int) ([]string, error) {
	data, err := s.small(pid, "cgroup")
	if err != nil {
		return nil, err
	}
	var paths []string
	for line := range strings.Lines(string(data)) {
		// ID:controllers:path; the path may hold colons.
		if parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(parts) == 3 {
			paths = append(paths, parts[2])
		}
	}
	return paths, nil
}

// Kill ends a process with SIGKILL if still holds once no other process can be meant.
func (s *Processes) Kill(pid int, still func() bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// A process that takes over the pid from here on is not the one that fd names.
	if !still() {
		return fs.ErrNotExist
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// scan is a run over processes.
type scan struct {
	s        *Processes
	limit    int
	devices  []Device
	suspects []uint32
	spent    map[uint32]int // by real user id
	results  chan result
	left     chan struct{} // closed when results are not wanted any more
	current  atomic.Pointer[Process]
	progress atomic.Uint64
	buffer   []byte
}

// run answers one result for each process.
func (c *scan) run(pids []int) {
	for _, pid := range pids {
		c.current.Store(&Process{PID: pid})
		r := c.process(pid)
		c.spent[r.UIDs[0]] += r.cost
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
	p, err := c.s.read(pid)
	if err != nil || p.Root() {
		return r
	}
	r.Process, r.cost = p, processCost
	c.current.Store(&p)
	if _, hangs := c.s.hung.Load(pid); hangs {
		r.hides = "one of its files does not answer"
		return r
	}
	if p.threads <= 1 {
		c.table(&r, dir)
		return r
	}
	// Threads may have tables of their own (unshare(CLONE_FILES)), and the first thread none at all when it has ended.
	tasks, err := os.Open(filepath.Join(dir, "task"))
	if err != nil {
		return r // it has ended
	}
	defer tasks.Close()
	names, _ := tasks.Readdirnames(-1)
	var tables []int // a task of each table, in kcmp's order
	for _, name := range names {
		r.cost++
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		at, same := slices.BinarySearchFunc(tables, tid, order)
		if !same {
			tables = slices.Insert(tables, at, tid)
			c.table(&r, filepath.Join(dir, "task", name))
		}
	}
	return r
}

// kernelThread reports whether a process is a kernel thread, or has ended: it has no program, and one task. It spares the reading of
// its status, which costs several times as much; a large node has thousands of them.
func kernelThread(dir string) bool {
	var one [1]byte
	if _, err := unix.Readlink(filepath.Join(dir, "exe"), one[:]); !errors.Is(err, unix.ENOENT) {
		return false
	}
	var st unix.Stat_t
	return unix.Stat(filepath.Join(dir, "task"), &st) == nil && st.Nlink == 3
}

// order compares the descriptor tables of two tasks. A kernel without kcmp gives each task a table of its own.
func order(a, b int) int {
	const files = 2 // KCMP_FILES of linux/kcmp.h
	n, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), files, 0, 0, 0)
	switch {
	case errno != 0:
		return 1
	case n == 1:
		return -1
	default:
		return int(n) // 0: the same; 2, 3: greater, not equal
	}
}

// table reads one descriptor table, below /proc/PID or /proc/PID/task/TID.
func (c *scan) table(r *result, dir string) {
	fds, err := unix.Open(filepath.Join(dir, "fd"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		r.unread(err)
		return
	}
	defer unix.Close(fds)
	suspect := slices.ContainsFunc(c.suspects, r.Is)
	entries := make([]byte, 8192)
	var names []string
	for {
		n, err := unix.Getdents(fds, entries)
		if err != nil {
			r.unread(err)
		}
		if n <= 0 {
			return
		}
		_, _, names = unix.ParseDirent(entries[:n], -1, names[:0])
		for _, fd := range names {
			if r.cost++; c.spent[r.UIDs[0]]+r.cost > c.limit {
				r.skipped = true
				r.hides = "its user has more open descriptors than are read"
				return
			}
			c.progress.Add(1)
			c.descriptor(r, dir, fds, fd, suspect)
		}
	}
}

// descriptor looks at one descriptor. Its path says nothing: a device may be bound to any name.
func (c *scan) descriptor(r *result, dir string, fds int, fd string, suspect bool) {
	var st unix.Statx_t
	err := unix.Statx(fds, fd, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st)
	if err != nil {
		// The file system may refuse, a FUSE file system that is another user's: then it is no device. Or /proc does.
		if _, err := unix.Readlinkat(fds, fd, c.buffer); !errors.Is(err, unix.ENAMETOOLONG) {
			r.unread(err)
		}
		return
	}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFCHR:
		d := Device{st.Rdev_major, st.Rdev_minor}
		if slices.Contains(c.devices, d) && !slices.Contains(r.open, d) && opened(c.info(dir, fd, 4096)) {
			r.open = append(r.open, d)
		}
	case !suspect:
	case kind == unix.S_IFSOCK:
		// With what connections that wait to be accepted carry; since Linux 5.6.
		if n, _ := strconv.Atoi(field(c.info(dir, fd, 4096), "scm_fds:")); n > 0 {
			r.hides = fmt.Sprintf("socket %s carries %d descriptors that were not received yet", fd, n)
		}
	case kind != unix.S_IFIFO && kind != unix.S_IFDIR:
		n, err := unix.Readlinkat(fds, fd, c.buffer)
		if err != nil || string(c.buffer[:n]) != "anon_inode:[io_uring]" {
			return
		}
		// The requests that are pending stand before the number, and of a ring in use not all is shown.
		data := c.info(dir, fd, len(c.buffer))
		if n, err := strconv.Atoi(field(data, "UserFiles:")); len(data) > 0 && (err != nil || n > 0) {
			r.hides = fmt.Sprintf("io_uring %s has registered files", fd)
		}
	}
}

// opened reports whether a descriptor is more than O_PATH, which opens no device; every user can have one of those.
func opened(info []byte) bool {
	flags, err := strconv.ParseUint(field(info, "flags:"), 8, 64)
	return err == nil && flags&unix.O_PATH == 0
}

// unread notes that a process could not be read, and has not ended: a security module, or the agent's lack of CAP_SYS_PTRACE.
func (r *result) unread(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		r.hides = "its descriptors couldn't be read: " + err.Error()
	}
}

// info reads up to so many bytes of what /proc says of a descriptor; nothing when it is closed.
func (c *scan) info(dir, fd string, most int) []byte {
	file, err := unix.Open(filepath.Join(dir, "fdinfo", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(file)
	n := 0
	for n < most {
		k, err := unix.Read(file, c.buffer[n:most])
		if k <= 0 || err != nil {
			break
		}
		n += k
	}
	return c.buffer[:n]
}

// field is the value of a line that begins with key.
func field(data []byte, key string) string {
	for line := range bytes.Lines(data) {
		if value, ok := bytes.CutPrefix(line, []byte(key)); ok {
			return string(bytes.TrimSpace(value))
		}
	}
	return ""
}
