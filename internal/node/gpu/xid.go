package gpu

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Xid is an error that the driver has reported for a GPU.
type Xid struct {
	GPU int
	// Code is the number of the error in NVIDIA's Xid catalogue.
	Code int
	// GI and CI are the ids of the GPU instance and the compute instance with the error, or -1 if the driver cannot
	// assign the error to an instance. For a full GPU, GI is FullGI.
	GI, CI int
}

// XidOffBus is the code of the error that a GPU is no longer on the PCI bus.
const XidOffBus = 79

// fatalXids describes the errors after which a GPU must not start another job until it was reset. These are the errors
// whose immediate action in NVIDIA's catalogue for Ampere and newer GPUs is RESET_GPU, RESTART_VM or RESTART_BM
// (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), and 48, whose workflow there ends with a
// reset. Xid 109 is missing although its action is RESET_GPU: a program can cause it, and NVIDIA's Kubernetes device
// plugin treats it as an application error (NVIDIA/k8s-device-plugin, internal/rm/health.go). The NVLink errors 74 and
// 144 to 150 are missing because their action depends on data that NVML does not report.
var fatalXids = map[int]string{
	46:        "GPU stopped processing",
	48:        "double-bit ECC error",
	62:        "internal microcontroller halted",
	64:        "row remapping failed",
	XidOffBus: "GPU has fallen off the bus",
	95:        "uncontained memory error",
	110:       "security fault",
	119:       "GSP does not answer",
	120:       "GSP error",
	136:       "NVLink training failed",
	140:       "unrecovered ECC error",
	143:       "GPU initialization failed",
	151:       "key rotation failed",
	155:       "NVLink software error",
	156:       "resource retired",
	158:       "fatal timeout",
}

// otherXids describes frequent errors that affect only the process that caused them, or nothing.
var otherXids = map[int]string{
	13:  "graphics engine exception",
	31:  "memory page fault",
	43:  "GPU stopped processing a program",
	45:  "preemptive cleanup",
	63:  "row remapped",
	68:  "video decoder exception",
	74:  "NVLink error",
	92:  "many single-bit ECC errors",
	94:  "contained memory error",
	109: "context switch timeout",
	154: "recovery action changed",
}

// XidFatal reports whether a GPU must not start another job after this error until it was reset.
func XidFatal(code int) bool { return fatalXids[code] != "" }

// XidText returns the error's number and, if known, its description, for example "Xid 31 (memory page fault)".
func XidText(code int) string {
	what := fatalXids[code]
	if what == "" {
		what = otherXids[code]
	}
	if what == "" {
		return fmt.Sprintf("Xid %d", code)
	}
	return fmt.Sprintf("Xid %d (%s)", code, what)
}

// xidWait is the maximum duration of one call that waits for an error, in milliseconds. WatchXids may return that much
// later than its context ends.
const xidWait = 500

// WatchXids implements Hardware.
func (n *NVML) WatchXids(ctx context.Context, gpu int, report func(Xid)) error {
	d, err := n.device(gpu)
	if err != nil {
		return err
	}
	set, ret := n.lib.EventSetCreate()
	if err := check(ret, "create an event set"); err != nil {
		return fmt.Errorf("GPU %d: %w", gpu, err)
	}
	defer set.Free()
	ret = d.handle.RegisterEvents(nvml.EventTypeXidCriticalError, set)
	for ctx.Err() == nil {
		if err := check(ret, "wait for Xid errors"); err != nil {
			return fmt.Errorf("GPU %d: %w", gpu, err)
		}
		var e nvml.EventData
		switch e, ret = set.Wait(xidWait); ret {
		case nvml.ERROR_TIMEOUT:
			ret = nvml.SUCCESS
		case nvml.SUCCESS:
			// The driver reports the id 0xffffffff if it cannot assign the error to an instance (nvml.h).
			report(Xid{
				GPU: gpu, Code: int(e.EventData), GI: int(int32(e.GpuInstanceId)), CI: int(int32(e.ComputeInstanceId)),
			})
		}
	}
	return nil
}
