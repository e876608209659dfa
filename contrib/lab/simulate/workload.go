package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"caelum/contrib/lab/traces"
	"caelum/internal/sim/trace"
)

// workload returns the jobs to simulate. Depending on the flags, it generates them or reads them from a file.
func (o options) workload(gpus int) (*trace.Workload, error) {
	var given []string
	for _, s := range []string{o.churn, o.alibaba, o.grmu, o.miso, o.sacct} {
		if s != "" {
			given = append(given, s)
		}
	}
	if len(given) != 1 {
		return nil, errors.New("choose exactly one workload: --churn, --alibaba, --grmu, --miso or --sacct")
	}
	if o.churn != "" {
		return o.synthetic(gpus)
	}
	f, err := os.Open(given[0])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch {
	case o.grmu != "":
		return traces.GRMU(given[0], f)
	case o.sacct != "":
		return trace.Sacct(given[0], f)
	case o.miso != "":
		return o.readMISO(f)
	}
	return traces.Alibaba(given[0], f, o.multiGPU)
}

// readMISO reads the jobs given by --miso and the step times given by --miso-steps.
func (o options) readMISO(jobs io.Reader) (*trace.Workload, error) {
	switch {
	case o.misoSteps == "":
		return nil, errors.New("--miso requires --miso-steps; specify the file of step times")
	case o.every < 0 || !(o.slowdown >= 1 || o.slowdown == 0):
		return nil, errors.New("--every must not be negative, and --slowdown must be at least 1 (0: no limit)")
	}
	steps, err := os.Open(o.misoSteps)
	if err != nil {
		return nil, err
	}
	defer steps.Close()
	w, err := traces.MISO(o.miso, jobs, o.misoSteps, steps, o.every.Seconds(), o.seed)
	if err == nil && o.slowdown > 0 {
		for k := range w.Jobs {
			w.Jobs[k].Slowest = 1 / o.slowdown
		}
	}
	return w, err
}

// synthetic generates the jobs for --churn.
func (o options) synthetic(gpus int) (*trace.Workload, error) {
	if o.jobs < 1 || !(o.load > 0) || o.mean <= 0 {
		return nil, errors.New("--jobs, --load and --mean must be above 0")
	}
	var names []string
	for _, m := range trace.Mixes {
		if m.Name == o.churn {
			c := trace.Churn{Mix: m.Mix, Jobs: o.jobs, GPUs: gpus, Load: o.load, Seed: o.seed}
			c.MeanDuration = o.mean.Seconds()
			return &trace.Workload{Jobs: slices.Collect(c.All())}, nil
		}
		names = append(names, m.Name)
	}
	return nil, fmt.Errorf("--churn %s: unknown mix; the mixes are %s", o.churn, strings.Join(names, ", "))
}
