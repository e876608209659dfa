package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"caelum/internal/sim"
)

// deadlineUses lists the valid values of --deadline-use.
var deadlineUses = map[string]sim.DeadlineUse{
	"plan": sim.DeadlinesInPlan, "slurm": sim.DeadlinesInSlurm, "none": sim.DeadlinesCounted,
}

// parseDeadlines returns the deadlines that --deadlines describes, or nil if this flag is not given.
func (o simulateOptions) parseDeadlines() (*sim.Deadlines, error) {
	if o.deadlines == 0 {
		return nil, nil
	}
	from, to, _ := strings.Cut(o.deadlineSlack, "-")
	a, err1 := strconv.ParseFloat(from, 64)
	b, err2 := strconv.ParseFloat(to, 64)
	use, known := deadlineUses[o.deadlineUse]
	switch {
	case !(o.deadlines > 0 && o.deadlines <= 1):
		return nil, usageError{errors.New("--deadlines must be from 0 to 1")}
	case err1 != nil || err2 != nil || !(a >= 0 && b >= a && b < 1e6):
		return nil, usageError{fmt.Errorf("--deadline-slack %s: specify FROM-TO, as in 0-2", o.deadlineSlack)}
	case !known:
		return nil, usageError{fmt.Errorf("--deadline-use %s: specify plan, slurm or none", o.deadlineUse)}
	case o.queue != "fifo" && o.queue != "easy", o.memoryError > 0, o.moves != "":
		return nil, usageError{
			errors.New("--deadlines requires --queue fifo or easy, " +
				"and cannot be combined with --memory-error or --moves")}
	}
	for _, name := range o.policies {
		if name == "whole" || name == "static" || name == "moved" {
			return nil, usageError{fmt.Errorf("--deadlines does not support the %s policy", name)}
		}
	}
	if o.policies == nil {
		return nil, usageError{
			errors.New("--deadlines requires --policies, which must not include whole, static or moved")}
	}
	return &sim.Deadlines{
		Share: o.deadlines, From: a, To: b, Seed: o.seed, Use: use, Equal: o.equalPriority,
	}, nil
}
