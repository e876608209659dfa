package gpu

import (
	"bytes"
	"errors"
	"fmt"
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

// Process is a running process. PID and Start together identify it, because a later process with the same PID will
// have a different Start.
type Process struct {
	PID int
	// UIDs holds the real, effective, saved and file-system user ids.
	UIDs [4]uint32
	// Owner is the user who is responsible for the process: its real user id or, if it runs in a user namespace of a
	// user, that user. A user can run processes with all of her subordinate user ids in such namespaces.
	Owner   uint32
	Command string
	// Start is the start time in clock ticks since the machine booted (field 22 of /proc/PID/stat).
	Start uint64

	threads int
	cost    int // the cost of reading the process's data, expressed as a number of descriptors
}

// Root reports whether all user ids of the process are 0.
func (p Process) Root() bool { return p.UIDs == [4]uint32{} }

// Is reports whether uid is the process's owner or one of its user ids, that is, whether the process acts or can act as
// that user.
func (p Process) Is(uid uint32) bool { return p.Owner == uid || slices.Contains(p.UIDs[:], uid) }

func (p Process) String() string {
	if p.PID == 0 {
		return fmt.Sprintf("an unknown process of uid %d: %s", p.Owner, p.Command)
	}
	return fmt.Sprintf("pid %d, uid %d, %q", p.PID, p.UIDs[0], p.Command)
}

// Read returns all data about a process. The error is fs.ErrNotExist if the process has ended.
func (s *Processes) Read(pid int) (Process, error) {
	p, err := s.read(pid)
	if err != nil {
		return p, err
	}
	p.Start, err = s.Started(pid)
	return p, err
}

// Started returns the value of [Process.Start]. The error is fs.ErrNotExist if the process has ended.
func (s *Processes) Started(pid int) (uint64, error) {
	stat, err := s.small(pid, "stat")
	if err != nil {
		return 0, err
	}
	// The command name is in parentheses and may contain any character.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat is incomplete", pid)
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

// read returns all data about a process except Process.Start.
func (s *Processes) read(pid int) (Process, error) {
	p := Process{PID: pid}
	data, err := s.small(pid, "status")
	if err != nil {
		return p, err
	}
	p.cost = processCost + len(data)/statusCost
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
				return p, nil // a scan ignores root's processes
			}
			p.Owner = s.OwnerOf(pid, p.UIDs[0])
		case "Threads":
			p.threads, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
			return p, nil
		}
	}
	return p, fmt.Errorf("/proc/%d/status does not contain the user ids or the number of threads", pid)
}

// ownNamespace returns the inode of the agent's user namespace, or 0.
var ownNamespace = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/user", &st) != nil {
		return 0
	}
	return st.Ino
})

// OwnerOf returns the value of Process.Owner for a process with the real user id uid.
func (s *Processes) OwnerOf(pid int, uid uint32) uint32 {
	if owner := s.namespaceOwner(pid); owner != 0 { // root's container programs give each container other user ids
		return owner
	}
	return uid
}

// namespaceOwner returns the owner of the outermost of the user namespaces in which a process runs (ioctl_ns(2)). It
// returns 0 if the process runs in the agent's namespace or in one of root.
func (s *Processes) namespaceOwner(pid int) uint32 {
	var st unix.Stat_t
	path := filepath.Join(s.Proc, strconv.Itoa(pid), "ns/user")
	if unix.Stat(path, &st) != nil || st.Ino == ownNamespace() {
		return 0
	}
	ns, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer func() { unix.Close(ns) }()
	for {
		parent, err := unix.IoctlRetInt(ns, unix.NS_GET_PARENT)
		if err != nil {
			break
		}
		if unix.Fstat(parent, &st) != nil || st.Ino == ownNamespace() {
			unix.Close(parent)
			break
		}
		unix.Close(ns)
		ns = parent
	}
	owner, err := unix.IoctlGetUint32(ns, unix.NS_GET_OWNER_UID)
	if err != nil {
		return 0
	}
	return owner
}

// small returns the contents of a small file in a process's /proc directory. The error is fs.ErrNotExist if the process
// ends before the file has been read.
func (s *Processes) small(pid int, name string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(s.Proc, strconv.Itoa(pid), name))
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist
	}
	return data, err
}

// Cgroups returns a process's cgroup path in each hierarchy.
func (s *Processes) Cgroups(pid int) ([]string, error) {
	data, err := s.small(pid, "cgroup")
	if err != nil {
		return nil, err
	}
	var paths []string
	for line := range strings.Lines(string(data)) {
		// The line has the form ID:controllers:path, where the path may contain colons.
		if parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(parts) == 3 {
			paths = append(paths, parts[2])
		}
	}
	return paths, nil
}

// SlurmJob returns the job to which a process belongs according to its cgroups. Slurm's cgroups are
// /slurm/uid_U/job_J/... or /system.slice/slurmstepd.scope/job_J/... If several slurmd daemons run on one host, the
// names include the NodeName. The result named reports whether the process is in one of Slurm's cgroups. The result job
// is 0 if the name of the cgroup contains the SLUID instead of the job id, as is the case since Slurm 26.05. Cgroups
// below user.slice are ignored, because users can create cgroups with any name there.
func SlurmJob(paths []string) (job uint32, named bool) {
	for _, path := range paths {
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		for k := 1; k < len(parts) && parts[0] != "user.slice"; k++ {
			v2 := parts[k-1] == "slurmstepd.scope" || strings.HasSuffix(parts[k-1], "_slurmstepd.scope")
			v1 := k >= 2 && strings.HasPrefix(parts[k-1], "uid_") && strings.HasPrefix(parts[k-2], "slurm")
			if !v1 && !v2 {
				continue
			}
			named = true
			if text, ok := strings.CutPrefix(parts[k], "job_"); ok {
				if id, err := strconv.ParseUint(text, 10, 32); err == nil {
					return uint32(id), true
				}
			}
			break
		}
	}
	return 0, named
}

const (
	// endLimit limits each of the two periods during which Kill waits for processes to end. A process in an
	// uninterruptible system call may take longer.
	endLimit = 250 * time.Millisecond
	// maxKilled is the maximum number of processes that one call to Kill ends. The number is limited because Kill keeps
	// a descriptor open for each process.
	maxKilled = 200
)

// pinned is a process and its pidfd. A pidfd never refers to a later process with the same PID. A PID of 0 marks a
// process that must not be killed.
type pinned struct {
	Process
	fd int
}

// Kill sends SIGKILL to the given processes and waits until they have closed their files. After opening a process's
// pidfd, it calls stillMeant and skips the process if the result is false. A traced process can remain until its tracer
// ends (PTRACE_O_TRACEEXIT), so Kill also ends tracers with the same owner. It ends at most maxKilled processes
// and waits at most 2 x endLimit in total. ended lists the processes that have ended, and left lists those that have
// not.
func (s *Processes) Kill(list []Process, stillMeant func(Process) bool) (ended, left []Process) {
	var all []pinned
	defer func() {
		for _, p := range all {
			unix.Close(p.fd)
		}
	}()
	for _, p := range list[:min(len(list), maxKilled)] {
		fd, err := unix.PidfdOpen(p.PID, 0)
		if err != nil {
			continue // the process has ended
		}
		all = append(all, pinned{p, fd})
		if now, err := s.Read(p.PID); err != nil || now.Start != p.Start || !stillMeant(now) {
			all[len(all)-1].PID = 0
			continue
		}
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	if !allEnded(all) {
		for _, p := range all {
			if p.PID != 0 && !hasEnded(p.fd, 0) {
				s.killTracer(p.Process)
			}
		}
		allEnded(all)
	}
	for _, p := range all {
		switch {
		case p.PID == 0:
		case hasEnded(p.fd, 0):
			ended = append(ended, p.Process)
		default:
			left = append(left, p.Process)
		}
	}
	return ended, left
}

// allEnded waits at most endLimit for all processes to end and reports whether they have.
func allEnded(all []pinned) bool {
	deadline := time.Now().Add(endLimit)
	ended := true
	for _, p := range all {
		ended = (p.PID == 0 || hasEnded(p.fd, time.Until(deadline))) && ended
	}
	return ended
}

// hasEnded reports whether the process behind a pidfd ends within the given time.
func hasEnded(fd int, within time.Duration) bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(within, 0).Milliseconds()))
	return n > 0
}

// killTracer ends the tracer of p if both processes have the same owner.
func (s *Processes) killTracer(p Process) {
	tid := s.statusOf(p.PID, "TracerPid:")
	if tid <= 0 {
		return
	}
	pid := s.statusOf(tid, "Tgid:") // TracerPid is the id of a thread; Tgid is the id of its process
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	// The kernel does not reuse the PID while the pidfd is open. So if pid is still p's tracer, the pidfd refers to
	// it.
	if tracer, err := s.Read(pid); err != nil || tracer.Owner != p.Owner || s.statusOf(p.PID, "TracerPid:") != tid {
		return
	}
	unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// statusOf returns a number from /proc/PID/status, or 0 if it cannot be read.
func (s *Processes) statusOf(pid int, key string) int {
	data, err := s.small(pid, "status")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(field(data, key))
	return n
}

// field returns the value in the first line that begins with key.
func field(data []byte, key string) string {
	for line := range bytes.Lines(data) {
		if value, ok := bytes.CutPrefix(line, []byte(key)); ok {
			return string(bytes.TrimSpace(value))
		}
	}
	return ""
}
