// Package qualify checks on a drained GPU node whether NVIDIA's driver behaves as Caelum assumes. docs/driver.md lists
// the assumptions, A1 to A32 and F1 to F12; the result of a run is one row for each. The package calls NVML directly:
// it tests the driver, not Caelum's own layer. Only the capability files are made with the agent's code (gpu.Caps),
// because A1, A4 and A5 are about these files, and the limits of cgroups are set with it (gpu.NVML, package jobcgroup).
//
// A run has these states:
//
//	locked     the journal in the state directory is open and locked; the remains of an earlier run are known
//	begun      the journal has the device files, the instances and whether the agent is to be started again
//	undone     the remains of an earlier run are removed, by name; only then does this run create anything
//	checking   instances are created and destroyed: on all GPUs in parallel for the placements (places.go), then one
//	           check after another on the first GPU (users.go, program.go), then the MIG mode of each GPU (mode.go),
//	           then the memory limits of cgroups on the first GPU with fractions (limits.go)
//	restoring  this run's instances are destroyed, and files removed or given their earlier owners and modes
//	restored   the journal is removed, the agent is started
//
// The journal has a line before each change, and another after it:
//
//	create GPU profile start     before the call: this placement was free
//	created GI                   the call returned
//	uuid UUID                    the compute instance exists
//	gone                         the instance was destroyed, or none was created
//	mode GPU, mode-ok GPU        before MIG mode is switched off, and after it is on again
//	access PATH TEXT             before a DeviceFileModify is changed
//	cgroups GPU PATHS            before two cgroups are created, with the controller enabled in the children of PATHS
//	cgroups-gone                 the cgroups were removed, and the controller disabled
//
// Failures and their effects:
//
//   - ctrl-C or SIGTERM: the present call ends, then the run restores the node.
//   - SIGKILL: the next run reads the journal. It removes an instance only if its GPU, profile, start and, as far as
//     the journal has them, its GPU instance id and MIG UUID agree. An instance without a "created" line must have no
//     compute instance, because the run had no time to create one. After a reboot, nothing is removed. Helper
//     processes are killed together with the run.
//   - A call fails: the row differs, and the run goes on. If the call left an instance, it is removed.
//   - A destroy fails: the run ends, tries again while it restores the node, and otherwise returns ErrLeft. The
//     journal stays, so that the next run tries again.
//   - The driver refuses all instances of a GPU, because a program uses it or for lack of permission: the GPU's
//     remaining rows are not checked.
//   - Another program creates instances during the run: they are kept, with their files.
//
// The package never changes an instance that existed before, resets no GPU itself, and writes no UUID, host name or
// serial number to the record.
//
// Files:
//
// The run:
//
//	run.go          Options and Run: the order of the checks, and the restoration of the node
//	journal.go      the journal: its lines and its lock; the instances that a killed run left
//	recover.go      undoes the changes of a killed run
//	node.go         the device files, and the restoration of their owners and modes
//	helper.go       Helper, the second process of a run, which holds files open or reads a GPU as root or as a user
//	card.go         a GPU with its profiles and instances, read with NVML
//	slice.go        creates and destroys this run's instances
//
// The checks:
//
//	assumptions.go  the assumptions, in the order of docs/driver.md
//	static.go       checks that create no instance: minor numbers, driver parameters, NVLink peers
//	places.go       placements: an instance of each profile at each free start; calls that the driver must refuse
//	inspect.go      a new instance: UUID, SMs and memory, minor numbers
//	users.go        access of an ordinary user and of nvidia-modprobe; open capability files
//	program.go      an instance that a CUDA program uses
//	limits.go       memory limits of cgroups on a GPU without MIG
//	allocate.go     a process in a cgroup that allocates memory with libcuda.so.1
//	mode.go         a GPU without clients; MIG mode, switched off and on again; the NVLink fabric
//
// The results:
//
//	report.go       Report: one row for each assumption; the verdict
//	record.go       Record: facts and durations, in a file that a site can send to Caelum's developers
package qualify
