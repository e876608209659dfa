// Package sim simulates workloads on given clusters and computes the waiting time of each job. It uses the packages
// that make the decisions in production (mig, place, offer, predict), so its results apply to the code that sites run.
// Package sim itself does not read traces or print results: package trace reads traces, and the commands print results.
//
// # Time
//
// The simulation processes two kinds of events: the submission and the end of a job. The clock advances from one event
// to the next. If a submission and an end coincide, the end is processed first. Once all ends that occur at the same
// time have been processed, and after each submission, the simulation starts jobs from the queue until no more jobs can
// start. Two simulations with identical configurations and jobs produce identical results.
//
// # Parts
//
//	Config      the cluster, the policy, the queue discipline, and the jobs' estimated run times
//	queue       the order in which jobs may start: first in, first out, EASY backfill, or no queue
//	Scheduler   replaces the queue or moves running jobs, for comparisons with other systems (contrib/lab/papers)
//	room        the GPUs: with slices on demand, or with fixed layouts
//	foresight   the expected ends of running jobs
//	Result      the figures of a run
//
// # Files
//
// The simulation:
//
//	config.go   Config: cluster, policy, queue disciplines; errors for combinations that are not supported
//	sim.go      the events: submission, start, end, requeue; ErrNever for a job that can never start
//	queue.go    the waiting jobs, and which of them may start in each discipline; backfill (EASY)
//	scheduler.go Scheduler and Control, its access to the simulation; GPUs on which slices are only counted
//	sizing.go   Sizing: tightest or adaptive profiles; the expected speeds; starts the jobs of package offer's plan
//	contention.go jobs that slow down the other jobs on their GPU
//	endings.go  the running jobs in the order of their ends
//	estimates.go estimated run times: users' limits; Corrector; random numbers of a job
//	deadlines.go Deadlines: jobs with --deadline, which slurmctld removes if they start too late
//	grow.go     Memory and Growth: another package determines profiles and ends of runs, and whether a job runs again
//	            after a requeue (RequeueDelay)
//
// The GPUs:
//
//	room.go     the room interface, and the reservation for the head of the queue
//	ondemand.go GPUs with slices on demand; the times to create and destroy instances
//	offers.go   GPUs whose slices are published as offers, as in production; the delay (publishing)
//	fixed.go    GPUs with fixed layouts
//	beststatic.go BestStatic, the search for the best fixed layouts; patterns of layouts as text
//
// Results:
//
//	observe.go  Observer, which receives the events of a run, for drawings
//	result.go   Result: jobs, waits, utilisation, accepted share, instances
//	waits.go    the distribution of waits: mean and quantiles with three digits
package sim
