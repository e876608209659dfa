// Command learn compares internal/core/predict with simple rules in simulations and prints the tables for results.md.
//
//	go run ./learn population [-seeds 101,102] [-tune]   profiles of recurring jobs, in a random population
//	go run ./learn variants [-seeds 101,102]             the same in populations with other distributions
//	go run ./learn args [-seeds 101,102]                 memory that follows a number in a script's arguments
//	go run ./learn runtimes [-seeds 101,102]             run times in that population, used for placement
//	go run ./learn miso PATH                             profiles and speeds from MISO's measurements
//	                                                     (a100_40gb_mig_step_time.csv)
//	go run ./learn forecast [-seeds 101-120]             forecasts of running jobs' memory, on emulated
//	                                                     runs; -bounds: errors that no rule can avoid
//	go run ./learn grow [-seeds 101,102]                 jobs that grow: work lost and turnaround in simulations
//	                                                     of recurring jobs whose memory grows during a run
//	go run ./learn grow -devcluster 64 -seeds 7          the same for the trace of `devcluster-bench -grow 64`
//
// The comment on the work type describes the population. The constants in Caelum's rules were chosen on seeds 1 to 3
// (-tune), before any other seed was used.
//
// Files:
//
//	main.go        the commands and options; prints tables as Markdown
//	work.go        the random population: users, recurring jobs, their submissions, and the memory use that a run shows
//	population.go  the population command: shares of tightest profiles and of out-of-memory runs, by rule; -tune
//	variants.go    the variants command: frequent failures, and memory that depends on the input; peak_quantile
//	args.go        the args command: jobs whose memory follows a number in their arguments, or whose number is a seed
//	first.go       the first command: scripts without runs, predicted from similar scripts (predict.PredictSimilar)
//	rules.go       the rules for profiles: the whole GPU, the highest of the last runs, Caelum (learned, informed)
//	curves.go      the forecast command's emulated runs: shapes of the memory over time, allocator, time limits
//	forecast.go    the forecast command: errors of the peak, false alarms and late alarms, by rule and by shape
//	bound.go       the forecast command with -bounds: errors and late alarms that no rule can avoid
//	grow.go        the grow command: tables by mode of growth and default profile
//	growjobs.go    the grow command's submissions: memory over time (package growtrace), compute needs, arrivals
//	growruns.go    the grow command's runs, with the agents' decisions (predict.RanOut, Foresaw, Larger)
//	growtrace.go   the grow command with -devcluster
//	forecasters.go the rules for forecasts: simple rules, MIGPro's regressions, Caelum
//	runtimes.go    the runtimes command: errors of predicted run times (strangers, acquaintances); 80% intervals
//	placement.go   the end of the runtimes command: mean waits with qla, from limits, earlier runs, actual run times
//	miso.go        the miso command: predicted speeds (predictors) and DynaP's choice against MISO's measurements
//	partition.go   DynaP's choice of a profile and a batch size
package main
