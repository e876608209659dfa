package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"caelum/contrib/lab/ends"
	"caelum/contrib/lab/papers"
	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

var disciplines = map[string]sim.Discipline{"fifo": sim.FIFO, "easy": sim.EASY, "none": sim.Loss}

var orders = map[string]papers.Order{"skip": papers.Skip, "smallest": papers.Smallest}

var queues = []string{"fifo", "easy", "skip", "smallest", "batches", "none"}

// moved is the name of the reference that can move running jobs at any time and at no cost.
const moved = "moved"

// isReference reports whether a policy does not place slices on demand.
func isReference(policy string) bool {
	return policy == "whole" || policy == "static" || policy == moved
}

// checkFlags returns an error if a flag on the command line requires another flag that is missing.
func (o options) checkFlags(f *flag.FlagSet) (err error) {
	requires := map[string]struct {
		flag  string
		given bool
	}{
		"jobs": {"--churn", o.churn != ""}, "load": {"--churn", o.churn != ""}, "mean": {"--churn", o.churn != ""},
		"miso-steps": {"--miso", o.miso != ""}, "every": {"--miso", o.miso != ""}, "slowdown": {"--miso", o.miso != ""},
		"memory-margin": {"--memory-error", o.memoryError > 0},
		"switch":        {"--whole-gpus", o.wholeGPUs}, "whole-share": {"--whole-gpus", o.wholeGPUs},
		"move-cost": {"--moves", o.moves != ""}, "deadline-slack": {"--deadlines", o.deadlines > 0},
		"deadline-use": {"--deadlines", o.deadlines > 0}, "equal-priority": {"--deadlines", o.deadlines > 0},
		"multi-gpu": {"--alibaba and --whole-gpus", o.wholeGPUs && o.alibaba != ""},
	}
	f.Visit(func(set *flag.Flag) {
		if r, found := requires[set.Name]; found && !r.given && err == nil {
			err = fmt.Errorf("--%s requires %s", set.Name, r.flag)
		}
	})
	return err
}

// config returns the configuration of the simulation, with the Policy field unset.
func (o options) config() (c sim.Config, err error) {
	if c.GPUs, c.Nodes, err = o.cluster(); err != nil {
		return c, err
	}
	if c.Discipline = disciplines[o.queue]; !slices.Contains(queues, o.queue) {
		return c, fmt.Errorf("--queue %s: unknown queue; the queues are %s", o.queue, strings.Join(queues, ", "))
	}
	reserves := o.queue == "fifo" || o.queue == "easy"
	switch {
	case o.offers && !reserves:
		return c, errors.New("--offers requires --queue fifo or easy")
	case o.stay && o.queue != "none":
		return c, errors.New("--stay requires --queue none")
	case o.create < 0 || o.destroy < 0 || o.change < 0:
		return c, errors.New("--create, --destroy and --switch must not be negative")
	case !(o.wholeShare >= 0 && o.wholeShare <= 1):
		return c, errors.New("--whole-share must be from 0 to 1")
	case o.wholeShare > 0 && o.wholeShare < 1 && !reserves:
		return c, errors.New("--whole-share requires --queue fifo or easy")
	case o.perNode < 0:
		return c, errors.New("--per-node must not be negative (0: a job's slices can be on any GPUs)")
	case o.sizing != "" && o.sizing != "tightest" && o.sizing != "adaptive":
		return c, fmt.Errorf("--sizing %s: unknown sizing; specify adaptive or tightest", o.sizing)
	case o.sizing == "adaptive" && !reserves:
		return c, errors.New("--sizing adaptive requires --queue fifo or easy")
	}
	if c.Memory, err = o.memory(c.GPUs); err != nil {
		return c, err
	}
	if _, err := o.parseMoves(c.GPUs); err != nil {
		return c, err
	}
	estimate, learn, err := o.expected()
	if err != nil {
		return c, err
	}
	if c.Estimate = estimate; learn {
		c.Corrector = ends.New
	}
	if c.Deadlines, err = o.parseDeadlines(); err != nil {
		return c, err
	}
	c.Stay, c.Create, c.Destroy = o.stay, o.create.Seconds(), o.destroy.Seconds()
	c.Switch = o.change.Seconds()
	return c, nil
}

// adaptive reports whether jobs can be assigned larger slices than they request.
func (o options) adaptive() bool {
	return o.sizing != "tightest" && (o.queue == "fifo" || o.queue == "easy")
}

// cluster parses --gpus. It returns the model of each GPU, restricted to the profiles given by --profiles, and the
// number of GPUs in each node. nodes is nil if --per-node is not given.
func (o options) cluster() (gpus []*mig.Model, nodes []int, err error) {
	models := map[string]*mig.Model{}
	for _, item := range o.gpus {
		name, count, _ := strings.Cut(item, ":")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return nil, nil, fmt.Errorf("--gpus %s: specify BOARD:COUNT, as in A100-40GB:16", item)
		}
		b, err := mig.ModelByName(name)
		if err != nil {
			return nil, nil, err
		}
		if models[name] == nil {
			models[name] = o.selected(b)
		}
		gpus = append(gpus, slices.Repeat([]*mig.Model{models[name]}, n)...)
		for ; o.perNode > 0 && n > 0; n -= o.perNode {
			nodes = append(nodes, min(n, o.perNode))
		}
	}
	return gpus, nodes, nil
}

// selected returns a copy of a GPU model that contains only the profiles given by --profiles and, with --whole-gpus,
// the full profile, with as much memory as the largest slice.
func (o options) selected(b *mig.Model) *mig.Model {
	b = b.Select(func(p mig.Profile) bool {
		if o.profiles == nil {
			return mig.Plain(p)
		}
		return slices.Equal(o.profiles, list{"all"}) || slices.Contains(o.profiles, p.Name)
	})
	if !o.wholeGPUs {
		return b
	}
	most := 0.0
	for _, p := range b.Profiles {
		most = max(most, p.Memory())
	}
	return b.WithFull(uint64(most))
}

// checkPolicies returns the policies to simulate: those given by --policies, or the defaults. It returns an error if
// another option does not support one of them.
func (o options) checkPolicies(gpus []*mig.Model) (list, error) {
	alike, batches := sim.Alike(gpus), o.queue == "batches"
	switch {
	case o.static != "" && !alike:
		return nil, errors.New("--static requires GPUs of a single model")
	case o.policies == nil && batches:
		return list{"reach", "lifetime"}, nil
	case o.policies == nil && !alike:
		return list{"whole", "reach", "lifetime"}, nil
	case o.policies == nil:
		return list{"whole", "static", "reach", "lifetime"}, nil
	}
	for _, name := range o.policies {
		switch {
		case isReference(name):
			if batches {
				return nil, fmt.Errorf("--queue batches does not support the %s policy", name)
			}
			if !alike && name != "whole" {
				return nil, fmt.Errorf("--policies %s requires GPUs of a single model", name)
			}
		default:
			if _, err := place.ByName(name); err != nil {
				return nil, fmt.Errorf("--policies: %w; whole, static and moved are also policies", err)
			}
		}
	}
	return o.policies, nil
}

// ownLimits returns a job's time limit in seconds, or +Inf if it has none.
func ownLimits(j trace.Job) float64 { return cmp.Or(j.Limit, math.Inf(1)) }

// expected parses --ends. The first result is a function that returns the run time, in seconds, that the policies
// expect a job to have; if it is nil, they expect the actual run time. The second result reports whether the simulation
// corrects the expected run times with the run times of earlier jobs.
func (o options) expected() (seconds func(trace.Job) float64, learn bool, err error) {
	kind, value, _ := strings.Cut(o.ends, "=")
	switch kind {
	case "exact":
		if value == "" {
			return nil, false, nil
		}
	case "limits", "corrected": // only "corrected" sets learn, because the agents do not correct time limits
		learn = kind == "corrected"
		if value == "" {
			return ownLimits, learn, nil
		}
		if a, b, ok := numbers(value); ok && a >= 1 {
			return sim.Limits(a, b, o.seed), learn, nil
		}
	case "error":
		if s, err := strconv.ParseFloat(value, 64); err == nil && s >= 0 && s < 10 {
			return papers.Predictions(s, o.seed), true, nil
		}
	}
	const forms = "exact, limits, limits=1-6, corrected, corrected=1-6 or error=0.3"
	return nil, false, fmt.Errorf("--ends %s: specify %s", o.ends, forms)
}

// numbers parses two numbers from 0 to 1e6, separated by a hyphen, of which the second is not smaller.
func numbers(text string) (a, b float64, ok bool) {
	from, to, _ := strings.Cut(text, "-")
	a, err1 := strconv.ParseFloat(from, 64)
	b, err2 := strconv.ParseFloat(to, 64)
	return a, b, err1 == nil && err2 == nil && a >= 0 && b >= a && b < 1e6
}
