// Package doctor checks the installation of Caelum on a node: Slurm's configuration, the node and the catalogue in
// slurmctld, the plugin's files, the agent, and the device files of slices. On slurmctld's host, it checks the decision
// table.
//
// Read collects the facts, and Examine evaluates them, so that every check is a pure function of these facts. The
// package makes no changes. A check never passes if a fact that it needs could not be read.
//
// Files:
//
// The common parts:
//
//	doctor.go     Finding and Severity; Examine; the list of checks, with their OK messages and sources
//	nodefaults.go the checks for node health checkers, which run no Slurm commands
//	read.go       collects the facts from slurmctld, the agent, files, driver and slurmdbd; findings for missing sources
//
// Checks of Slurm:
//
//	release.go    slurmctld's release, and parameters of later releases that Caelum does not support
//	slurmconf.go  slurm.conf: PrologFlags, timeouts, scheduler, GresTypes, accounting, clocks, isolation of jobs
//	node.go       the node in slurmctld: state, gres/mig:closed, total N, excess, slots, exclusive partitions
//	catalogue.go  catalogue nodes: state, partitions, features; compares the profiles in slurm.conf with the driver's
//	resources.go  catalogue nodes: GRES, hardware, features of real nodes; unmanaged GPU nodes in the same partitions
//	preemption.go the modes of Slurm's preemption; the settings for moves of running jobs
//	limits.go     limits on gres/gpu in slurmdbd, which limit the number of slices
//	settings.go   the agents' policy and sizing settings, which must be the same on all hosts
//	learning.go   learning is on, has not stopped and has recorded the last day's runs (ReadLearning)
//	table.go      the decision table: readable, partitions, profiles, max_nodes; partitions that it does not list
//
// Checks of the node:
//
//	agent.go      the agent's status: publishing, GPUs, instances, slots; owners and modes of capability files
//	capfiles.go   the instances that the driver lists, and their capability files
//	plugin.go     finds and checks plugstack.conf, the plugin's release (plugin_version), its Go object and run_dir
//	installed.go  the plugins in the usual directories and their Slurm releases, for caelum version
//	files.go      owners and modes of files that root uses; the restrictions of caelumd.service
//	confine.go    whether the plugin's BPF program is attached to the cgroup of all steps
//	fractions.go  what fractions of GPUs without MIG need: the driver, cgroups, devices cgroups; types without GPUs
//	driver.go     NVreg_ModifyDeviceFiles, missing device files, and whether the driver overwrites freed GPU memory
//	capabilities.go  device files of capabilities that belong to no instance, such as Fabric Manager's
//	unmanaged.go  device files of GPUs that the agent does not manage ("whole GPUs" check)
//	notify.go     the notification port: munge or the key file
package doctor
