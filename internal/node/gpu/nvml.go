package gpu

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/trust"
)

// NVML implements Hardware with the driver's libnvidia-ml.so.1.
type NVML struct {
	lib     nvml.Interface
	caps    Caps // the zero value if the process does not run as root
	devices []atomic.Pointer[device]
}

// device holds a GPU's handle and the profiles that Create needs. Except for learned, the devices in NVML.devices never
// change.
type device struct {
	handle     nvml.Device
	minor      int
	name       string // the device name
	named      bool   // true if the driver has reported profile names
	uuid       string
	virtual    bool // see GPU.Virtual
	grid       int  // units
	profiles   map[string]nvml.GpuInstanceProfileInfo
	placements map[string]map[int]nvml.GpuInstancePlacement // by profile and start
	names      map[uint32]string
	caps       Caps
	learned    *learned
}

// The session is never reopened. Everything that decides on an instance is asked by GPU instance id and compute
// instance id, which the kernel module answers from its own tables. Only MIG devices may be stale in a long session
// after another program has changed a GPU, and Caelum uses them only to read UUIDs. A new session would invalidate the
// handles that other goroutines are using.

// OpenNVML loads the library from path or, if path is empty, from the linker's search path. If the process runs as
// root, OpenNVML rejects a path that other users can change, and prepares the capability files in caps before it
// initializes the library, because the library looks for mig/config and mig/monitor only once. If they cannot be
// prepared, the agent reports the reason (Caps.Prepare), and the driver refuses the calls that need them.
func OpenNVML(path string, caps Caps) (*NVML, error) {
	lib := nvml.New()
	if path != "" {
		if os.Geteuid() == 0 && strings.Contains(path, "/") { // see dlopen(3)
			var err error
			if path, err = trust.Path(path); err != nil {
				return nil, fmt.Errorf("couldn't open NVML: %w", err)
			}
		}
		lib = nvml.New(nvml.WithLibraryPath(path))
	}
	if os.Geteuid() == 0 {
		caps.Prepare() // the agent repeats the call and logs its error
	} else {
		caps = Caps{}
	}
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf(
			"couldn't open NVML: %s; check with `nvidia-smi` that the NVIDIA driver is loaded",
			nvml.ErrorString(ret),
		)
	}
	return &NVML{lib: lib, caps: caps}, nil
}

// Close unloads the library.
func (n *NVML) Close() { n.lib.Shutdown() }

// Processes implements Hardware. If the caller is root, the driver lists the processes of all instances of the GPU
// (nvml.h).
func (n *NVML) Processes(gpu, gi int) ([]int, error) {
	d, err := n.device(gpu)
	if err != nil {
		return nil, err
	}
	all, err := n.processes(d.handle)
	if err != nil {
		return nil, fmt.Errorf("GPU %d: %w", gpu, err)
	}
	var pids []int
	for _, p := range all {
		// The driver reports the id 0xffffffff for a process on a GPU whose MIG mode is off (nvml.h).
		if int(int32(p.GpuInstanceId)) == gi && !slices.Contains(pids, int(p.Pid)) {
			pids = append(pids, int(p.Pid))
		}
	}
	return pids, nil
}

// processes lists the compute processes and the graphics processes of a GPU or a MIG device. A program can be in both
// lists.
func (n *NVML) processes(dev nvml.Device) ([]nvml.ProcessInfo, error) {
	all, ret := dev.GetComputeRunningProcesses()
	if err := check(ret, "list the processes"); err != nil {
		return nil, err
	}
	if n.lib.Extensions().LookupSymbol("nvmlDeviceGetGraphicsRunningProcesses") != nil {
		return all, nil // go-nvml would terminate the process
	}
	graphics, ret := dev.GetGraphicsRunningProcesses()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return all, nil
	}
	return append(all, graphics...), check(ret, "list the graphics processes")
}

// retryInUse repeats a call for about 1.3 s as long as it returns ErrInUse. After a job ends, about one destroy call in
// 40 initially returns ErrInUse. A create call returns ErrInUse while a profiler has a channel open. If a call still
// returns ErrInUse after 1.3 s, a process or a monitoring program is using the instance.
func retryInUse(call func() error) error {
	wait := 10 * time.Millisecond
	for {
		err := call()
		if !errors.Is(err, ErrInUse) || wait > 700*time.Millisecond {
			return err
		}
		time.Sleep(wait)
		wait *= 2
	}
}

func (n *NVML) device(gpu int) (*device, error) {
	if gpu >= 0 && gpu < len(n.devices) {
		if d := n.devices[gpu].Load(); d.handle != nil {
			return d, nil
		}
	}
	return nil, fmt.Errorf("GPU %d: %w", gpu, ErrNotFound)
}

// check converts an NVML return code to one of this package's errors, whose message is "couldn't" followed by action.
func check(ret nvml.Return, action string) error {
	var class error
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_INSUFFICIENT_RESOURCES:
		class = ErrNoRoom
	case nvml.ERROR_IN_USE:
		class = ErrInUse
	case nvml.ERROR_GPU_IS_LOST:
		class = ErrLost
	case nvml.ERROR_NOT_FOUND:
		class = ErrNotFound
	default:
		return fmt.Errorf("couldn't %s: %s (NVML error %d)", action, nvml.ErrorString(ret), int(ret))
	}
	return fmt.Errorf("couldn't %s: %w", action, class)
}
