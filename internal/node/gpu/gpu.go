package gpu

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"caelum/internal/core/mig"
)

// Every error from a Hardware wraps ErrNoRoom, ErrInUse, ErrLost or ErrNotFound, or contains the NVML code of another
// driver error.
var (
	// ErrNoRoom means NVML_ERROR_INSUFFICIENT_RESOURCES: the GPU has no free units, or the placement is occupied.
	ErrNoRoom = errors.New("no room at that placement")
	// ErrInUse means NVML_ERROR_IN_USE after all retries: a process or a monitoring program is using the instance.
	ErrInUse = errors.New("in use")
	// ErrLost means NVML_ERROR_GPU_IS_LOST: the driver can no longer access the GPU.
	ErrLost = errors.New("GPU is lost")
	// ErrNotFound means that an instance or GPU does not exist.
	ErrNotFound = errors.New("not found")
)

// Hardware is the MIG hardware of one node. Its methods may be called concurrently, but only one call at a time may
// change a given GPU.
type Hardware interface {
	// GPUs returns all GPUs, with the profiles and placements that each GPU supports.
	GPUs() ([]GPU, error)
	// Discover returns the current data of one GPU. Unless the GPU has a problem, later calls to the other methods use
	// this data. If the GPU hangs, Discover may hang as well.
	Discover(gpu int) GPU
	// Instances lists a GPU's instances, including GPU instances without a compute instance.
	Instances(gpu int) ([]Instance, error)
	// Exists reports whether an instance and its compute instance still exist unchanged. It makes fewer driver calls
	// than Instances. If another program has changed the GPU's instances, the result may be false for an instance that
	// Instances lists.
	Exists(gpu int, in Instance) (bool, error)
	// Create creates a GPU instance at exactly the given placement and, in it, one compute instance of the full size.
	// If the driver cannot create the compute instance, Create destroys the GPU instance; if this fails too, the
	// error shows both failures, and the result describes the GPU instance that remains. Otherwise, the result of a
	// failed call is the zero value. An error that wraps ErrNoRoom or ErrNotFound means that the driver created
	// nothing. For the mig.Full profile, Create switches MIG mode off.
	Create(gpu int, profile string, start int) (Instance, error)
	// Remake destroys the compute instances of a GPU instance and creates one of the full size, with a new UUID. The
	// driver refuses to destroy a compute instance as long as any client is subscribed to it, even a client that has
	// closed its capability files. If an error does not wrap ErrInUse, the GPU instance may have no compute instance.
	Remake(gpu int, in Instance) (Instance, error)
	// Destroy destroys a GPU instance and its compute instances, retrying for about 1.3 s as long as the instance is in
	// use. For FullGI, it switches MIG mode on.
	Destroy(gpu, gi int) error
	// Processes returns the ids of the compute and graphics processes on a GPU instance, including processes in other
	// PID namespaces.
	Processes(gpu, gi int) ([]int, error)
	// Linked reports whether two GPUs are connected by NVLinks. It returns an error if MIG mode is on for either GPU.
	Linked(a, b int) (bool, error)
	// Fabric returns nil if CUDA programs can use a GPU whose MIG mode is off. The error wraps ErrFabric if the GPU has
	// not registered with the fabric of its NVSwitches. It is nil for GPUs without NVSwitches.
	Fabric(gpu int) error
	// WatchXids calls report for each Xid error of a GPU until ctx is done, and then returns nil. It returns an error
	// if the driver does not report such errors or has lost the GPU.
	WatchXids(ctx context.Context, gpu int, report func(Xid)) error
	// Persistent reports whether persistence mode is on, which keeps the driver from resetting a GPU.
	Persistent(gpu int) bool
	// Meter returns a meter for the instance identified by in.GI and in.UUID. It does not query the instance.
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
	// Model holds the profiles and placements that the driver reports, or is nil if it reports none.
	Model *mig.Model
	// Full is true if the GPU's MIG mode is off, or if it does not support MIG.
	Full bool
	// Reset is true if the driver must reset the GPU to switch its MIG mode.
	Reset bool
	// Virtual is true if the node is a virtual machine. The driver then accepts a switch of MIG mode to off, but the
	// GPU is unusable until the machine reboots, so Create refuses to switch it off (ErrVirtual).
	Virtual bool
	// MemoryMiB is the GPU's memory in MiB.
	MemoryMiB uint64
	// Undivided is the reason why a GPU that the site wants to divide into fractions has none, or "".
	Undivided string
	// Problem is the reason why the GPU cannot be managed, with a remedy. It is empty if the GPU can be managed. If
	// Full is true, Problem says that MIG mode is off, and Model holds the profiles that the GPU would have with MIG
	// mode on.
	Problem string
}

// WithoutMIG is the Problem of a GPU that does not support MIG. Its Model has no profiles, or is nil if another GPU of
// the node supports MIG.
const WithoutMIG = "this GPU does not support MIG"

// Lost is the Problem of a GPU that the driver can no longer access.
const Lost = "the GPU is lost; drain the node and reboot it"

// WithdrawnPrefix is the prefix of the Problem of a GPU with a fatal Xid error.
const WithdrawnPrefix = "withdrawn after "

// Withdrawn returns the Problem of GPU i after a fatal Xid error.
func Withdrawn(i, code int) string {
	return fmt.Sprintf(WithdrawnPrefix+"%s; drain the node and reboot it, or reset the GPU and run `caelum readmit %d`",
		XidText(code), i)
}

// unreadable is the prefix of the Problem of a GPU that the driver cannot open or read.
const unreadable = "couldn't "

// Broken reports whether a Problem means that the GPU is faulty. All other problems follow from the GPU's model or MIG
// mode, and a site may use such GPUs deliberately.
func Broken(problem string) bool {
	return problem == Lost || strings.HasPrefix(problem, unreadable) || strings.HasPrefix(problem, WithdrawnPrefix)
}

// Instance is a GPU instance.
type Instance struct {
	GI      int
	Profile string // the driver's name without "MIG ", or "profile-<id>" if the driver does not provide a name
	// Start and Size are in placement units of the GPU model's grid.
	Start, Size int
	// CIs lists the ids of the compute instances. An instance that Caelum created has exactly one, or none after a
	// crash.
	CIs []int
	// SMs is the number of SMs of the compute instances, and MaxSMs the number of SMs of a compute instance of the full
	// size. Both are 0 for the mig.Full profile. They are set by Create, Remake and Instances.
	SMs, MaxSMs int
	// Whole is true if the only compute instance has the full size of the GPU instance. It is set by Create, Remake and
	// Instances.
	Whole bool
	// UUID is the UUID of the first compute instance's MIG device. Each new instance has a new UUID.
	UUID string
}

// FractionGI returns the GPU instance id that represents a fraction: a part of a GPU without MIG. serial is its number
// among the fractions of the GPU, which does not change while it exists. No real GPU instance has this id.
func FractionGI(serial int) int { return FullGI - 1 - serial }

// Units returns a mask of the instance's units.
func (in Instance) Units() uint64 { return (uint64(1)<<in.Size - 1) << in.Start }

// Fraction reports whether the instance is a fraction.
func (in Instance) Fraction() bool { return in.GI < FullGI }
