// Package jobcgroup creates the cgroups of jobs. The driver limits the device memory of a cgroup, and the limit must be
// set before the job's first process starts. The agent therefore creates the job's cgroup in the prolog, where Slurm
// would create it. Only cgroup v2 is supported, as by the driver.
//
// Slurm accepts a cgroup that already exists, and one that it cannot remove. The cgroup's child, caelum, prevents its
// removal until the agent calls Remove, because the driver may apply the limits of a removed cgroup to a later one.
//
// Files:
//
//	controller.go  the controller by which the driver finds a process's cgroup: dmem or misc
//	jobcgroup.go   Tree: creates, checks and removes the cgroups; enables the controller
package jobcgroup
