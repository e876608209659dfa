package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"caelum/contrib/lab/seeds"
	"caelum/internal/core/mig"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

func main() {
	if err := start(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fractions:", err)
		os.Exit(1)
	}
}

// options holds the options.
type options struct {
	source
	model      *mig.Model
	gpus       int
	queue, of  string
	seeds      []uint64
	workers    int
	verbose    bool
	contention string
}

func start(args []string, w io.Writer) (err error) {
	var o options
	f := flag.NewFlagSet("fractions", flag.ContinueOnError)
	model := f.String("model", "L40S-48GB/4", "GPU model, with the number of units")
	f.IntVar(&o.gpus, "gpus", 8, "number of GPUs")
	f.StringVar(&o.queue, "queue", "easy", "easy, or offers (EASY with the delay of offers, as in production)")
	reported := f.String("seeds", "101-105", "first and last seeds of the workloads")
	loads := f.String("loads", "0.85", "mean loads")
	of := f.String("of", "units,gpus", "what a load is a share of: units that jobs request, of all units; or gpus: "+
		"jobs, of all GPUs, as if each job had a whole GPU")
	contentions := f.String("contention", "none", "how jobs on the same GPU slow each other down: none; a share u "+
		"from 0 to 1: each job keeps the GPU busy for this share of its time; drawn: a different u for each job; xN: "+
		"all jobs that share a GPU run N times as long")
	jobs := f.Int("jobs", 3000, "number of jobs of the synthetic site")
	f.BoolVar(&o.verbose, "v", false, "print the figures of each seed on standard error")
	f.IntVar(&o.workers, "workers", runtime.NumCPU(), "number of parallel simulations")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.model, err = mig.ModelByName(*model); err != nil {
		return err
	}
	if o.source, err = read(f.Arg(0), *jobs); err != nil {
		return err
	}
	if o.seeds, err = seeds.Parse(*reported); err != nil {
		return fmt.Errorf("-seeds: %w", err)
	}
	fmt.Fprintln(w, "| load | contention | whole: wait | fixed | first-fit | fractions | fractions / whole | "+
		"fractions / fixed, by seed | jobs with a full GPU: whole | fixed | fractions | "+
		"turnaround: whole | fixed | fractions |\n"+strings.Repeat("|---", 14)+"|")
	for _, o.of = range strings.Split(*of, ",") {
		for load := range strings.SplitSeq(*loads, ",") {
			n, err := strconv.ParseFloat(load, 64)
			if err != nil || n <= 0 {
				return fmt.Errorf("-loads: %s: specify positive numbers, for example 0.7,0.85", load)
			}
			for _, o.contention = range strings.Split(*contentions, ",") {
				if err := o.row(w, n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// simulate simulates the workload of one seed.
func (o options) simulate(load float64, seed uint64) (w ways, err error) {
	c := sim.Config{
		GPUs:       slices.Repeat([]*mig.Model{o.model}, o.gpus),
		Discipline: sim.EASY,
		Offers:     o.queue == "offers",
		Estimate:   o.estimate(seed),
	}
	if c.Contention, err = contention(o.contention, seed); err != nil {
		return w, err
	}
	size, all := units(o.model), load*float64(o.gpus*o.model.Grid)
	switch o.of {
	case "units":
	case "gpus":
		size, all = func(trace.Job) float64 { return 1 }, load*float64(o.gpus)
	default:
		return w, fmt.Errorf("-of %s: specify units or gpus", o.of)
	}
	return compare(c, o.draw(seed, all, size))
}

// row prints a row of the table.
func (o options) row(w io.Writer, load float64) error {
	all, failed := make([]ways, len(o.seeds)), make([]error, len(o.seeds))
	var wait sync.WaitGroup
	free := make(chan bool, o.workers)
	for k, seed := range o.seeds {
		wait.Go(func() {
			free <- true
			all[k], failed[k] = o.simulate(load, seed)
			<-free
		})
	}
	wait.Wait()
	of := func(get func(ways) outcome) outcome {
		var each []outcome
		for _, w := range all {
			each = append(each, get(w))
		}
		return mean(each)
	}
	least, most := 0.0, 0.0
	for k, w := range all {
		if failed[k] != nil {
			return failed[k]
		}
		r := w.fractions.wait / w.fixed.wait
		if k == 0 || r < least {
			least = r
		}
		most = max(most, r)
		if o.verbose {
			fmt.Fprintf(os.Stderr, "%s %v %s seed %d: whole %.0f, fixed %.0f (%s), first-fit %.0f, fractions %.0f\n",
				o.of, load, o.contention, o.seeds[k], w.whole.wait, w.fixed.wait, w.fixed.layouts, w.shards.wait,
				w.fractions.wait)
		}
	}
	whole, fixed := of(func(w ways) outcome { return w.whole }), of(func(w ways) outcome { return w.fixed })
	end, shards := of(func(w ways) outcome { return w.fixedEnd }), of(func(w ways) outcome { return w.shards })
	fractions := of(func(w ways) outcome { return w.fractions })
	fmt.Fprintf(w, "| %v of %s | %s | %.0f | %.0f | %.0f | %.0f | %.2f | %.2f, %.2f to %.2f | %.0f | %.0f | %.0f | "+
		"%.0f | %.0f | %.0f |\n",
		load, o.of, o.contention, whole.wait, fixed.wait, shards.wait, fractions.wait,
		fractions.wait/whole.wait, fractions.wait/fixed.wait, least, most,
		whole.full, fixed.full, fractions.full, whole.turnaround, end.turnaround, fractions.turnaround)
	return nil
}
