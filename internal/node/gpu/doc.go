// Package gpu is the interface to a node's MIG hardware. It lists GPUs and instances, creates and destroys instances,
// sets the owners of their device files, and finds the processes that use them. It makes no decisions: package agent
// chooses the placements and the instances to destroy.
//
// Files:
//
//	cap_devices.go  device numbers of capabilities, from /proc or the driver's formula; number of instance ids (maxGI)
//	cap_files.go    owner and mode of capability files (Open, Make, Close, Prepare); creates missing files (reach)
//	change.go       creates and destroys instances; re-creates a compute instance (Remake)
//	compute.go      compute instances and their profiles; the profile of the full size (largest)
//	descriptors.go  scans /proc for open capability files; limits per user, CPUs, processes that hang
//	device_acl.go   the users who may open a GPU's device file, as its ACL (Users), for fractions
//	discover.go     the GPUs and their profiles according to the driver; problems of GPUs (Problem)
//	exists.go       checks whether an instance still exists, and whether the driver answers (Probe)
//	fabric.go       the fabric state of a full GPU; capabilities that belong to no instance
//	nvlink.go       the GPUs that NVLinks connect
//	full.go         GPUs whose MIG mode is off: switches, device files
//	gpu.go          the interface Hardware, its errors (ErrNoRoom, ErrInUse, ErrLost, ErrNotFound), GPU and Instance
//	fractions.go    fractions: instances of GPUs without MIG that exist only in memory, and their limits (Fractions)
//	fraction_meter.go  a usage sample of a fraction; sets limits again that others removed (LimitSlackMiB)
//	limits.go       the driver's limits of the device memory of cgroups (MemoryLimits), for fractions
//	softmig.go      limits by the library of SoftMig, for drivers without limits: one file for each job (SoftMig)
//	list.go         lists the instances by id; UUIDs of MIG devices; the results of earlier calls (learned)
//	meter.go        a usage sample of an instance: memory, utilisation (GPM), processes; utilisation of a GPU
//	nvml.go         opens NVML; processes; retries while in use; error codes (check)
//	processes.go    a process by pid and start time; its cgroups and job; Kill, which also ends tracers (maxKilled)
//	relabel.go      changes the start and size of fractions (Relabel, Resize, Lock); their names in lease files (Parse)
//	scrub.go        whether the driver's parameters disable the overwriting of freed memory (Unscrubbed)
//	unused.go       the types in the fractions key that divide no GPU (UnusedTypes)
//	xid.go          Xid errors: their codes, which of them are fatal, and the events of a GPU (WatchXids)
package gpu
