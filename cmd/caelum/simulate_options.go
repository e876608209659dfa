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

	"caelum/internal/mig"
	"caelum/internal/place"
	"caelum/internal/plan"
	"caelum/internal/sim"
	"caelum/internal/trace"
)

var disciplines = map[string]sim.Discipline{
	"fifo":     sim.FIFO,
	"easy":     sim.EASY,
	"skip":     sim.Skip,
	"smallest": sim.Smallest,
	"batches":  sim.Batches,
	"none":     sim.Loss,
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
		"jobs": {"--churn", o.churn != ""}, "load": {"--churn", o.churn != ""}, "mean": {"--churn", o.churn != ""},
		"miso-steps": {"--miso", o.miso != ""}, "every": {"--miso", o.miso != ""}, "slowdown": {"--miso", o.miso != ""},
		"since": {"--from-sacct", o.fromSacct}, "until": {"--from-sacct", o.fromSacct},
		"memory-margin": {"--memory-error", o.memoryError > 0},
		"switch":        {"--whole-gpus", o.wholeGPUs}, "whole-share": {"--whole-gpus", o.wholeGPUs},
		"move-cost": {"--moves", o.moves != ""}, "deadline-slack": {"--deadlines", o.deadlines > 0},
		"deadline-use": {"--deadlines", o.deadlines > 0}, "equal-priority": {"--deadlines", o.deadlines > 0},
		"multi-gpu": {"--alibaba and --whole-gpus", o.wholeGPUs && o.alibaba != ""},
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
		const queues = "fifo, easy, skip, smallest, batches and none"
		return c, usageError{fmt.Errorf("--queue %s: unknown queue; the queues are %s", o.queue, queues)}
	}
	switch {
	case o.offers && c.Discipline != sim.FIFO && c.Discipline != sim.EASY:
		return c, usageError{errors.New("--offers requires --queue fifo or easy")}
	case o.stay && c.Discipline != sim.Loss:
		return c, usageError{errors.New("--stay requires --queue none")}
	case o.create < 0 || o.destroy < 0 || o.change < 0:
		return c, usageError{errors.New("--create, --destroy and --switch must not be negative")}
	case !(o.wholeShare >= 0 && o.wholeShare <= 1):
		return c, usageError{errors.New("--whole-share must be from 0 to 1")}
	case o.wholeShare > 0 && o.wholeShare < 1 && c.Discipline != sim.FIFO && c.Discipline != sim.EASY:
		return c, usageError{errors.New("--whole-share requires --queue fifo or easy")}
	case o.perNode < 0:
		return c, usageError{errors.New("--per-node must not be negative (0: a job's slices can be on any GPUs)")}
	}
	if err := o.checkSizing(c.Discipline); err != nil {
		return c, err
	}
	if c.Memory, err = o.memory(); err != nil {
		return c, err
	}
	if _, err := o.parseMoves(); err != nil {
		return c, err
	}
	if c.Said, c.Learn, err = o.expected(); err != nil {
		return c, err
	}
	if c.Deadlines, err = o.parseDeadlines(); err != nil {
		return c, err
	}
	c.Stay, c.Create, c.Destroy = o.stay, o.create.Seconds(), o.destroy.Seconds()
	c.Switch = o.change.Seconds()
	return c, nil
}

// checkSizing checks --sizing.
func (o simulateOptions) checkSizing(queue sim.Discipline) error {
	switch o.sizing {
	case "", plan.SizingTightest:
		return nil
	case plan.SizingAdaptive:
		if !o.adaptive(queue) {
			return usageError{errors.New("--sizing adaptive requires --queue fifo or easy")}
		}
		return nil
	}
	return usageError{fmt.Errorf("--sizing %s: unknown sizing; specify adaptive or tightest", o.sizing)}
}

// adaptive reports whether jobs can be assigned larger slices than they request.
func (o simulateOptions) adaptive(queue sim.Discipline) bool {
	return o.sizing != plan.SizingTightest && (queue == sim.FIFO || queue == sim.EASY)
}

// cluster parses --gpus. It returns the model of each GPU, restricted to the profiles given by --profiles, and the
// number of GPUs in each node. nodes is nil if --per-node is not given.
func (o simulateOptions) cluster() (gpus []*mig.Model, nodes []int, err error) {
	var whole []*mig.Model
	boards := map[string]*mig.Model{}
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
		if boards[b.Name] == nil {
			whole = append(whole, b)
			boards[b.Name] = selected(b, o.profiles)
			if o.wholeGPUs {
				boards[b.Name] = withFull(boards[b.Name])
			}
		}
		gpus = append(gpus, slices.Repeat([]*mig.Model{boards[b.Name]}, n)...)
		for ; o.perNode > 0 && n > 0; n -= o.perNode {
			nodes = append(nodes, min(n, o.perNode))
		}
	}
	return gpus, nodes, checkProfiles(o.profiles, whole...)
}

// withFull returns a copy of a GPU model that also has the full profile, with as much memory as the largest slice.
func withFull(b *mig.Model) *mig.Model {
	most := 0.0
	for _, p := range b.Profiles {
		most = max(most, p.Memory())
	}
	return b.WithFull(uint64(most))
}

// memory returns the model of memory predictions for --memory-error, or nil if the flag is not given.
func (o simulateOptions) memory() (*sim.Memory, error) {
	switch e, m := o.memoryError, o.memoryMargin; {
	case !(e >= 0 && e < 10 && m >= 0 && m < 100):
		return nil, usageError{
			errors.New("--memory-error must be at least 0 and below 10, and --memory-margin must be at least 0 and " +
				"below 100"),
		}
	case e > 0 && o.stay:
		return nil, usageError{
			errors.New("--stay and --memory-error cannot be combined, because jobs that never end cannot run out of " +
				"memory; omit --memory-error"),
		}
	case e > 0:
		return &sim.Memory{Error: e, Margin: m, Seed: o.seed}, nil
	}
	return nil, nil
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
	batches := o.queue == "batches"
	switch {
	case o.policies == nil && batches:
		return []string{"reach", "lifetime"}, nil
	case o.policies == nil && !alike:
		return []string{"whole", "reach", "lifetime"}, nil
	case o.policies == nil:
		return []string{"whole", "static", "reach", "lifetime"}, nil
	case len(o.policies) == 0:
		return nil, usageError{errors.New("--policies is empty; specify policies from the list in --help")}
	}
	for _, name := range o.policies {
		if batches && slices.Contains([]string{"whole", "static", "moved"}, name) {
			return nil, usageError{
				fmt.Errorf(
					"--queue batches does not support the %s policy; use %s",
					name, strings.Join(place.Names(), ", "),
				),
			}
		}
		switch name {
		case "whole":
		case "static", "moved":
			if !alike {
				return nil, usageError{fmt.Errorf("--policies %s requires GPUs of a single model", name)}
			}
		default:
			if _, err := place.ByName(name); err != nil {
				return nil, usageError{fmt.Errorf("--policies: %w; whole, static and moved are also policies", err)}
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
func (o simulateOptions) expected() (seconds func(trace.Job) float64, learn bool, err error) {
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
		from, to, _ := strings.Cut(value, "-")
		a, err1 := strconv.ParseFloat(from, 64)
		b, err2 := strconv.ParseFloat(to, 64)
		if err1 == nil && err2 == nil && a >= 1 && b >= a && b < 1e6 {
			return sim.Limits(a, b, o.seed), learn, nil
		}
	case "error":
		if s, err := strconv.ParseFloat(value, 64); err == nil && s >= 0 && s < 10 {
			return sim.Predictions(s, o.seed), true, nil
		}
	}
	const forms = "exact, limits, limits=1-6, corrected, corrected=1-6 or error=0.3"
	return nil, false, usageError{fmt.Errorf("--ends %s: specify %s", o.ends, forms)}
}
