// Package agent is caelumd: it manages the node's MIG instances, leases slices to jobs, publishes the free slices as
// offers, and keeps GPUs, ledger and slurmctld in agreement. The pure packages place and offer decide about placements
// and offers. The agent never touches instances that it did not create, and never carves a slice that slurmctld has not
// counted for the job.
//
// Files:
//
// The agent as a whole:
//
//	agent.go       the Agent's state; start, Run, stop (stopTimeout 5 s); comparison every minute (reconcileInterval)
//	state.go       GPUs, instances and pending leases in memory; the choice among the offers for a job (pick)
//	slurmconf.go   the settings of slurmctld without which leases do not work (PrologFlags), and their error texts
//	status.go      the answers to `caelum status` and `caelum job`
//	visibility.go  the check of what a user may see of other users' jobs (PrivateData)
//	refusallog.go  the log line for a call of a user other than root, at most one a minute (refusalsEvery)
//
// Prolog and epilog:
//
//	lease.go       serves prolog ("prolog served") and epilog: patience (maxPatience), refusals, errors (classOf)
//	carve.go       creates and destroys an instance, with its intent in the ledger; reuses an idle instance
//	confirm.go     checks before a lease that an idle instance still exists ("removed by another program")
//	requeue.go     requeues or refuses a job whose slices are not available (maxRequeues 3); profile of a requeued job
//	reoffer.go     offers a released slice again in the epilog, without a pass, if the next job requests the same
//	leasefile.go   lease files (text, mode 0600, atomic writes) and slot devices (major 42, mode 0444)
//	confine.go     the device list for the plugin, the file "devices" in the run directory
//	timing.go      the time of a prolog in slurmctld and in the driver, for its log line
//
// Publishing:
//
//	publish.go     the passes: poll, pauses (retryInterval, settling, slowdown), maxReplans 6; plan; pre-leases
//	gres.go        writes counts and Extra ("published"); type closed; N (learnTotal); CloseOffers; fresh 0.25 s
//	excess.go      the slices that slurmctld counts as used and no job has; the totals to publish
//	advertised.go  profile names of other drivers and GPU models; profiles of slurm.conf that the driver lacks (stale)
//	heldjobs.go    releases held jobs whose slices are offered; holds components of het jobs that cannot start
//	tags.go        the tags in admin_comment that only agents write (caelum:requeued=, caelum:no-room=)
//	notify.go      receives the watcher's notifications, and notifies it of changes (maxNotifyPause 15 s); key file
//
// Repair of differences between GPUs, ledger, lease files and slurmctld:
//
//	reconcile.go   loads the ledger, compares it with the GPUs, settles intents, releases leases of jobs that are gone
//	recover.go     restores leases that a lost ledger lacks from the lease files (readLeaseFile)
//	adopt.go       `caelum adopt`: foreign instances become idle instances of the agent; the reasons why one does not
//	gpuback.go     manages a GPU again after it was lost (discoverTimeout 1 s)
//
// Processes on slices:
//
//	holders.go     processes with an open capability file: search before a lease, ending them, logInterval 1 minute
//	sharedscan.go  shares one search of /proc between the prologs that wait at the same time
//	leftovers.go   leftover processes and stuck instances; checks them every 2 s (leftoverInterval)
//	strangers.go   processes that use another job's slice; Slurm's cgroup names
package agent
