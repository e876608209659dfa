// Package reconfigure plans changes to several instances on GPUs that are running jobs. A plan lists the instances to
// destroy and to create, in order. A MIG instance cannot be moved, so changing a busy instance stops its job, which
// then restarts on another instance, either after a requeue or from a checkpoint made by the site's checkpoint command.
//
//	Plan             the steps Destroy, Leave, Create and Take; Apply applies the steps to a copy of a pool
//	Serve            assigns a spot to a job: destroys the idle instances in the way and creates the job's instance
//	LastResort       stops jobs that may be requeued, to free units for a request that fits nowhere
//	AfterDeparture   moves instances after a job has left a GPU, if the moves reduce fragmentation (FragAware)
//	AfterRejection   moves the instances of the most fragmented GPU after a request was rejected (GRMU)
//	Consolidate      moves one of two half-full GPUs to the other (GRMU)
//
// The package is pure: it computes a plan from the state of the GPUs and never applies it. Package place places jobs
// that fit without a plan. Only package papers uses package reconfigure: on clusters with backfill, most moves do not
// shorten waiting times (contrib/lab/results.md, "Moves of running jobs").
//
// Files:
//
//	plan.go         Plan, Step, Action; Apply, Serve
//	lastresort.go   LastResort: stops jobs whose deadlines allow a restart (Fixed, Beta)
//	defrag.go       AfterDeparture, AfterRejection, Consolidate
//	draft.go        an unfinished plan of moves: the candidates for a move; a new layout for a GPU (repack)
package reconfigure
