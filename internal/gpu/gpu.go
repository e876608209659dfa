// Package gpu is the node's MIG hardware behind one small interface: what is there, make an instance at a placement,
// destroy one. It decides nothing: which placement, and what may be destroyed, is the agent's.
package gpu

import (
	"errors"

	"caelum/internal/mig"
)

// Sentinel errors. Every error of a Hardware wraps one of them or is a fault of the driver that names its NVML code.
var (
	// ErrNoRoom is NVML_ERROR_INSUFFICIENT_RESOURCES: no room, or the placement is taken.
	ErrNoRoom = errors.New("no room at that placement")
	// ErrInUse is NVML_ERROR_IN_USE that outlasted the retries: a process or a monitor holds the instance.
	ErrInUse = errors.New("in use")
	// ErrLost is NVML_ERROR_GPU_IS_LOST: the GPU has fallen off the bus.
	ErrLost = errors.New("GPU is lost")
	// ErrNotFound is an instance or GPU that does not exist.
	ErrNotFound = errors.New("not found")
)

// Hardware is the MIG side of one node. Calls on different GPUs may run at the same time; calls that change one GPU
// must not.
type Hardware interface {
	// GPUs discovers the GPUs and what MIG layouts each of them allows.
	GPUs() ([]GPU, error)
	// Discover asks one GPU again. If it has no problem, later calls use what was found. It may hang with the GPU.
	Discover(gpu int) GPU
	// Instances lists the GPU instances of a GPU, those without a compute instance included.
	Instances(gpu int) ([]Instance, error)
	// Exists reports whether the MIG device of an instance is still there, by its UUID and GI. It asks less than
	// Instances does.
	Exists(gpu int, in Instance) (bool, error)
	// Create makes a GPU instance at exactly this placement and one compute instance of its full size.
	// What it made is undone when it fails half way, unless that fails too.
	Create(gpu int, profile string, start int) (Instance, error)
	// Destroy removes a GPU instance with its compute instances, retrying while it is in use.
	Destroy(gpu, gi int) error
	// Processes lists the ids of the processes that compute on a GPU instance, those of other PID namespaces too.
	Processes(gpu, gi int) ([]int, error)
	// Meter makes a meter of an instance, for its GI and UUID; it asks nothing of the instance yet.
	Meter(gpu int, in Instance) (Meter, error)
}

// GPU is a GPU as discovery found it.
type GPU struct {
	Index int
	// Minor is N of /dev/nvidiaN, which also numbers the capability files.
	Minor int
	UUID  string
	// Name is the device name of NVML, such as "NVIDIA A100-SXM4-40GB".
	Name string
	// Model is what the driver says the GPU can hold; nil if Problem is set.
	Model *mig.Model
	// Problem says why the GPU cannot be managed and what to do, or is empty.
	Problem string
}

// Instance is a GPU instance.
type Instance struct {
	GI      int
	Profile string // the driver's name without "MIG ", or "profile <id>" if the driver does not name it
	// Start and Size are in placement units of the GPU model's grid.
	Start, Size int
	// CIs are the ids of its compute instances: exactly one in an instance that Caelum made, none in one left by a
	// crash.
	CIs []int
	// Whole is set if its only compute instance spans it. Create and Instances set it.
	Whole bool
	// UUID names the MIG device of the first compute instance. It lives no longer than the instance.
	UUID string
}
