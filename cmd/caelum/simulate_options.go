package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

var disciplines = map[string]sim.Discipline{
	"fifo": sim.FIFO,
	"easy": sim.EASY,
	"none": sim.Loss,
}

// mostGPUs limits the size of the simulated cluster. Even the largest publicly known clusters, with tens of thousands
// of GPUs, are smaller.
const mostGPUs = 100000

// checkFlags returns an error if a flag on the command line requires another flag that is missing.
func (o simulateOptions) checkFlags(f *pflag.FlagSet) error {
	for name, requires := range map[string]struct {
		flag  string
		given bool
	}{
		"jobs": {"--churn", o.churn != ""}, "load": {"--churn", o.churn != ""},
		"since": {"--from-sacct", o.fromSacct}, "until": {"--from-sacct", o.fromSacct},
	} {
		if f.Changed(name) && !requires.given {
			return usageError{fmt.Errorf("--%s requires %s", name, requires.flag)}
		}
	}
	return nil
}

// config returns the configuration of the simulation, with the Policy field unset.
func (o simulateOptions) config() (c sim.Config, err error) {
	if c.GPUs, c.Nodes, err = o.cluster(); err != nil {
		return c, err
	}
	var known bool
	if c.Discipline, known = disciplines[o.queue]; !known {
		return c, usageError{fmt.Errorf("--queue %s: unknown queue; the queues are fifo, easy and none", o.queue)}
	}
	switch {
	case o.offers && c.Discipline != sim.FIFO && c.Discipline != sim.EASY:
		return c, usageError{errors.New("--offers requires --queue fifo or easy")}
	case o.perNode < 0:
		return c, usageError{errors.New("--per-node must not be negative (0: a job's slices can be on any GPUs)")}
	}
	c.Estimate, err = o.expected()
	c.Offers = o.offers
	return c, err
}

// cluster parses --gpus. It returns the model of each GPU, restricted to the profiles given by --profiles, and the
// number of GPUs in each node. nodes is nil if --per-node is not given.
func (o simulateOptions) cluster() (gpus []*mig.Model, nodes []int, err error) {
	var whole []*mig.Model
	models := map[string]*mig.Model{}
	for _, item := range o.gpus {
		name, count, ok := strings.Cut(item, ":")
		n, err := strconv.Atoi(count)
		if !ok || err != nil || n < 1 || len(gpus)+n > mostGPUs {
			return nil, nil, usageError{
				fmt.Errorf("--gpus %s: specify BOARD:COUNT, as in A100-40GB:16, with at most %d GPUs in total", item,
					mostGPUs),
			}
		}
		b, err := modelNamed(name)
		if err != nil {
			return nil, nil, err
		}
		if models[b.Name] == nil {
			whole = append(whole, b)
			models[b.Name] = selected(b, o.profiles)
			if o.wholeGPUs {
				models[b.Name] = withFull(models[b.Name])
			}
		}
		gpus = append(gpus, slices.Repeat([]*mig.Model{models[b.Name]}, n)...)
		for ; o.perNode > 0 && n > 0; n -= o.perNode {
			nodes = append(nodes, min(n, o.perNode))
		}
	}
	return gpus, nodes, checkProfiles(o.profiles, whole...)
}

// withFull returns a copy of a GPU model that also has the full profile, with as much memory as the largest slice.
func withFull(b *mig.Model) *mig.Model {
	if b.Full() != 0 {
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
func (o simulateOptions) checkPolicies(gpus []*mig.Model) ([]string, error) {
	alike := sim.Alike(gpus)
	if o.static != "" {
		if !alike {
			return nil, usageError{errors.New("--static requires GPUs of a single model")}
		}
		if _, err := sim.ParsePattern(gpus[0], o.static); err != nil {
			return nil, usageError{fmt.Errorf("--static: %w", err)}
		}
	}
	switch {
	case o.policies == nil && !alike:
		return []string{"whole", "reach", "lifetime"}, nil
	case o.policies == nil:
		return []string{"whole", "static", "reach", "lifetime"}, nil
	case len(o.policies) == 0:
		return nil, usageError{errors.New("--policies is empty; specify policies from the list in --help")}
	}
	for _, name := range o.policies {
		switch name {
		case "whole":
		case "static":
			if !alike {
				return nil, usageError{errors.New("--policies static requires GPUs of a single model")}
			}
		default:
			if _, err := place.ByName(name); err != nil {
				return nil, usageError{fmt.Errorf("--policies: %w; whole and static are also policies", err)}
			}
		}
	}
	return o.policies, nil
}

// ownLimits returns a job's time limit in seconds, or +Inf if it has none.
func ownLimits(j trace.Job) float64 { return cmp.Or(j.Limit, math.Inf(1)) }

// expected parses --ends. It returns a function that returns the run time, in seconds, that the policies expect a job
// to have; if it is nil, they expect the actual run time.
func (o simulateOptions) expected() (seconds func(trace.Job) float64, err error) {
	switch o.ends {
	case "exact":
		return nil, nil
	case "limits":
		return ownLimits, nil
	}
	kind, value, _ := strings.Cut(o.ends, "=")
	from, to, _ := strings.Cut(value, "-")
	a, err1 := strconv.ParseFloat(from, 64)
	b, err2 := strconv.ParseFloat(to, 64)
	if kind == "limits" && err1 == nil && err2 == nil && a >= 1 && b >= a && b < 1e6 {
		return sim.Limits(a, b, o.seed), nil
	}
	return nil, usageError{fmt.Errorf("--ends %s: specify exact, limits or limits=1-6", o.ends)}
}
