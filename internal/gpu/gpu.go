package gpu

import (
	"errors"

	"caelum/internal/mig"
)

// Every error of a Hardware either wraps ErrNoRoom, ErrInUse, ErrLost or ErrNotFound, or contains the NVML code of
// another error of the driver.
var (
	// ErrNoRoom means NVML_ERROR_INSUFFICIENT_RESOURCES: the GPU has no free units, or the placement is occupied.
	ErrNoRoom = errors.New("no room at that placement")
	// ErrInUse means NVML_ERROR_IN_USE after all retries: a process or a monitoring program uses the instance.
	ErrInUse = errors.New("in use")
	// ErrLost means NVML_ERROR_GPU_IS_LOST: the driver can no longer access the GPU.
	ErrLost = errors.New("GPU is lost")
	// ErrNotFound means that an instance or GPU does not exist.
	ErrNotFound = errors.New("not found")
)

// Hardware is the MIG hardware of one node. Several goroutines may call the methods of a Hardware, but only one call at
// a time may change the same GPU.
type Hardware interface {
	// GPUs returns all GPUs, with the profiles and placements that each GPU supports.
	GPUs() ([]GPU, error)
	// Discover returns the current data of one GPU. If the GPU has no problem, later calls of the other methods use
	// these data. If the GPU hangs, Discover may hang.
	Discover(gpu int) GPU
	// Instances lists the GPU instances of a GPU, including GPU instances without a compute instance.
	Instances(gpu int) ([]Instance, error)
	// Exists reports whether the MIG device of an instance still exists, according to the UUID and GI of the instance.
	// Exists makes fewer driver calls than Instances.
	Exists(gpu int, in Instance) (bool, error)
	// Create creates a GPU instance at exactly the given placement, and in the GPU instance one compute instance of the
	// full size. If the driver cannot create the compute instance, Create destroys the GPU instance. If the destruction
	// also fails, the error contains both failures. For the profile mig.Full, Create switches MIG mode off.
	Create(gpu int, profile string, start int) (Instance, error)
	// Destroy destroys a GPU instance and its compute instances. While the instance is in use, Destroy retries for
	// about 1.3 s. For FullGI, Destroy switches MIG mode on.
	Destroy(gpu, gi int) error
	// Processes returns the ids of the compute processes on a GPU instance, including processes in other PID
	// namespaces.
	Processes(gpu, gi int) ([]int, error)
	// Linked reports whether NVLinks connect two GPUs. Linked returns an error if the MIG mode of one of the GPUs is
	// on.
	Linked(a, b int) (bool, error)
	// Meter returns a meter for the instance with the GI and UUID of in. Meter does not query the instance.
	Meter(gpu int, in Instance) (Meter, error)
}

// GPU describes a GPU at the time of its discovery.
type GPU struct {
	Index int
	// Minor is the number N in /dev/nvidiaN, which determines the numbers of the capability files.
	Minor int
	UUID  string
	// Name is the device name according to NVML, such as "NVIDIA A100-SXM4-40GB".
	Name string
	// Model contains the profiles and placements that the driver reports. Model is nil if the driver reports none.
	Model *mig.Model
	// Full is true if the MIG mode of the GPU is off.
	Full bool
	// Reset is true if the driver must reset the GPU to switch the MIG mode.
	Reset bool
	// MemoryMiB is the memory of the GPU in MiB.
	MemoryMiB uint64
	// Problem is the reason why the GPU cannot be managed, and a remedy. Problem is empty if the GPU can be managed. If
	// Full is true, Problem says that MIG mode is off, and Model contains the profiles that the GPU would have.
	Problem string
}

// Instance is a GPU instance.
type Instance struct {
	GI      int
	Profile string // the driver's name without "MIG ", or "profile <id>" if the driver provides no name
	// Start and Size are in placement units of the GPU model's grid.
	Start, Size int
	// CIs contains the ids of the compute instances. An instance that Caelum created has exactly one compute instance.
	// After a crash, an instance may have no compute instance.
	CIs []int
	// Whole is true if the only compute instance has the full size of the GPU instance. Create and Instances set Whole.
	Whole bool
	// UUID is the UUID of the MIG device of the first compute instance. Each new instance has a new UUID.
	UUID string
}
