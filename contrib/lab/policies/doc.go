// Command policies simulates placement policies, compares them with best-fit, and prints Markdown tables for
// contrib/lab/results.md.
//
//	go run ./policies [-seeds 101,102] [-policies lifetime,reach] [-queues ...] [-ends ...] [-unlimited ...]
//	                          [-loads ...]
//
// Each row corresponds to one scheduler, one source of the jobs' expected end times, and one fraction of jobs without a
// time limit; each column corresponds to one load. Each cell shows, for each policy, the mean waiting time over all
// mixes and seeds, divided by the mean waiting time for best-fit. The cluster has 16 A100-40GB GPUs on four nodes. The
// last lines show each policy's worst ratio for a single mix, over all seeds.
//
// Files:
//
//	main.go      the options: policies, seeds, queues, ends, loads, mixes, GPUs, number of jobs
//	play.go      simulates all scenarios in parallel; the table and the worst cases (least 10 s); the reference policy
//	scenario.go  one scenario: its queue, its GPUs (16, or 24 for site), the jobs' expected ends, its workload
package main
