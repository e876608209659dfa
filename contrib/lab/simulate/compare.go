package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/contrib/lab/papers"
	"caelum/internal/core/mig"
	"caelum/internal/sim"
)

// wholeRun is the value of --move-cost that makes a moved job restart from the beginning.
const wholeRun = "run"

var moveRules = map[string]papers.MoveRule{
	"fragaware": papers.MoveAfterDeparture,
	"grmu":      papers.MoveAfterRejection,
	"dynap":     papers.StopForHead,
	"requeue":   papers.MoveForHead,
}

// parseMoves parses --moves and --move-cost. It returns nil if --moves is not given.
func (o options) parseMoves(gpus []*mig.Model) (*papers.Moves, error) {
	if o.moves == "" {
		return nil, nil
	}
	name, beta, given := strings.Cut(o.moves, "=")
	m := papers.Moves{Rule: moveRules[name], Cost: math.Inf(1)}
	if m.Rule == 0 || given && m.Rule != papers.StopForHead {
		return nil, fmt.Errorf("--moves %s: specify fragaware, grmu, dynap[=SECONDS] or requeue", o.moves)
	}
	if given {
		var err error
		if m.Beta, err = strconv.ParseFloat(beta, 64); err != nil {
			return nil, fmt.Errorf("--moves %s: %q is not a number of seconds", o.moves, beta)
		}
	}
	if o.moveCost != wholeRun {
		cost, err := time.ParseDuration(o.moveCost)
		if err != nil || cost < 0 {
			return nil, fmt.Errorf("--move-cost %s: specify a time, as in 60s, or %s", o.moveCost, wholeRun)
		}
		m.Cost = cost.Seconds()
	}
	switch {
	case o.offers:
		return nil, errors.New("--moves and --offers cannot be combined")
	case !sim.Alike(gpus) || o.wholeGPUs || o.memoryError > 0:
		return nil, errors.New("--moves requires GPUs of a single model, and cannot be combined with --whole-gpus or " +
			"--memory-error")
	case !slices.Contains([]string{"fifo", "easy", "none"}, o.queue):
		return nil, errors.New("--moves requires --queue fifo, easy or none")
	case m.Rule >= papers.StopForHead && o.queue == "none":
		return nil, fmt.Errorf("--moves %s requires a queue, because stopped jobs return to it", name)
	}
	return &m, nil
}

// memory returns the memory predictions for --memory-error, or nil if the flag is not given.
func (o options) memory(gpus []*mig.Model) (sim.Memory, error) {
	switch e, m := o.memoryError, o.memoryMargin; {
	case !(e >= 0 && e < 10 && m >= 0 && m < 100):
		return nil, errors.New("--memory-error must be at least 0 and below 10, and --memory-margin must be at least " +
			"0 and below 100")
	case e > 0 && o.stay:
		return nil, errors.New("--stay and --memory-error cannot be combined, because jobs that never end cannot run " +
			"out of memory")
	case e > 0:
		return papers.Memory{Models: sim.Kinds(gpus), Error: e, Margin: m, Seed: o.seed}, nil
	}
	return nil, nil
}

// deadlineUses lists the valid values of --deadline-use.
var deadlineUses = map[string]sim.DeadlineUse{
	"plan": sim.DeadlinesInPlan, "slurm": sim.DeadlinesInSlurm, "none": sim.DeadlinesCounted,
}

// parseDeadlines returns the deadlines that --deadlines describes, or nil if this flag is not given.
func (o options) parseDeadlines() (*sim.Deadlines, error) {
	if o.deadlines == 0 {
		return nil, nil
	}
	a, b, ok := numbers(o.deadlineSlack)
	use, known := deadlineUses[o.deadlineUse]
	switch {
	case !(o.deadlines > 0 && o.deadlines <= 1):
		return nil, errors.New("--deadlines must be from 0 to 1")
	case !ok:
		return nil, fmt.Errorf("--deadline-slack %s: specify FROM-TO, as in 0-2", o.deadlineSlack)
	case !known:
		return nil, fmt.Errorf("--deadline-use %s: specify plan, slurm or none", o.deadlineUse)
	case o.queue != "fifo" && o.queue != "easy", o.memoryError > 0, o.moves != "":
		return nil, errors.New("--deadlines requires --queue fifo or easy, and cannot be combined with " +
			"--memory-error or --moves")
	case o.policies == nil, slices.ContainsFunc(o.policies, isReference):
		return nil, errors.New("--deadlines requires --policies, which must not include whole, static or moved")
	}
	return &sim.Deadlines{Share: o.deadlines, From: a, To: b, Seed: o.seed, Use: use, Equal: o.equalPriority}, nil
}
