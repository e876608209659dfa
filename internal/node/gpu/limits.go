package gpu

/*
#define _GNU_SOURCE // RTLD_DEFAULT
#include <dlfcn.h>
#include <stdlib.h>

// nvmlGetMemoryLimits_v1_t in nvml.h. nvmlSetMemoryLimits_v1_t consists of the first three fields.
struct limits {
	const char *cgroup;
	unsigned long long soft, hard, used;
};

// limits_call calls nvmlDeviceGetMemoryLimits_v1 or nvmlDeviceSetMemoryLimits_v1. go-nvml has opened the library with
// RTLD_GLOBAL. The result is NVML_ERROR_FUNCTION_NOT_FOUND if the library does not have the function.
static int limits_call(const char *function, unsigned gpu, struct limits *limits)
{
	int (*handle)(unsigned, void **) = dlsym(RTLD_DEFAULT, "nvmlDeviceGetHandleByIndex_v2");
	int (*call)(void *, struct limits *) = dlsym(RTLD_DEFAULT, function);
	void *device = NULL;
	int ret;

	if (!handle || !call)
		return 13;
	ret = handle(gpu, &device);
	return ret ? ret : call(device, limits);
}
*/
import "C"

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// MemoryLimits limits the device memory of cgroups.
type MemoryLimits interface {
	// SetLimit sets the hard limit of a cgroup's device memory on a GPU, in bytes. NoLimit removes the limit. cgroup is
	// the absolute path of the cgroup's directory.
	SetLimit(gpu int, cgroup string, bytes uint64) error
	// Limit returns the hard limit of a cgroup's device memory on a GPU and the memory in use, in bytes. If no limit,
	// not even NoLimit, has been set, the results are NoLimit and 0.
	Limit(gpu int, cgroup string) (limit, used uint64, err error)
}

// Limiter is a node's MemoryLimits: the driver (*NVML) or SoftMig.
type Limiter interface {
	MemoryLimits
	// LimitsProblem returns the reason why memory cannot be limited, with a remedy, or "".
	LimitsProblem() string
}

// NoLimit is the limit of a cgroup whose device memory the driver does not limit (NVML_DEVICE_MEMORY_LIMIT_MAX).
const NoLimit uint64 = math.MaxUint64

// SameLimit reports whether got, as returned by MemoryLimits.Limit, is the limit that was set. The kernel may round it
// down to whole pages.
func SameLimit(got, set uint64) bool { return got <= set && set-got < 1<<20 }

// The functions that R615 introduced. go-nvml has no bindings for them.
const (
	getLimits = "nvmlDeviceGetMemoryLimits_v1"
	setLimits = "nvmlDeviceSetMemoryLimits_v1"
)

// SetLimit implements MemoryLimits. The soft limit is always 0: a soft limit also changes the cgroups above, and the
// driver does not undo these changes when the cgroup is removed (NVIDIA, "MPS v3 Memory Partitioning").
func (n *NVML) SetLimit(gpu int, cgroup string, bytes uint64) error {
	if _, err := n.device(gpu); err != nil {
		return err
	}
	_, ret := callLimits(setLimits, gpu, cgroup, bytes)
	if err := check(ret, "limit the device memory of "+cgroup); err != nil {
		return fmt.Errorf("GPU %d: %w", gpu, err)
	}
	return nil
}

// Limit implements MemoryLimits.
func (n *NVML) Limit(gpu int, cgroup string) (limit, used uint64, err error) {
	if _, err := n.device(gpu); err != nil {
		return 0, 0, err
	}
	l, ret := callLimits(getLimits, gpu, cgroup, 0)
	switch ret {
	case nvml.SUCCESS:
		return uint64(l.hard), uint64(l.used), nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NOT_FOUND: // no limit is set: the misc and the dmem controller
		return NoLimit, 0, nil
	}
	return 0, 0, fmt.Errorf("GPU %d: %w", gpu, check(ret, "read the device memory limit of "+cgroup))
}

// LimitsProblem returns the reason why the driver cannot limit the device memory of cgroups, with a remedy, or an empty
// string if it can.
func (n *NVML) LimitsProblem() string {
	if _, ret := callLimits(getLimits, 0, "/", 0); ret != nvml.ERROR_FUNCTION_NOT_FOUND {
		return ""
	}
	version, ret := n.lib.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		version = "of an unknown version"
	}
	return fmt.Sprintf("the NVIDIA driver %s is older than R615, which introduced memory limits; upgrade the driver",
		version)
}

// callLimits calls getLimits or setLimits.
func callLimits(function string, gpu int, cgroup string, hard uint64) (C.struct_limits, nvml.Return) {
	name, path := C.CString(function), C.CString(cgroup)
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(path))
	l := C.struct_limits{cgroup: path, hard: C.ulonglong(hard)}
	ret := C.limits_call(name, C.uint(gpu), &l)
	return l, nvml.Return(ret)
}
