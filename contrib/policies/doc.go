// Command policies simulates placement policies and compares them with best-fit. It prints the Markdown tables for
// docs/results.md.
//
//	go run ./contrib/policies [-seeds 101,102] [-policies lifetime,qla] [-queues ...] [-ends ...] [-unlimited ...]
//	                          [-loads ...]
//
// Each row is for one scheduler, for one kind of knowledge about the ends of jobs, and for one share of jobs without a
// time limit. Each column is for one load. A cell contains one number for each policy: its mean wait over all mixes and
// seeds, divided by the mean wait of best-fit, on 16 A100-40GB in nodes of four. The last lines contain the worst case
// of each policy. A case is one mix, averaged over all seeds.
//
// Files:
//
//	main.go      the options: policies, seeds, queues, ends, loads, mixes, GPUs, number of jobs
//	play.go      simulates all scenarios in parallel; the table and the worst cases (least 10 s); the reference policy
//	scenario.go  one scenario: its queue, its GPUs (16, or 24 for site), the known ends of jobs, its workload
package main
