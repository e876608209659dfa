package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options holds the command-line options.
type options struct {
	seed          uint64
	length, storm time.Duration
	nodes, gpus   int
	model         string
	features      bool // all optional features are on
	fractions     bool // the last node has GPUs with fractions
	build, cgroup string
	keep          string
	kinds         []string // the kinds of faults and jobs that can occur
	ignore        *regexp.Regexp
	verbose       bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "observe" {
		observe(os.Stdout)
		return
	}
	o, list, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	if list {
		printKinds(os.Stdout)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := run(ctx, o)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	case found > 0:
		os.Exit(1)
	}
}

// parse parses the command line. If list is true, the program prints the kinds of faults and jobs, and exits.
func parse(args []string) (o options, list bool, err error) {
	f := flag.NewFlagSet("chaos", flag.ExitOnError)
	f.Uint64Var(&o.seed, "seed", 1, "seed of the random jobs, faults and pauses")
	seconds := f.Int("seconds", 300, "duration in seconds; the campaign may end two minutes earlier or later")
	storm := f.Int("storm", 35, "duration in seconds of the jobs and faults in each round")
	f.IntVar(&o.nodes, "nodes", 2, "number of nodes")
	f.IntVar(&o.gpus, "gpus", 2, "number of emulated GPUs on each node")
	f.StringVar(&o.model, "board", "A100-40GB", "GPU model, as for devcluster up")
	f.BoolVar(&o.features, "features", false, "switch on full GPUs, learning, preemption and moves, and "+
		"run jobs that grow; -board defaults to H100-80GB")
	f.BoolVar(&o.fractions, "fractions", false, "add a node whose GPUs have fractions, and jobs that use them")
	f.StringVar(&o.build, "build", "", "folder with the binaries (default: build/ in the repository)")
	f.StringVar(&o.cgroup, "cgroup", "", "v1 or v2: run jobs in cgroups, with ConstrainDevices=yes")
	f.StringVar(&o.keep, "keep", os.TempDir(), "folder for the logs of a cluster with findings")
	only := f.String("only", "", "use only these kinds of faults and jobs, separated by commas")
	without := f.String("without", "", "exclude these kinds of faults and jobs")
	ignore := f.String("ignore", "", "regular expression; matching findings appear only in the timeline")
	f.BoolVar(&o.verbose, "v", false, "print each event of the timeline immediately")
	f.BoolVar(&list, "list", false, "print the kinds of faults and jobs")
	f.Parse(args)
	if f.NArg() > 0 {
		return o, false, fmt.Errorf("unknown argument %q; run with -help to print the options", f.Arg(0))
	}
	if o.features {
		jobKinds = append(jobKinds, featureKinds...)
		if !given(f, "board") {
			o.model = "H100-80GB"
		}
	}
	if profiles, err = profilesOf(o.model); err != nil {
		return o, false, err
	}
	if err := o.addFractions(); err != nil {
		return o, false, err
	}
	o.length, o.storm = time.Duration(*seconds)*time.Second, time.Duration(*storm)*time.Second
	if *ignore != "" {
		if o.ignore, err = regexp.Compile(*ignore); err != nil {
			return o, false, err
		}
	}
	o.kinds, err = choose(allKinds(), split(*only), split(*without))
	return o, list, err
}

// given reports whether a flag was set on the command line.
func given(f *flag.FlagSet, name string) (found bool) {
	f.Visit(func(g *flag.Flag) { found = found || g.Name == name })
	return found
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// choose returns the elements of the list only, or of the list all if only is empty, without the elements of the list
// without.
func choose(all, only, without []string) ([]string, error) {
	for _, name := range append(slices.Clone(only), without...) {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("unknown kind %q; run with -list to print the kinds", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return len(only) > 0 && !slices.Contains(only, name) || slices.Contains(without, name)
	}), nil
}
