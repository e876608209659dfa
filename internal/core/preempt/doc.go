// Package preempt decides which running jobs to stop so that a waiting job that needs a different profile can start.
// slurmctld preempts jobs only for GRES types that a node offers. It therefore never stops a job that holds a 1g.5gb
// slice to make room for a job that needs a 7g.40gb slice. The package also decides which jobs to move: a moved job is
// requeued because it fits elsewhere, with the permission of its user or its partition. The watcher carries out the
// decisions. The package is stateless: each decision depends only on slurmctld's configuration and on a snapshot, which
// contains the tags of earlier decisions (docs/internals/watcher.md, "Preemption").
//
//	Rules   slurmctld's settings: which jobs may preempt which jobs, how a job is stopped, its grace time
//	Next    the next steps: mark jobs, warn them, stop them, or give up
//
// Files:
//
//	rules.go    Rules: whether a job may preempt another one (tiers, QOS, exempt times), and how slurmctld stops it
//	next.go     Next: continues the current preemption or move, or begins one
//	begin.go    begins a preemption: the waiting jobs that may preempt, the running jobs that may be stopped, and limits
//	move.go     begins a move: the running jobs that may be moved, and whether a move is worthwhile; Refuse
//	choose.go   victimSearch, for preemptions and moves: the smallest set of jobs to stop, if each node needs one slice
//	several.go  victimSearch, if a node needs several slices
package preempt
