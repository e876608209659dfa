// Package oracle checks after a run whether the agents ever offered slices that they could not have created.
//
// It reads independent records of the run: the agents' logs, the emulated GPUs' log, slurmctld's log, slurmdbd's
// accounting, snapshots of slurmctld that a separate process took, and the devices that the jobs saw. The package
// shares no code with the agent. It reads profiles as intervals from the table of GPU models, and finds room for slices
// by exhaustive search. The package never runs a cluster; the test of package e2e_oracle does.
//
// Files:
//
//	oracle.go      the record of a run (Run); Check, which applies all rules to each node; Report, its counts and text
//
// Reading the records:
//
//	files.go       reads a run from a folder: the names and formats of its files
//	journal.go     the agent's log: writes, leases, refusals, passes that gave up; the log messages that it relies on
//	hardware.go    the emulator's log: instances and CUDA processes
//	controller.go  slurmctld's log (starts, submissions, changes of GRES), sacct (SacctFields); joins both (Account)
//	snapshots.go   the script that takes snapshots of slurmctld (SnapshotScript); states in which no job starts (shut)
//
// Rules and measurements:
//
//	judge.go       rules about writes and snapshots: offer, snapshot, profile, total, phase, logged, excess
//	slices.go      rules about leases, instances and processes: carved, overlap, twice, instance, process, seen, end
//	pack.go        GPUs as intervals, equivalent profiles (Own), and the exhaustive search for room (Pack)
//	delays.go      slurmctld's delays from offer or submission to start (Delays)
//
// # Limits
//
// If a job starts between an agent's read of slurmctld and the write that is based on it, the oracle assumes that the
// agent did not know the job. In this case the write may offer the job's slice. Snapshots do not have this gap, because
// total and used come from one answer of slurmctld. A whole-node allocation (--exclusive) contains every type, but the
// job uses only some of them. A run must therefore not contain such jobs. If slurmctld is restarted during a run, the
// run must not contain jobs on several nodes either, because slurmctld would then count their slices wrongly.
package oracle
