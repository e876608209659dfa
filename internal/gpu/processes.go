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
	"time"

	"golang.org/x/sys/unix"
)

// Process is a running process. PID and Start together identify it: a later process with the same PID has another
// Start.
type Process struct {
	PID int
	// UIDs are the real, effective, saved and file-system user ids.
	UIDs    [4]uint32
	Command string
	// Start is the start time in clock ticks since the boot (field 22 of /proc/PID/stat).
	Start uint64

	threads int
}

// Root reports whether the process has no other user's id.
func (p Process) Root() bool { return p.UIDs == [4]uint32{} }

// Is reports whether the process acts for a user, or can.
func (p Process) Is(uid uint32) bool { return slices.Contains(p.UIDs[:], uid) }

func (p Process) String() string {
	return fmt.Sprintf("pid %d, uid %d, %q", p.PID, p.UIDs[0], p.Command)
}

// Read describes a process. The error is fs.ErrNotExist when it has ended.
func (s *Processes) Read(pid int) (Process, error) {
	p, err := s.read(pid)
	if err != nil {
		return p, err
	}
	p.Start, err = s.start(pid)
	return p, err
}

// start returns Process.Start.
func (s *Processes) start(pid int) (uint64, error) {
	stat, err := s.small(pid, "stat")
	if err != nil {
		return 0, err
	}
	// The command, in parentheses, may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat is cut short", pid)
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
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

const (
	// endLimit is the time that Kill waits, twice at most. A process in a system call that cannot be interrupted takes
	// longer.
	endLimit = 250 * time.Millisecond
	// maxKilled is the number of processes that one call of Kill ends: each takes a descriptor meanwhile.
	maxKilled = 200
)

// pinned is a process behind a pidfd: a process that takes over its PID is not meant.
type pinned struct {
	Process
	fd int
}

// Kill sends SIGKILL to processes and waits until they have closed their files. It asks still about each of them when
// it is pinned, and leaves out those that are not meant any more. A process that is traced stays until its tracer ends
// (PTRACE_O_TRACEEXIT), so tracers of the same real user id are killed too. It takes 2 x endLimit at most for all of
// them together, and leaves out those beyond maxKilled. ended are those that it killed, left those that have not ended
// yet.
func (s *Processes) Kill(list []Process, still func(Process) bool) (ended, left []Process) {
	var all []pinned
	defer func() {
		for _, p := range all {
			unix.Close(p.fd)
		}
	}()
	for _, p := range list[:min(len(list), maxKilled)] {
		fd, err := unix.PidfdOpen(p.PID, 0)
		if err != nil {
			continue // it has ended
		}
		all = append(all, pinned{p, fd})
		if now, err := s.Read(p.PID); err != nil || now.Start != p.Start || !still(now) {
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

// allEnded waits up to endLimit until all of them have ended.
func allEnded(all []pinned) bool {
	deadline := time.Now().Add(endLimit)
	ended := true
	for _, p := range all {
		ended = (p.PID == 0 || hasEnded(p.fd, time.Until(deadline))) && ended
	}
	return ended
}

// hasEnded reports whether the process behind a pidfd ends within a time.
func hasEnded(fd int, within time.Duration) bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(within, 0).Milliseconds()))
	return n > 0
}

// killTracer ends the process that traces another one, if both have the same real user id.
func (s *Processes) killTracer(p Process) {
	tid := s.statusOf(p.PID, "TracerPid:")
	if tid <= 0 {
		return
	}
	pid := s.statusOf(tid, "Tgid:") // TracerPid names a thread
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	// It is pinned: if it still traces the process, the pidfd is the tracer's.
	if tracer, err := s.Read(pid); err != nil || tracer.UIDs[0] != p.UIDs[0] || s.statusOf(p.PID, "TracerPid:") != tid {
		return
	}
	unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// statusOf returns a number of /proc/PID/status, 0 if it cannot be read.
func (s *Processes) statusOf(pid int, key string) int {
	data, err := s.small(pid, "status")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(field(data, key))
	return n
}

// field returns the value of the first line that begins with key.
func field(data []byte, key string) string {
	for line := range bytes.Lines(data) {
		if value, ok := bytes.CutPrefix(line, []byte(key)); ok {
			return string(bytes.TrimSpace(value))
		}
	}
	return ""
}
