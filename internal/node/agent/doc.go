// Package agent implements caelumd. The agent manages the node's MIG instances, leases slices to jobs, publishes the
// free slices as offers, and keeps the GPUs, the ledger and slurmctld consistent. The agent never changes instances
// that it did not create, and never carves a slice that slurmctld has not counted for the job.
//
// Package state holds the node's state in memory, and the pure packages plan, offer and place choose the offers, which
// package publish writes to slurmctld. Agent serves prologs, epilogs and commands, calls the driver, and repairs
// differences. caelumd's main function (cmd/caelumd) creates an Agent with New and calls Run.
//
// Files:
//
// The agent as a whole:
//
//	agent.go       the Agent: New, Run, stop (stopTimeout); compares and repairs every minute (reconcileInterval)
//	slurmconf.go   the settings of slurmctld without which leases do not work (PrologFlags), and their errors
//	status.go      serves `caelum status` and `caelum job`
//	memory.go      accepts the memory reports of a job's processes
//	visibility.go  decides which data of other users' jobs a user may see (PrivateData)
//	keyedlock.go   allows at most one call at a time for each job
//	notify.go      receives the watcher's notifications, and notifies the watcher of changes (maxNotifyPause)
//	loglimit.go    limits the number of log lines that a user can cause (logInterval)
//
// Prolog and epilog:
//
//	lease.go       serves the prolog ("prolog served"): refusals, the cap (maxPatience) on the plugin's wait
//	               (spank/config.c)
//	record.go      reads a job's record again while it is unclear
//	grant.go       carves the slices of a pending lease, writes the lease, and logs it ("leased")
//	release.go     serves the epilog
//	grow.go        requeues a job on a larger profile after its GPU memory ran out, or before (growTimeout)
//	growlimits.go  the profile of a job after a growth; limits (grow_limit); growths that slurmctld does not count
//	carve.go       creates and destroys an instance, with its intent in the ledger; reuses an idle instance
//	nvlink.go      asks the driver which GPUs are connected by NVLinks
//	fullgpu.go     GPUs whose MIG mode is off: device files, adoption after a reboot
//	fraction.go    fractions of GPUs without MIG: the limits of jobs' cgroups, and jobs that evade them
//	softmig.go     memory limits by SoftMig (fraction_limits): jobs that it cannot limit, files that are left over
//	fabric.go      waits until a full GPU has registered with the NVLink fabric (fabricLimit)
//	remake.go      re-creates the compute instance of an instance between two users (remakePause)
//	confirm.go     checks before a lease that an idle instance still exists ("removed by another program")
//	requeue.go     requeues or refuses a job whose slices are not available (maxRequeues)
//	leasefile.go   lease files (text, mode 0600, atomic writes) and slot devices (major 42, mode 0444)
//	jobmap.go      the job map for monitoring programs (job_map_dir): which job holds which slice
//	confine.go     the device list for the plugin, which is the file "devices" in the run directory
//	metrics.go     the state and the results of prologs for the metrics; the metrics file and port
//	timing.go      the time that a prolog spends in slurmctld and in the driver, for its log line
//
// Repair of differences between GPUs, ledger, lease files and slurmctld:
//
//	reconcile.go   loads the ledger, compares it with the GPUs, settles intents, releases leases of finished jobs
//	recover.go     restores leases from the lease files (readLeaseFile) if the ledger was lost
//	relabel.go     fractions: moves those of a GPU together; lets a running job's grow in place; outdated ledgers
//	renamed.go     profiles whose names depend on the driver's release: renames instances in the ledger
//	adopt.go       `caelum adopt`: converts foreign instances to idle instances of the agent
//	gpuback.go     manages a GPU again after it was lost (discoverTimeout)
//	xid.go         Xid errors: counts and logs them, withdraws a GPU after a fatal one, `caelum readmit`
//
// Processes on slices:
//
//	holders.go     before a lease, finds and ends the processes that have a capability file open
//	destroyhook.go pauses a monitoring program that keeps an instance in use, to destroy the instance (destroy_hook)
//	search.go      scans /proc while a prolog waits for slurmctld
//	leftovers.go   leftover processes and stuck instances, which are checked every leftoverInterval
//	strangers.go   processes that use another job's slice; Slurm's cgroup names
package agent
