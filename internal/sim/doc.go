// Package sim simulates workloads on clusters that do not exist, and computes how long each job would have waited. It
// uses the same packages that make the decisions in production (mig, place, offer, predict), so its results apply to
// the code that sites run. Package trace reads trace files, and the commands print the results. This package does
// neither.
//
// # Time
//
// There are two kinds of events: a job is submitted, and a job ends. The clock advances from one event to the next.
// Ends are processed before submissions at the same time. After all ends of one time, and after each submission, the
// simulation starts jobs from the queue until no further job can start. The same configuration with the same jobs
// always has the same result.
//
// # Parts
//
//	Config      the cluster, the policy, the queue discipline, and the estimated run times of the jobs
//	queue       the order in which jobs may start: first in first out, EASY backfill, batches, or no queue at all
//	room        the GPUs: cut on demand, with fixed layouts, or the reference, which may move all jobs at any time
//	foresight   the expected ends of running jobs
//	Result      the figures of a run
//
// # Files
//
// The simulation:
//
//	config.go   Config: cluster, policy, queue disciplines; which of them can be combined, and the errors for the rest
//	sim.go      the events: submission, start, end, requeue; ErrNever for a job that can never start
//	queue.go    the waiting jobs, and which of them may start in each discipline; backfill (EASY)
//	sizing.go   Sizing: tightest or adaptive profiles; the expected speeds; starts the jobs of package offer's plan
//	batches.go  the discipline Batches: the subset of the first jobs that makes the best use of one GPU (DynaP)
//	endings.go  the running jobs in the order of their ends
//	estimates.go estimated run times: users' limits, predictions with an error, correction by ended jobs
//	memory.go   memory predictions with an error: a job runs out of memory and is requeued (requeueDelay)
//
// The GPUs:
//
//	room.go     the interface room, and the reservation for the head of the queue
//	ondemand.go GPUs that a policy cuts on demand; the time to create and destroy instances
//	offers.go   GPUs whose slices are published as offers, as in production; the delay (publishing)
//	fixed.go    GPUs with fixed layouts
//	beststatic.go BestStatic, the search for the best fixed layouts; patterns of layouts as text
//	migration.go the reference that moves running jobs without cost
//
// Results:
//
//	observe.go  Observer, which receives the events of a run, for drawings
//	result.go   Result: jobs, waits, utilisation, accepted share, instances
//	waits.go    the distribution of waits: mean and quantiles with three digits
package sim
