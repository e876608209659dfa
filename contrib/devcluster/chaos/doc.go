// Command chaos runs two users' random jobs on a private Slurm cluster while it injects faults into daemons, disks and
// emulated GPUs. It checks invariants against the state of the GPUs, the file system and the processes, and against
// sacct's output.
//
//	make chaos SECONDS=300 SEED=7
//	build/devcluster-chaos -list
//	build/devcluster-chaos -seed 7 -seconds 300 -without idle-removed,het
//
// A campaign is a sequence of rounds. A round begins with a storm, during which jobs are submitted while faults begin
// and end. In the calm that follows, the campaign repairs every fault, and the remaining jobs end. In the final phase,
// called the quiet, there must be no traces of jobs left on the nodes. The seed determines the jobs, faults and pauses,
// but which faults coincide with which jobs depends on the speed of the machine.
//
// Files:
//
// The campaign:
//
//	main.go         the command-line options, including -seed, -seconds, -only, -without, -ignore and -keep
//	campaign.go     starts a cluster: slurm.conf lines (Conf), small disks; a round; starts faults (breakThings)
//	timeline.go     the timeline; the findings, and the names of rules 1 to 7 (ruleTwice to ruleTools)
//	report.go       runs campaigns for the given time (run), adds up their counts; prints findings; keeps the logs
//	caelum.yaml     the agents' configuration; features.yaml and fractions.yaml with these options
//
// Load and faults:
//
//	load.go         kinds of jobs and their weights (jobKinds), and their commands (draw); users' actions (userKinds)
//	users.go        submits jobs, rule 7; hold, update, cancel, requeue (act); heldFor, cred_expire
//	faults.go       the fault type and its parts; -list; daemon faults; an administrator's actions (drain, down)
//	faults_node.go  faults in disks and ledgers (lib/baddisk.c), `caelum adopt`; faults in the driver and GPUs; foreign
//	                instances
//	fractions.go    -fractions: the node with fractions, its jobs, faults and limits (unlimited)
//	mend.go         the repair after a storm; the calm (calmLimit); jobs that Slurm has lost (lostAfter)
//
// Checks:
//
//	observe.go      snapshots of emulators, lease files, capability files and processes every 0.25 s (observe command)
//	slices.go       rule 1 in each snapshot: slices with two jobs; suspicions that must persist (lasting)
//	processes.go    rule 1 at the end of a round: every CUDA process in the emulators' logs
//	quiet.go        rules 2, 3 and 6: traces of jobs (quietLimit), gres/mig counts (miscounts), nodes not up
//	queue.go        reads scontrol; jobs that wait only for slices (runnable), or can never start (never)
//	waits.go        rule 4: jobs that wait even though the GPUs have room (patience); checks `caelum explain`
//	ends.go         rule 5: the runs in sacct; the action or fault that explains an end (explain; around, aftermath)
package main
