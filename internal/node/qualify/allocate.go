package qualify

/*
#include <dlfcn.h>
#include <stdlib.h>

enum { no_function = -1 };

#define FUNCTION(name, symbol, ...) \
	int (*name)(__VA_ARGS__) = dlsym(lib, symbol); \
	if (!name) \
		return no_function

// allocate allocates memory on the first GPU in CUDA_VISIBLE_DEVICES and writes to it. total is the GPU's memory in
// bytes that CUDA shows. The memory is not freed. The result is that of CUDA's driver API, or no_function.
static int allocate(const char *library, size_t bytes, int managed, size_t *total)
{
	void *lib = dlopen(library, RTLD_NOW), *context;
	unsigned long long address;
	size_t left;
	int device, ret;

	if (!lib)
		return no_function;
	FUNCTION(init, "cuInit", unsigned);
	FUNCTION(get, "cuDeviceGet", int *, int);
	FUNCTION(retain, "cuDevicePrimaryCtxRetain", void **, int);
	FUNCTION(current, "cuCtxSetCurrent", void *);
	FUNCTION(info, "cuMemGetInfo_v2", size_t *, size_t *);
	FUNCTION(alloc, "cuMemAlloc_v2", unsigned long long *, size_t);
	FUNCTION(alloc_managed, "cuMemAllocManaged", unsigned long long *, size_t, unsigned);
	FUNCTION(set, "cuMemsetD8_v2", unsigned long long, unsigned char, size_t);
	FUNCTION(synchronize, "cuCtxSynchronize", void);
	if ((ret = init(0)) || (ret = get(&device, 0)) || (ret = retain(&context, device)) || (ret = current(context)) ||
	    (ret = info(&left, total)))
		return ret;
	ret = managed ? alloc_managed(&address, bytes, 1) : alloc(&address, bytes); // 1 is CU_MEM_ATTACH_GLOBAL
	if (ret || (ret = set(address, 1, bytes)))
		return ret;
	return synchronize();
}
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"caelum/internal/node/jobcgroup"
)

// allocation is the answer of the helper's "allocate" command.
type allocation struct {
	Result   int    // of CUDA, or a negative number
	TotalMiB uint64 // the GPU's memory according to CUDA
}

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const outOfMemory = 2

// cudaLibrary is the library of CUDA's driver API, which belongs to the driver.
const cudaLibrary = "libcuda.so.1"

func (a allocation) String() string {
	switch a.Result {
	case 0:
		return "success"
	case outOfMemory:
		return "out of memory"
	case C.no_function:
		return "that " + cudaLibrary + " is missing or incomplete; install the driver's package for CUDA"
	}
	return fmt.Sprintf("CUDA error %d", a.Result)
}

// allocate is the helper's "allocate" command.
func allocate(library string, mib int, managed bool) allocation {
	path, on, total := C.CString(library), C.int(0), C.size_t(0)
	defer C.free(unsafe.Pointer(path))
	if managed {
		on = 1
	}
	ret := C.allocate(path, C.size_t(mib)<<20, on, &total)
	return allocation{int(ret), uint64(total) >> 20}
}

// allocate starts a process that allocates memory on the GPU and keeps it until its end. The process is in the child of
// a job's cgroup, on which the controller is not enabled. kind is "device" or "managed".
func (l *limits) allocate(job int, mib uint64, kind string) (a allocation, err error) {
	dir, err := os.Open(filepath.Join(l.jobs[job].Path, jobcgroup.Child))
	if err != nil {
		return a, err
	}
	defer dir.Close()
	cmd := l.r.command("allocate", l.r.opt.cuda, fmt.Sprint(mib), kind)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+l.c.uuid)
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	h, err := launch(cmd)
	if err != nil {
		return a, err
	}
	l.open = append(l.open, h)
	line, err := h.wait()
	if err == nil {
		err = json.Unmarshal([]byte(line), &a)
	}
	return a, err
}
