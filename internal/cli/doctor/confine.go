package doctor

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Confinement describes how this host isolates two jobs of the same user from each other. Program, Tasks and Problem
// are set only with cgroup v2.
type Confinement struct {
	// Cgroup is the version of the cgroups that control access to devices, or 0 if the host has no such cgroups.
	Cgroup int
	// Program is true if the plugin's BPF program is attached to the cgroup that contains all steps.
	Program bool
	// Tasks is true if any job's tasks are running.
	Tasks bool
	// Problem explains why the BPF programs could not be listed.
	Problem string
}

// programName is the name of the plugin's BPF program (spank/bpf.c).
const programName = "caelum"

// readConfinement reads the cgroups below mountpoint. The argument slice is the value of the CgroupSlice parameter in
// cgroup.conf, introduced in Slurm 25.11.
func readConfinement(mountpoint, slice, node string) Confinement {
	mountpoint = cmp.Or(mountpoint, "/sys/fs/cgroup")
	slice = cmp.Or(slice, "system.slice")
	var fs unix.Statfs_t
	if err := unix.Statfs(mountpoint, &fs); err == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		return readScope(filepath.Join(mountpoint, slice), node)
	}
	if _, err := os.Stat(filepath.Join(mountpoint, "devices", "cgroup.procs")); err == nil {
		return Confinement{Cgroup: 1}
	}
	return Confinement{}
}

// readScope reads the cgroup that contains all steps. slurmd creates this cgroup when it starts, and the plugin
// attaches its program to it. If several slurmd daemons run on a host, the cgroup's name includes the node's name.
func readScope(slice, node string) Confinement {
	c := Confinement{Cgroup: 2}
	for _, name := range []string{node + "_slurmstepd.scope", "slurmstepd.scope"} {
		path := filepath.Join(slice, name)
		dir, err := os.Open(path)
		if err != nil {
			continue
		}
		defer dir.Close()
		// The paths are <job>/<step>/user/task_<i>. A job's extern step also has this directory, but slurmstepd creates
		// no task in it.
		tasks, _ := filepath.Glob(filepath.Join(path, "*", "step_*", "user", "task_*"))
		c.Tasks = slices.ContainsFunc(tasks, func(task string) bool {
			return filepath.Base(filepath.Dir(filepath.Dir(task))) != "step_extern"
		})
		names, err := devicePrograms(dir)
		if err != nil {
			c.Problem = fmt.Sprintf("couldn't list the BPF programs of %s: %v", path, err)
		}
		c.Program = slices.Contains(names, programName)
		return c
	}
	return c
}

// maxPrograms is the kernel's BPF_CGROUP_MAX_PROGS.
const maxPrograms = 64

// devicePrograms returns the names of the device BPF programs that are attached to a cgroup. The kernel answers this
// query only for root.
func devicePrograms(cgroup *os.File) ([]string, error) {
	var ids [maxPrograms]uint32
	query := struct {
		target, attachType, queryFlags, attachFlags uint32
		ids                                         uint64
		count, _                                    uint32
	}{target: uint32(cgroup.Fd()), attachType: unix.BPF_CGROUP_DEVICE, ids: address(&ids), count: maxPrograms}
	if _, err := bpf(unix.BPF_PROG_QUERY, &query); err != nil {
		return nil, err
	}
	runtime.KeepAlive(&ids)
	var names []string
	for _, id := range ids[:min(query.count, maxPrograms)] {
		name, err := nameOfProgram(id)
		if err == unix.ENOENT {
			continue // slurmd or the plugin may have detached the program after the first query
		} else if err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}

// nameOfProgram returns the name of the BPF program with the given id.
func nameOfProgram(id uint32) (string, error) {
	get := struct{ id, next, flags, _ uint32 }{id: id}
	fd, err := bpf(unix.BPF_PROG_GET_FD_BY_ID, &get)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var info struct { // the name field of struct bpf_prog_info, and the 64 bytes before it
		_    [64]byte
		name [16]byte
	}
	ask := struct {
		fd, size uint32
		info     uint64
	}{fd: uint32(fd), size: uint32(unsafe.Sizeof(info)), info: address(&info)}
	_, err = bpf(unix.BPF_OBJ_GET_INFO_BY_FD, &ask)
	runtime.KeepAlive(&info)
	name, _, _ := bytes.Cut(info.name[:], []byte{0})
	return string(name), err
}

func address[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// bpf makes the bpf(2) system call. The argument attr holds the first fields of union bpf_attr.
func bpf[T any](command uintptr, attr *T) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}
