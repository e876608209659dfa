package gpu

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	// hung are the descriptors whose file system did not answer. Each keeps a thread of this process until it does.
	hung sync.Map
}

// scanLimit is about half a second of one core.
const scanLimit = 200_000

// processCost is the cost of a process, in descriptors, beside those that it has.
const processCost = 10

// statLimit is the longest time that a file system of unknown type may take to describe an open file from memory.
const statLimit = 200 * time.Millisecond

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
	c := s.newScan(devices, suspects)
	proc, err := os.Open(s.Proc)
	if err != nil {
		return c.held, err
	}
	defer proc.Close()
	for {
		names, err := proc.Readdirnames(1000)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil {
				if p, err := s.read(pid); err == nil && !p.Root() {
					c.process(p)
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return c.held, nil
		}
		if err != nil {
			return c.held, fmt.Errorf("couldn't list the processes: %w", err)
		}
	}
}

// Holds reports whether one process has one of the devices open.
func (s *Processes) Holds(pid int, devices []Device) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.newScan(devices, nil)
	if p, err := s.read(pid); err == nil {
		c.process(p)
	}
	return len(c.held.Open) > 0
}

func (s *Processes) newScan(devices []Device, suspects []uint32) *scan {
	c := &scan{
		s: s, limit: cmp.Or(s.Limit, scanLimit), wanted: map[Device]bool{}, suspects: suspects, spent: map[uint32]int{},
		mounts: map[string]bool{}, namespaces: map[string]bool{}, buffer: make([]byte, 1<<16),
		held: Held{Open: map[Device][]Holder{}, Possible: map[uint32][]Holder{}, Skipped: map[uint32]bool{}},
	}
	for _, d := range devices {
		c.wanted[d] = true
	}
	return c
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

// scan is one scan.
type scan struct {
	s        *Processes
	limit    int
	wanted   map[Device]bool
	suspects []uint32
	spent    map[uint32]int // by real user id
	// mounts says by mount id whether a device node can lie there. An open file keeps its mount's id from being reused.
	mounts     map[string]bool
	namespaces map[string]bool // mount namespaces that were read
	held       Held
	buffer     []byte
}

func (c *scan) process(p Process) {
	c.spent[p.UIDs[0]] += processCost
	dir := filepath.Join(c.s.Proc, strconv.Itoa(p.PID))
	if p.threads <= 1 {
		c.table(p, dir)
		return
	}
	// Threads may have tables of their own (unshare(CLONE_FILES)), and the first thread none at all when it has ended.
	tasks, err := os.Open(filepath.Join(dir, "task"))
	if err != nil {
		return // it has ended
	}
	defer tasks.Close()
	names, _ := tasks.Readdirnames(-1)
	var tables []int // a task of each table, in kcmp's order
	for _, name := range names {
		c.spent[p.UIDs[0]]++
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		at, same := slices.BinarySearchFunc(tables, tid, order)
		if !same {
			tables = slices.Insert(tables, at, tid)
			c.table(p, filepath.Join(dir, "task", name))
		}
	}
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
func (c *scan) table(p Process, dir string) {
	fds, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		c.unread(p, err)
		return
	}
	defer fds.Close()
	info, err := os.Open(filepath.Join(dir, "fdinfo"))
	if err != nil {
		c.unread(p, err)
		return
	}
	defer info.Close()
	var buffer [4096]byte
	for {
		names, err := fds.Readdirnames(500)
		for _, fd := range names {
			if c.spent[p.UIDs[0]]++; c.spent[p.UIDs[0]] > c.limit {
				c.held.Skipped[p.UIDs[0]] = true
				c.possible(p, "its user has more open descriptors than are read")
				return
			}
			n, err := unix.Readlinkat(int(fds.Fd()), fd, buffer[:])
			switch {
			case err == nil && n > 0 && buffer[0] == '/', errors.Is(err, unix.ENAMETOOLONG):
				c.file(p, dir, fds, info, fd)
			case err != nil:
				c.unread(p, err)
			case c.suspect(p):
				c.carrier(p, info, fd, string(buffer[:n]))
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.unread(p, err)
			}
			return
		}
	}
}

func (c *scan) suspect(p Process) bool { return slices.ContainsFunc(c.suspects, p.Is) }

// unread notes a process that could not be read and has not ended: a security module, or the agent's lack of CAP_SYS_PTRACE.
func (c *scan) unread(p Process, err error) {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		c.possible(p, "its descriptors couldn't be read: "+err.Error())
	}
}

func (c *scan) possible(p Process, hides string) {
	for _, uid := range c.suspects {
		if list := c.held.Possible[uid]; p.Is(uid) && (len(list) == 0 || list[len(list)-1].PID != p.PID) {
			c.held.Possible[uid] = append(list, Holder{Process: p, Hides: hides})
		}
	}
}

// carrier looks at a descriptor that is no file and may carry others: a socket ("scm_fds: 1" in fdinfo since Linux 5.6, with what
// connections that wait to be accepted carry), an io_uring ("UserFiles: 1").
func (c *scan) carrier(p Process, info *os.File, fd, target string) {
	socket, ring := strings.HasPrefix(target, "socket:"), strings.HasPrefix(target, "anon_inode:[io_uring]")
	if !socket && !ring {
		return
	}
	if socket {
		if n, _ := strconv.Atoi(field(fdinfo(info, fd, c.buffer[:4096]), "scm_fds:")); n > 0 {
			c.possible(p, fmt.Sprintf("socket %s carries %d descriptors that were not received yet", fd, n))
		}
		return
	}
	// The requests that are pending stand before it, and a ring in use is described in part only.
	data := fdinfo(info, fd, c.buffer)
	if n, err := strconv.Atoi(field(data, "UserFiles:")); len(data) > 0 && (err != nil || n > 0) {
		c.possible(p, fmt.Sprintf("io_uring %s has registered files", fd))
	}
}

// fdinfo reads a descriptor's file below fdinfo into the buffer, as far as it goes; nothing when the descriptor is closed.
func fdinfo(dir *os.File, fd string, buffer []byte) []byte {
	file, err := unix.Openat(int(dir.Fd()), fd, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(file)
	n := 0
	for n < len(buffer) {
		k, err := unix.Read(file, buffer[n:])
		if k <= 0 || err != nil {
			break
		}
		if n += k; len(buffer) == 4096 {
			break // all of a file's fields stand in the first lines
		}
	}
	return buffer[:n]
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

// localTypes are the file systems that have device nodes and describe an open file without asking another process or machine.
// On others a device node would be root's own work, and the answer may never come.
var localTypes = map[string]bool{
	"devtmpfs": true, "tmpfs": true, "ramfs": true, "rootfs": true, "overlay": true, "ext2": true, "ext3": true, "ext4": true,
	"xfs": true, "btrfs": true, "zfs": true, "f2fs": true, "bcachefs": true, "squashfs": true, "erofs": true,
}

// file looks at a descriptor of something that has a path. The path says nothing: the device may be bound to any name.
func (c *scan) file(p Process, dir string, fds, info *os.File, fd string) {
	data := fdinfo(info, fd, c.buffer[:4096])
	flags, err := strconv.ParseUint(field(data, "flags:"), 8, 64)
	if err != nil || flags&unix.O_PATH != 0 { // O_PATH opens no device; every user can have one
		return
	}
	mount := field(data, "mnt_id:")
	local, known := c.mounts[mount]
	if !known {
		c.readMounts(p, dir)
		local, known = c.mounts[mount]
	}
	var d Device
	var is bool
	switch {
	case known && !local:
		return
	case known:
		d, is = charDevice(int(fds.Fd()), fd)
	default: // detached from its namespace, or never in one
		var ok bool
		if d, is, ok = c.patient(p.UIDs[0], filepath.Join(dir, "fd", fd)); !ok {
			c.possible(p, fmt.Sprintf("the file system of descriptor %s does not answer", fd))
			return
		}
	}
	if is && c.wanted[d] {
		if list := c.held.Open[d]; len(list) == 0 || list[len(list)-1].PID != p.PID {
			c.held.Open[d] = append(list, Holder{Process: p})
		}
	}
}

func charDevice(dir int, path string) (Device, bool) {
	var st unix.Statx_t
	err := unix.Statx(dir, path, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st)
	return Device{st.Rdev_major, st.Rdev_minor}, err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR
}

// patient is charDevice with a limit; ok is false when the file system has not answered.
func (c *scan) patient(uid uint32, path string) (d Device, is, ok bool) {
	if _, hung := c.s.hung.LoadOrStore(path, true); hung {
		return d, false, false
	}
	done := make(chan struct{})
	var found Device
	var char bool
	go func() {
		found, char = charDevice(unix.AT_FDCWD, path)
		c.s.hung.Delete(path)
		close(done)
	}()
	select {
	case <-done:
		return found, char, true
	case <-time.After(statLimit):
		c.spent[uid] += c.limit / 20 // 20 of them, and no more of this user's are read
		return d, false, false
	}
}

// readMounts reads the mounts that a process sees, once for each mount namespace.
func (c *scan) readMounts(p Process, dir string) {
	namespace, err := os.Readlink(filepath.Join(dir, "ns/mnt"))
	if err != nil || c.namespaces[namespace] {
		return
	}
	c.namespaces[namespace] = true
	data, err := os.ReadFile(filepath.Join(dir, "mountinfo"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(data)) {
		c.spent[p.UIDs[0]]++
		// ID parent major:minor root point options [tags] - type source options
		id, rest, _ := strings.Cut(line, " ")
		_, after, ok := strings.Cut(rest, " - ")
		kind, _, _ := strings.Cut(after, " ")
		if ok {
			c.mounts[id] = localTypes[kind]
		}
	}
}
