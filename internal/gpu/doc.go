// Package gpu is the interface to the MIG hardware of a node. It lists GPUs and instances, creates and destroys
// instances, sets the owners of their device files, and finds the processes that use them. It makes no decisions: the
// agent chooses placements and the instances to destroy.
//
// Files:
//
//	cap_devices.go  device numbers of capabilities: /proc, else the driver's formula; 15 instance ids (maxGI)
//	cap_files.go    owner and mode of capability files: opens them to a user, closes them, creates missing files
//	descriptors.go  search of /proc for open capability files: limits for a user (200,000), CPUs, hangs (2 s)
//	discover.go     the GPUs and their profiles by the driver; the texts for a GPU that cannot be managed (Problem)
//	exists.go       whether an instance still exists
//	gpu.go          the interface Hardware, its errors (ErrNoRoom, ErrInUse, ErrLost, ErrNotFound), GPU and Instance
//	meter.go        a usage sample of an instance: memory, utilisation (GPM), processes
//	nvml.go         lists, creates and destroys instances with NVML; retries while in use (1.3 s); error codes (check)
//	processes.go    a process by pid and start time; its cgroups; Kill, also of tracers (maxKilled, endLimit)
package gpu
