package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/sim"
)

// wholeRun is the value of --move-cost that makes a moved job restart from the beginning.
const wholeRun = "run"

var moveRules = map[string]sim.MoveRule{
	"fragaware": sim.MoveAfterDeparture,
	"grmu":      sim.MoveAfterRejection,
	"dynap":     sim.StopForHead,
	"requeue":   sim.MoveForHead,
}

// parseMoves parses --moves and --move-cost. It returns nil if --moves is not given.
func (o simulateOptions) parseMoves() (*sim.Moves, error) {
	if o.moves == "" {
		return nil, nil
	}
	name, beta, given := strings.Cut(o.moves, "=")
	m := sim.Moves{Rule: moveRules[name], Cost: math.Inf(1)}
	if m.Rule == 0 || given && m.Rule != sim.StopForHead {
		return nil, usageError{fmt.Errorf("--moves %s: specify fragaware, grmu, dynap[=SECONDS] or requeue", o.moves)}
	}
	if given {
		var err error
		if m.Beta, err = strconv.ParseFloat(beta, 64); err != nil {
			return nil, usageError{fmt.Errorf("--moves %s: %q is not a number of seconds", o.moves, beta)}
		}
	}
	if o.moveCost != wholeRun {
		cost, err := time.ParseDuration(o.moveCost)
		if err != nil || cost < 0 {
			return nil, usageError{fmt.Errorf("--move-cost %s: specify a time, as in 60s, or %s", o.moveCost, wholeRun)}
		}
		m.Cost = cost.Seconds()
	}
	switch {
	case o.offers:
		return nil, usageError{errors.New("--moves and --offers cannot be combined")}
	case !slices.Contains([]string{"fifo", "easy", "none"}, o.queue):
		return nil, usageError{errors.New("--moves requires --queue fifo, easy or none")}
	case m.Rule >= sim.StopForHead && o.queue == "none":
		return nil, usageError{fmt.Errorf("--moves %s requires a queue, because stopped jobs return to it", name)}
	}
	return &m, nil
}
