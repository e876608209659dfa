// Command policies compares placement policies with best-fit, by simulation. It prints Markdown tables, which
// docs/results.md contains.
//
//	go run ./contrib/policies [-seeds 101,102] [-policies lifetime,qla] [-queues ...] [-ends ...] [-unlimited ...]
//	                          [-loads ...]
//
// Each row is a scheduler, the knowledge of the ends of jobs, and the share of the jobs without a time limit. Each
// column is a load. A cell contains one number for each policy: its mean wait over all mixes and seeds, divided by the
// mean wait of best-fit, on 16 A100-40GB in nodes of four. The last lines name the worst case of each policy, which is
// a mix with all seeds.
//
// Files:
//
//	main.go      the options: policies, seeds, queues, ends, loads, mixes, GPUs, number of jobs
//	play.go      simulates all scenarios in parallel; the table and the worst cases (least 10 s); the reference policy
//	scenario.go  one scenario: its queue, its GPUs (16, or 24 for site), the known ends of jobs, its workload
package main
