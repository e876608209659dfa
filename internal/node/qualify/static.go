package qualify

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"caelum/internal/node/gpu"
)

// static makes the checks that create nothing: A4 (the table of minors), A6, A7, A16, A23, A24 and A31.
func (r *run) static() {
	hasProfiles := func(c *card) bool { return len(c.profiles) > 0 }
	if r.divided() == nil {
		r.rep.without["F"] = "no fractions"
	} else if !slices.ContainsFunc(r.cards, hasProfiles) {
		r.rep.without["A"] = "no GPU with MIG"
	}
	r.minorTable()
	r.otherFiles()
	r.scrub()
	for _, c := range r.cards {
		if len(c.profiles) == 0 {
			r.rep.note("GPU %d, %s: no MIG profiles", c.index, c.name)
			continue
		}
		c.describe(r.rep)
		if !c.mig {
			r.rep.note("GPU %d, %s: MIG mode is off, so nothing is created on it; turn it on with "+
				"`nvidia-smi -i %d -mig 1`, and run again", c.index, c.name, c.index)
			continue
		}
		r.rep.note("GPU %d, %s: MIG mode is on, %d instances of other programs", c.index, c.name, len(c.foreign))
		if _, ret := c.dev.GetComputeRunningProcesses(); ret == nvml.ERROR_NO_PERMISSION {
			r.rep.differs("A7", "GPU %d: the process list answered %s", c.index, nvml.ErrorString(ret))
		} else if ret == nvml.SUCCESS {
			r.rep.holds("A7", "root can read the process lists")
		}
		r.peers(c)
	}
}

// minorTable compares mig-minors with the formula (A4).
func (r *run) minorTable() {
	data, err := os.ReadFile(filepath.Join(r.opt.Proc, "driver/nvidia-caps/mig-minors"))
	if err != nil {
		r.rep.skip("A4", "couldn't read mig-minors")
		return
	}
	seen := map[int]int{}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		name, number, _ := strings.Cut(s.Text(), " ")
		got, err := strconv.Atoi(number)
		var g, gi, ci int
		if n, _ := fmt.Sscanf(name, "gpu%d/gi%d/ci%d/access", &g, &gi, &ci); n < 3 {
			ci = -1
			if n < 2 {
				continue // config and monitor
			}
		}
		seen[g]++
		if want := formula(g, gi, ci); err != nil || got != want {
			r.rep.differs("A4", "%s has the minor number %s in mig-minors, by the formula %d", name, number, want)
		}
	}
	for _, c := range r.cards {
		if seen[c.minor] == 0 {
			r.rep.differs("A4", "mig-minors does not list gpu%d", c.minor)
		} else {
			r.rep.holds("A4", "the minor numbers in mig-minors follow the formula")
		}
	}
}

// otherFiles looks for capability files of other programs that exist in the driver but not in /dev (A6).
func (r *run) otherFiles() {
	missing := false
	for _, g := range r.caps.General() {
		if g.Managed || g.Name == gpu.MIGConfig || g.Name == gpu.MIGMonitor || r.caps.Unused(g.Name, gpu.UnitDirs) {
			continue // nvidia-modprobe creates the file, A7 is about it, or no program needs it
		}
		if _, err := os.Lstat(g.Path); err != nil {
			missing = true
			r.rep.differs("A6", "the driver has %s, but %s does not exist", filepath.Base(g.Name), g.Path)
		}
	}
	if !missing {
		r.rep.holds("A6", "no file of Fabric Manager or IMEX is missing")
	}
}

// scrub reads the driver's parameters (A16).
func (r *run) scrub() {
	params, err := os.ReadFile(filepath.Join(r.opt.Proc, "driver/nvidia/params"))
	switch {
	case err != nil:
		r.rep.skip("A16", "couldn't read the driver's parameters")
	case gpu.Unscrubbed(string(params)):
		r.rep.differs("A16", gpu.ScrubKey+" is set")
	default:
		r.rep.holds("A16", gpu.ScrubKey+" is not set; no memory was read")
	}
	if r.has("nvmlDeviceGetVirtualizationMode") {
		for _, c := range r.cards {
			mode, ret := c.dev.GetVirtualizationMode()
			if ret == nvml.SUCCESS && (mode == nvml.GPU_VIRTUALIZATION_MODE_HOST_VGPU ||
				mode == nvml.GPU_VIRTUALIZATION_MODE_HOST_VSGA) {
				r.rep.differs("A16", "GPU %d is a vGPU host, where the driver does not overwrite freed memory", c.index)
			}
		}
	}
}

// has reports whether the driver's library has a function. The dynamic linker would end the process at the call of a
// missing one.
func (r *run) has(symbol string) bool { return r.lib.Extensions().LookupSymbol(symbol) == nil }

// peers checks that a GPU with MIG mode on has no NVLink peers (A31).
func (r *run) peers(c *card) {
	if len(r.cards) < 2 || !r.has("nvmlDeviceGetP2PStatus") {
		r.rep.skip("A31", "needs two GPUs")
		return
	}
	for _, other := range r.cards {
		if other == c {
			continue
		}
		status, ret := c.dev.GetP2PStatus(other.dev, nvml.P2P_CAPS_INDEX_NVLINK)
		switch {
		case ret != nvml.SUCCESS:
			r.rep.skip("A31", "the P2P status answered %s", nvml.ErrorString(ret))
		case status == nvml.P2P_STATUS_OK:
			r.rep.differs("A31", "GPU %d has an NVLink to GPU %d", c.index, other.index)
		default:
			r.rep.holds("A31", "no GPU with MIG mode on has an NVLink peer")
		}
	}
}

// deviceMinor returns the minor number of a device file.
func deviceMinor(path string) (int, bool) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return int(unix.Minor(st.Rdev)), err == nil
}
