// Package slurmtest emulates slurmctld in memory, for tests. The Fake type implements the methods of slurm.Client and
// additional methods that simulate the actions of users, jobs and daemons, such as Submit, Tick, End, RunEpilogs and
// Restart. It never runs any programs.
//
// The behaviour was measured with Slurm 22.05.8. Unless noted otherwise, 24.11 and 26.05 behave the same way:
//
//   - An update changes a node's counts of a count-only GRES immediately, even to fewer than are in use. In that
//     case, slurmctld does not start any more jobs that request this type. An update replaces the node's entire GRES
//     list. For gres/gpu, slurmctld accepts only the configured count or 0.
//   - The used count increases when a job starts, before its prolog, and decreases when the job enters COMPLETING,
//     before its epilog. slurmctld does not start jobs on a node with a COMPLETING job.
//   - A request without a type is satisfied from the first types that are not fully used, which may include `closed`.
//     An --exclusive job needs an empty node and is allocated all of its GRES, including `closed`.
//   - slurmctld rejects the submission of a job that no node could ever run, unless the job is held. This check
//     includes the catalogue nodes, even though they are in the FUTURE state. If no node can run a pending job any
//     more, the job's reason becomes BadConstraints and its priority becomes 0. Once the job is released, slurmctld
//     tries again.
//   - A restart of slurmctld and `scontrol reconfigure` reset the count of every type to the one in slurm.conf.
//     Afterwards, slurmctld does not count the typed GRES of running jobs as used, or counts them once for each node
//     of the job (Recount; in 22.05, the excess remains after the job ends). A restart of slurmd 22.05 resets only
//     the count of `closed`. If jobs use gres/mig and the counts in the last update did not add up to the total in
//     slurm.conf, the restart of slurmd drains the node and sets its INVALID_REG flag.
//   - A requeue increases the restart count while the finished run is still completing. The job may restart two minutes
//     later.
//
// The package does not support time limits, changing priorities, reservations, dependencies, arrays, het jobs or
// planned starts. Jobs start in order of priority, provided that there are enough resources for them. For jobs without
// time limits, the main scheduler and the backfill scheduler of slurmctld together have the same effect.
//
// The state changes only through calls: Advance moves the clock forward, Tick starts jobs, and RunEpilogs runs epilogs.
// The methods are safe for concurrent use. Hooks run without holding a lock, so they can also call the methods.
//
// Files:
//
//	fake.go      Fake: nodes, jobs, the clock; hooks before and after each call; the calls that were made
//	client.go    the methods of slurm.Client
//	life.go      the life of a job: submission, end, requeue, epilog; restarts of slurmctld and slurmd
//	schedule.go  starts jobs (Tick): resources, GRES, nodes; the reasons of jobs that wait
package slurmtest
