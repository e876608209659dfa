// Package oracle checks, after a run, whether an agent ever offered slices that it could not have created.
//
// The oracle reads independent records of the run: the agents' logs, the emulated GPUs' log, slurmctld's log,
// slurmdbd's accounting, snapshots of slurmctld that a separate process took, and the devices that the jobs saw. The
// package does not share any code with the agent: it reads profiles as intervals from the table of GPU models and finds
// space for slices by exhaustive search. It never runs a cluster itself; the tests in package e2e_oracle do.
//
// Files:
//
//	oracle.go      the record of a run (Run); Check, which applies all rules to each node; Report, its counts and text
//
// Reading the records:
//
//	files.go       reads a run from a directory: the names and formats of the files
//	journal.go     the agent's log: writes, leases, refusals, passes that gave up; the log messages that it relies on
//	hardware.go    the emulator's log: instances and CUDA processes
//	slurmctld.go   slurmctld's log (starts, submissions, changes of GRES), sacct (SacctFields); joins both (Account)
//	snapshots.go   the script that takes snapshots of slurmctld (SnapshotScript); states in which no job starts (shut)
//
// Rules and measurements:
//
//	judge.go       rules about writes and snapshots: offer, snapshot, profile, total, phase, logged, excess
//	modes.go       rules about the MIG mode and the device files of GPUs: switch, file
//	slices.go      rules about leases, instances and processes: carved, overlap, twice, instance, process, seen, end
//	pack.go        GPUs as intervals, equivalent profiles (Own), and the exhaustive search for room (Pack)
//	delays.go      slurmctld's delays from offer or submission to start (Delays)
//
// # Limits
//
// A job may start after an agent has queried slurmctld but before the agent writes its offers. The oracle assumes that
// the agent did not know about the job, and accepts a write that offers the job's slice. Snapshots have no such gap,
// because the total and used counts come from the same answer. A run must not contain --exclusive jobs, because a
// whole-node allocation contains every type, even though the job uses only some of them. If slurmctld is restarted
// during a run, the run must not contain jobs on several nodes, because a restarted slurmctld counts their slices
// incorrectly.
package oracle
