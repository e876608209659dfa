// Package reconfigure plans changes of several instances on GPUs with running jobs. A plan contains the instances to
// destroy and to create, in order. A MIG instance cannot be moved, so a change of a busy instance stops its job. The
// job then starts again in another instance, by a requeue or by a checkpoint command of the site.
//
//	Plan             the steps Destroy, Leave, Create and Take; Apply applies them to a copy of a pool
//	Serve            assigns a spot to a job: destroys the idle instances in the way, and creates the instance
//	LastResort       stops jobs that may be requeued, to free units for a request that fits nowhere
//	AfterDeparture   moves instances after a job has left a GPU, if this reduces fragmentation (FragAware)
//	AfterRejection   moves the instances of the most fragmented GPU after a request was rejected (GRMU)
//	Consolidate      moves one of two half-full GPUs to the other (GRMU)
//
// The package is pure: it converts the state of the GPUs into a plan. It neither applies a plan to a GPU nor places a
// job that fits, which package place does. No daemon uses this package yet.
//
// Files:
//
//	plan.go         Plan, Step, Action; Apply, Serve
//	lastresort.go   LastResort: stops jobs (Fixed, Beta) if their deadlines allow this
//	defrag.go       AfterDeparture, AfterRejection, Consolidate
//	draft.go        an unfinished plan of moves: candidates for a move, placing the instances of a GPU again
package reconfigure
