// Package sim plays workloads on clusters that do not exist, in no time: which jobs would have waited, how long, and
// what for. It runs the packages that decide in production (mig, place, predict), so that what it says of a policy is
// said of the code that sites run. It reads no trace (package trace does) and prints nothing.
//
// # Time
//
// There are two kinds of events: a job is submitted, a job ends. The clock jumps from one to the next; at each, ends
// come before submissions; the queue is asked after all ends of a moment, and after each submission, again and again,
// whether something can start. The same configuration and the same jobs give the same result.
//
// # Parts
//
//	Config      the cluster, the policy, the order of the queue, what is known of ends
//	queue       whose turn it is: first in first out, EASY backfill, batches, or nobody waits
//	room        where: GPUs cut on demand by a policy; fixed layouts; or the reference that may move everything at any time
//	foresight   when what runs is expected to end, as far as anybody could know
//	Result      what came out
package sim
