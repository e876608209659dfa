package gpu

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Device is the device number of a character device.
type Device struct{ Major, Minor uint32 }

func (d Device) String() string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

// Devices returns the device numbers of the files that Files returns.
func (c Caps) Devices(minor int, in Instance) ([]Device, error) {
	if in.GI <= FullGI {
		d, err := c.Device(minor)
		return []Device{d}, err
	}
	major, err := c.major()
	if err != nil {
		return nil, err
	}
	var all []Device
	for _, cp := range c.of(minor, in) {
		all = append(all, Device{major, uint32(cp.minor)})
	}
	return all, nil
}

// maxGI is the number of possible GPU instance ids: 15 on a grid of 8 units (nv-caps.c in release 595.45.04 of NVIDIA's
// open kernel modules).
const maxGI = 15

// Possible returns the capabilities of every GPU instance that the GPU with the given minor number can have: for each
// GPU instance, its own capability and the capability of its first compute instance (Caelum does not create any
// others). A process that cannot open any of these cannot use any part of the GPU.
func (c Caps) Possible(minor int) ([]Device, error) {
	var all []Device
	for gi := range maxGI {
		devices, err := c.Devices(minor, Instance{GI: gi, CIs: []int{0}})
		if err != nil {
			return nil, err
		}
		all = append(all, devices...)
	}
	return all, nil
}

// capability describes a capability of an instance: the minor number of its device and its file under /proc. modify is
// true if nvidia-modprobe sets the device file's owner and mode.
type capability struct {
	minor  int
	access string
	modify bool
}

// of returns the capabilities of an instance's GI and CIs. It reads them from the driver's files under /proc or, if
// these do not exist, applies the driver's formula (nv-caps.c of the open kernel modules 595.45.04): GI M of GPU N has
// the minor number 3 + 135 N + 9 M, and the minor number of CI K is that of its GI plus 1 plus K.
func (c Caps) of(minor int, in Instance) []capability {
	dir := filepath.Join(c.Proc, "driver/nvidia/capabilities", fmt.Sprintf("gpu%d/mig/gi%d", minor, in.GI))
	gi := 3 + 135*minor + 9*in.GI
	all := []capability{readAccess(filepath.Join(dir, "access"), gi)}
	for _, ci := range in.CIs {
		all = append(all, readAccess(filepath.Join(dir, fmt.Sprintf("ci%d/access", ci)), gi+1+ci))
	}
	return all
}

// readAccess reads a capability's file under /proc, which contains lines such as "DeviceFileMinor: 111",
// "DeviceFileMode: 292" and "DeviceFileModify: 1". If the file does not exist, the result contains the given minor
// number, and modify is false.
func readAccess(path string, minor int) capability {
	cp := capability{minor: minor, access: path}
	data, err := os.ReadFile(path)
	if err != nil {
		return cp
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		n, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			continue
		}
		switch key {
		case "DeviceFileMinor":
			cp.minor = n
		case "DeviceFileModify":
			cp.modify = n == 1
		}
	}
	return cp
}

// ErrNoCapabilities means that the kernel has no capability devices, so no process can have one open.
var ErrNoCapabilities = errors.New("/proc/devices does not list nvidia-caps; " +
	"check that an NVIDIA driver with MIG support is loaded")

// major returns the major number of nvidia-caps, which the kernel assigns when the driver is loaded.
func (c Caps) major() (uint32, error) {
	f, err := os.Open(filepath.Join(c.Proc, "devices"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) == 2 && fields[1] == "nvidia-caps" {
			n, err := strconv.ParseUint(fields[0], 10, 32)
			return uint32(n), err
		}
	}
	return 0, ErrNoCapabilities
}
