// Package reconfigure plans changes of several instances on GPUs with running jobs: which instances to destroy and to
// create, in order. A MIG instance cannot be moved, so a change of a busy instance stops its job. The job then starts
// again in another instance, by a requeue or by a checkpoint command of the site.
//
//	Plan             the steps destroy, leave, create and take; Apply carries them out on a copy of a pool
//	Serve            gives a spot to a job: destroys the idle instances in the way, and creates the instance
//	LastResort       stops jobs that may be requeued, to free units for a request that fits nowhere
//	AfterDeparture   moves instances when a job has left a GPU, if that reduces fragmentation (FragAware)
//	AfterRejection   moves the instances of the most fragmented GPU after a request was rejected (GRMU)
//	Consolidate      moves one of two half-full GPUs to the other (GRMU)
//
// The package is pure: it takes the state of the GPUs and returns a plan. It never carries out a plan on a GPU, and it
// never places a job that fits (package place does). No daemon uses this package yet.
//
// Files:
//
//	plan.go         Plan, Step, Action; Apply, Serve
//	lastresort.go   LastResort: stops jobs (Fixed, Beta), if their deadlines allow it
//	defrag.go       AfterDeparture, AfterRejection, Consolidate
//	draft.go        an unfinished plan of moves: the candidates for a move, packing a GPU again
package reconfigure
