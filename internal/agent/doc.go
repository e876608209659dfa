// Package agent is caelumd: it manages the node's MIG instances, leases slices to jobs, publishes the free slices as
// offers, and keeps GPUs, ledger and slurmctld in agreement. The pure packages place and offer decide about placements
// and offers. The agent never touches instances that it did not create, and never carves a slice that slurmctld has not
// counted for the job.
//
// The package has three main types. The node holds the state in memory. The publisher writes this state into slurmctld.
// The Agent serves prologs, epilogs and commands, calls the driver, and repairs differences.
//
// Files:
//
// The agent as a whole:
//
//	agent.go       the Agent: start, Run, stop (stopTimeout 5 s); comparison every minute (reconcileInterval)
//	slurmconf.go   the settings of slurmctld without which leases do not work (PrologFlags), and their error texts
//	status.go      serves `caelum status` and `caelum job`
//	visibility.go  decides which data of other users' jobs a user may see (PrivateData)
//	loglimit.go    limits the log lines that a user can cause (logInterval 1 minute)
//
// The state of the node:
//
//	node.go        the node: leases, offers in force, version; the state as input for the planner (view)
//	card.go        a GPU and the instances on it
//	pending.go     pending leases: chooses among the offers for a job (pick); finds spots for unplaced pending leases
//	wants.go       the slices that a job gets on this node; the errors for invalid requests
//
// Prolog and epilog:
//
//	lease.go       serves the prolog ("prolog served"): how long a prolog may wait (maxPatience), refusals
//	record.go      reads a job's record; decides how the prolog handles an error from slurmctld (classOf)
//	grant.go       carves the slices of a pending lease, writes the lease, and logs it ("leased")
//	release.go     serves the epilog
//	carve.go       creates and destroys an instance, with its intent in the ledger; reuses an idle instance
//	confirm.go     checks before a lease that an idle instance still exists ("removed by another program")
//	requeue.go     requeues or refuses a job whose slices are not available (maxRequeues 3)
//	reoffer.go     offers a released slice again in the epilog, without a pass, if the next job requests the same
//	leasefile.go   lease files (text, mode 0600, atomic writes) and slot devices (major 42, mode 0444)
//	confine.go     the device list for the plugin, the file "devices" in the run directory
//	timing.go      the time that a prolog spends in slurmctld and in the driver, for its log line
//
// Publishing:
//
//	publisher.go   the publisher; decides when a pass runs: poll, pauses (retryInterval, settling, slowdown)
//	pass.go        one pass: plan, lower, check, raise (maxReplans 6)
//	nodeplan.go    computes this node's part of the cluster's plan and puts it into force
//	started.go     the jobs that slurmctld has started here and that have no lease yet
//	gres.go        writes counts and Extra ("published"); the GRES type closed; fresh 0.25 s
//	total.go       N, the constant total of gres/mig (learnTotal); CloseOffers
//	excess.go      the slices that slurmctld counts as used although no job holds them; the totals to publish
//	advertised.go  profile names of other drivers and GPU models; profiles of slurm.conf that the driver lacks (stale)
//	heldjobs.go    releases held jobs whose slices are offered, and sets their profiles; holds components of het jobs
//	notify.go      receives the watcher's notifications, and notifies it of changes (maxNotifyPause 15 s); key file
//
// Repair of differences between GPUs, ledger, lease files and slurmctld:
//
//	reconcile.go   loads the ledger, compares it with the GPUs, settles intents, releases leases of jobs that are gone
//	recover.go     restores leases from the lease files (readLeaseFile) if the ledger was lost
//	adopt.go       `caelum adopt`: makes foreign instances idle instances of the agent, or returns the reason why not
//	gpuback.go     manages a GPU again after it was lost (discoverTimeout 1 s)
//
// Processes on slices:
//
//	holders.go     finds the processes that have a capability file open, before a lease, and ends them
//	sharedscan.go  shares one search of /proc between the prologs that wait at the same time
//	leftovers.go   leftover processes and stuck instances; checks them every 2 s (leftoverInterval)
//	strangers.go   processes that use another job's slice; Slurm's cgroup names
package agent
