package gpu

import (
	"errors"

	"caelum/internal/mig"
)

// Every error of a Hardware wraps one of these errors, or contains the NVML code of another error
// of the driver.
var (
	// ErrNoRoom is NVML_ERROR_INSUFFICIENT_RESOURCES: the GPU has no free units, or the placement is taken.
	ErrNoRoom = errors.New("no room at that placement")
	// ErrInUse is NVML_ERROR_IN_USE after all retries: a process or a monitor uses the instance.
	ErrInUse = errors.New("in use")
	// ErrLost is NVML_ERROR_GPU_IS_LOST: the GPU has fallen off the bus.
	ErrLost = errors.New("GPU is lost")
	// ErrNotFound means that an instance or GPU does not exist.
	ErrNotFound = errors.New("not found")
)

// Hardware is the MIG hardware of one node. Calls on different GPUs may run at the same time, but calls that change the
// same GPU must not.
type Hardware interface {
	// GPUs discovers the GPUs and the MIG layouts that each of them allows.
	GPUs() ([]GPU, error)
	// Discover discovers one GPU again. If the GPU has no problem, later calls use the new result. The call may hang if
	// the GPU hangs.
	Discover(gpu int) GPU
	// Instances lists the GPU instances of a GPU, including those without a compute instance.
	Instances(gpu int) ([]Instance, error)
	// Exists reports whether the MIG device of an instance still exists, by UUID and GI. It makes fewer driver calls
	// than Instances.
	Exists(gpu int, in Instance) (bool, error)
	// Create creates a GPU instance at exactly this placement, and one compute instance of its full size. If the
	// compute instance cannot be created, Create destroys the GPU instance. If that fails too, the error mentions both
	// failures.
	Create(gpu int, profile string, start int) (Instance, error)
	// Destroy destroys a GPU instance and its compute instances. It retries while the instance is in use.
	Destroy(gpu, gi int) error
	// Processes lists the ids of the processes that compute on a GPU instance, including those of other PID namespaces.
	Processes(gpu, gi int) ([]int, error)
	// Meter returns a meter of the instance with this GI and UUID. The call of Meter does not
	// query the instance.
	Meter(gpu int, in Instance) (Meter, error)
}

// GPU describes a GPU at the time of its discovery.
type GPU struct {
	Index int
	// Minor is the N of /dev/nvidiaN. It determines the numbers of the capability files.
	Minor int
	UUID  string
	// Name is the device name of NVML, such as "NVIDIA A100-SXM4-40GB".
	Name string
	// Model contains the profiles and placements that the driver reports. It is nil if Problem is set.
	Model *mig.Model
	// Problem is the reason why the GPU cannot be managed, with a remedy. It is empty if the GPU can be managed.
	Problem string
}

// Instance is a GPU instance.
type Instance struct {
	GI      int
	Profile string // the driver's name without "MIG ", or "profile <id>" if the driver does not name it
	// Start and Size are in placement units of the GPU model's grid.
	Start, Size int
	// CIs contains the ids of the compute instances. An instance that Caelum created has
	// exactly one. An instance that was left by a crash may have none.
	CIs []int
	// Whole is set by Create and Instances if the only compute instance spans the GPU instance.
	Whole bool
	// UUID is the UUID of the MIG device of the first compute instance. Each new instance gets another UUID.
	UUID string
}
