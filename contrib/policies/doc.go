// Command policies simulates placement policies and compares them with best-fit. It prints the
// Markdown tables that docs/results.md contains.
//
//	go run ./contrib/policies [-seeds 101,102] [-policies lifetime,qla] [-queues ...] [-ends ...] [-unlimited ...]
//	                          [-loads ...]
//
// Each row has a scheduler, the scheduler's knowledge of the ends of jobs, and the share of the jobs without a time
// limit. Each column has a load. A cell contains one number for each policy: its mean wait over all mixes and seeds,
// divided by the mean wait of best-fit, on 16 A100-40GB in nodes of four. The last lines contain the worst case of
// each policy. Each case is a mix, averaged over all seeds.
//
// Files:
//
//	main.go      the options: policies, seeds, queues, ends, loads, mixes, GPUs, number of jobs
//	play.go      simulates all scenarios in parallel; the table and the worst cases (least 10 s); the reference policy
//	scenario.go  one scenario: its queue, its GPUs (16, or 24 for site), the known ends of jobs, its workload
package main
