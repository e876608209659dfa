package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

// options holds the flags that select the scenarios to simulate.
type options struct {
	seeds     []uint64
	policies  []string
	queues    []string
	ends      []string
	unlimited []float64
	loads     []float64
	mixes     []string
	gpus      []string
	jobs      int
	workers   int
}

func run(args []string, w io.Writer) error {
	f := flag.NewFlagSet("policies", flag.ContinueOnError)
	seeds := f.String("seeds", "101,102,103,104,105", "seeds for the workloads")
	policies := f.String("policies", "lifetime", "policies to compare with best-fit")
	queues := f.String(
		"queues",
		strings.Join(queueNames, ","),
		"comma-separated queues to simulate; offers is EASY with the delay of offers, as in production",
	)
	ends := f.String(
		"ends",
		strings.Join(endNames, ","),
		"comma-separated sources of the expected ends of jobs; limits: time limits, 1 to 6 times too long; "+
			"learned: limits corrected with the run times of earlier jobs; own: the limits of the workload",
	)
	unlimited := f.String("unlimited", "0,0.1,0.3", "comma-separated fractions of jobs that have no time limit")
	loads := f.String(
		"loads",
		"0.5,0.7,0.85,0.95",
		"comma-separated fractions of the GPUs' units that jobs request on average",
	)
	mixes := f.String(
		"mixes",
		"uniform6,skew-small,bimodal,four-equal",
		"comma-separated mixes for caelum simulate --churn; site means traces.Site, which requires -ends own",
	)
	gpus := f.String(
		"gpus",
		"alike",
		"alike (A100-40GB), or mixed (half of the GPUs are H100-80GB, and jobs run on either model)",
	)
	jobs := f.Int("jobs", 1000, "number of jobs in a workload")
	workers := f.Int("workers", runtime.NumCPU(), "number of parallel simulations")
	if err := f.Parse(args); err != nil {
		return err
	}
	o := options{
		policies: strings.Split(*policies, ","),
		queues:   strings.Split(*queues, ","),
		ends:     strings.Split(*ends, ","),
		mixes:    strings.Split(*mixes, ","),
		gpus:     strings.Split(*gpus, ","),
		jobs:     *jobs,
		workers:  max(*workers, 1),
	}
	var err error
	if o.unlimited, err = numbers(*unlimited); err != nil {
		return fmt.Errorf("-unlimited: %w", err)
	}
	if o.loads, err = numbers(*loads); err != nil {
		return fmt.Errorf("-loads: %w", err)
	}
	of, err := numbers(*seeds)
	if err != nil {
		return fmt.Errorf("-seeds: %w", err)
	}
	for _, seed := range of {
		o.seeds = append(o.seeds, uint64(seed))
	}
	results, err := o.simulate()
	if err != nil {
		return err
	}
	o.print(w, results)
	return nil
}

func numbers(list string) (all []float64, err error) {
	for _, word := range strings.Split(list, ",") {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s: specify numbers, as in 0.5,0.7", list)
		}
		all = append(all, n)
	}
	return all, nil
}
