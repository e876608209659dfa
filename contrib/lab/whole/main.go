package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"caelum/contrib/lab/seeds"
	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

func main() {
	if err := start(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "whole:", err)
		os.Exit(1)
	}
}

// options holds the command-line options. All commands accept the same options.
type options struct {
	cluster
	source
	seeds, tune []uint64
	splits      []uint64 // the numbers of nodes with full GPUs that the search for the best split tries
	loads       []float64
	queues      []string
	ends        []string
	policies    []string
	shares      []float64
	workers     int
}

var commands = map[string]func(io.Writer, options) error{"split": split, "quota": quota, "policies": policies}

func start(args []string, w io.Writer) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("specify one of the commands split, quota and policies")
	}
	f := flag.NewFlagSet("whole "+args[0], flag.ContinueOnError)
	reported := f.String("seeds", "101-105", "first and last seeds of the workloads")
	tune := f.String("tune", "1-3", "first and last seeds of the workloads used in the search for the best split")
	splits := f.String("splits", "1-7", "first and last number of nodes with full GPUs in the search for a split")
	loads := f.String("loads", "0.7,0.85,0.95", "mean loads: the units that jobs request, as a share of all units")
	queues := f.String("queues", "fifo,easy,offers",
		"queues; offers is EASY with the delay of offers, as in production")
	ends := f.String("ends", "limits", "expected ends of jobs: exact, or limits (1 to 6 times the run time)")
	names := f.String("policies", place.DefaultPolicy, "placement policies; split and quota use the first")
	shares := f.String("shares", "0,1,0.5,0.25,0.125,0.01", "values of whole_share")
	nodes := f.Int("nodes", 8, "number of nodes, each with 8 H100-80GB GPUs")
	jobs := f.Int("jobs", 4000, "number of synthetic jobs")
	create := f.Float64("create", 0.2, "seconds to create or destroy an instance")
	change := f.Float64("switch", 5, "seconds to switch a GPU's MIG mode")
	workers := f.Int("workers", runtime.NumCPU(), "number of parallel simulations")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	o := options{
		queues:   strings.Split(*queues, ","),
		ends:     strings.Split(*ends, ","),
		policies: strings.Split(*names, ","),
		workers:  max(*workers, 1),
	}
	b, err := mig.ModelByName("H100-80GB")
	if err != nil {
		return err
	}
	o.cluster = cluster{
		model:  b.Select(mig.Plain).WithFull(memoryMiB),
		nodes:  *nodes,
		create: *create, destroy: *create, change: *change,
	}
	if o.policy, err = place.ByName(o.policies[0]); err != nil {
		return err
	}
	if o.source, err = read(f.Arg(0), *jobs); err != nil {
		return err
	}
	if o.seeds, err = seeds.Parse(*reported); err != nil {
		return fmt.Errorf("-seeds: %w", err)
	}
	if o.tune, err = seeds.Parse(*tune); err != nil {
		return fmt.Errorf("-tune: %w", err)
	}
	if o.splits, err = seeds.Parse(*splits); err != nil {
		return fmt.Errorf("-splits: %w", err)
	}
	if o.splits[len(o.splits)-1] >= uint64(o.nodes) {
		return fmt.Errorf("-splits: at least one of the %d nodes must hold slices", o.nodes)
	}
	if o.loads, err = numbers(*loads); err != nil {
		return fmt.Errorf("-loads: %w", err)
	}
	if o.shares, err = numbers(*shares); err != nil {
		return fmt.Errorf("-shares: %w", err)
	}
	return commands[args[0]](w, o)
}

func numbers(list string) (all []float64, err error) {
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s: specify non-negative numbers, for example 0.5,0.7", list)
		}
		all = append(all, n)
	}
	return all, nil
}
