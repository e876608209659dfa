package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Confinement is what keeps two jobs of one user apart on this host.
type Confinement struct {
	// Cgroup is the version that refuses devices here; 0 if there is none.
	Cgroup int
	// Problem says why version 2 cannot.
	Problem string
}

// ancestor is the number of bpf_get_current_ancestor_cgroup_id in linux/bpf.h.
var ancestor int32 = 123

func readConfinement(mountpoint string) Confinement {
	mountpoint = cmp.Or(mountpoint, "/sys/fs/cgroup")
	var fs unix.Statfs_t
	if err := unix.Statfs(mountpoint, &fs); err == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		c := Confinement{Cgroup: 2}
		if err := tryDeviceProgram(); err != nil {
			c.Problem = err.Error()
		}
		return c
	}
	if _, err := os.Stat(filepath.Join(mountpoint, "devices", "cgroup.procs")); err == nil {
		return Confinement{Cgroup: 1}
	}
	return Confinement{}
}

// tryDeviceProgram loads, and at once drops, a program that does what the plugin's needs and not every kernel has: ask for the
// cgroups above a task when it opens a device.
func tryDeviceProgram() error {
	insn := []uint64{
		instruction(unix.BPF_ALU64|unix.BPF_MOV|unix.BPF_K, 1, 1), // r1 = 1
		instruction(unix.BPF_JMP|unix.BPF_CALL, 0, ancestor),      // r0 = its id
		instruction(unix.BPF_ALU64|unix.BPF_MOV|unix.BPF_K, 0, 1),
		instruction(unix.BPF_JMP|unix.BPF_EXIT, 0, 0),
	}
	license := []byte{0}
	attr := struct {
		progType, insnCount uint32
		insns, license      uint64
		_                   [96]byte
	}{
		progType: unix.BPF_PROG_TYPE_CGROUP_DEVICE, insnCount: uint32(len(insn)),
		insns: uint64(uintptr(unsafe.Pointer(&insn[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(insn)
	runtime.KeepAlive(license)
	switch {
	case errno == 0:
		return unix.Close(int(fd))
	case errno == unix.EINVAL:
		return errors.New("this kernel does not tell BPF programs for devices the cgroups above a task")
	default:
		return fmt.Errorf("this kernel takes no BPF program for devices: %w", errno)
	}
}

// instruction is struct bpf_insn: code, registers, offset, immediate.
func instruction(code uint8, dst uint8, imm int32) uint64 {
	return uint64(code) | uint64(dst)<<8 | uint64(uint32(imm))<<32
}
