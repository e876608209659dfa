package growtrace

import (
	"math"
	"math/rand/v2"
)

// Curve is the memory use of a run over time, as a fraction of its peak. The memory use rises from a base to the peak
// in jumps of equal height. The curves have the following distributions, chosen on seeds 1 and 2:
//
//	base      30 to 90% of the peak
//	jumps     1 to 15% of the difference between the base and the peak
//	flat      40% of the recurring jobs: memory reaches the peak within the first 0.2 to 2% of the run
//	ramp      15%: the same within the first 2 to 80% of the run
//	leak      10%: the same at the end of the run
//	sawtooth  15%: the same in each of 2 to 20 epochs; memory returns to the base at the end of an epoch
//	step      20%: one jump to the peak at the end of the first of 2 to 20 epochs
type Curve struct {
	Base, Jump float64
	Rise       float64 // the fraction of the run before memory use first reaches the peak
	Epochs     bool    // true if memory use returns to the base after each rise
}

// Draw returns a random curve.
func Draw(rng *rand.Rand) Curve {
	c := Curve{Base: 0.3 + 0.6*rng.Float64(), Jump: 0.01 + 0.14*rng.Float64()}
	kind, at := rng.Float64(), rng.Float64()
	epoch := 1 / (2 + math.Floor(19*at))
	switch {
	case kind < 0.4:
		c.Rise = 0.002 + 0.018*at
	case kind < 0.55:
		c.Rise = 0.02 + 0.78*at
	case kind < 0.65:
		c.Rise = 1
	case kind < 0.8:
		c.Rise, c.Epochs = epoch, true
	default:
		c.Rise, c.Jump = epoch, 1
	}
	return c
}

// level returns the memory use after the given number of jumps.
func (c Curve) level(jumps float64) float64 {
	return c.Base + (1-c.Base)*min(1, max(0, jumps)*c.Jump)
}

// rounding is an upper bound on the rounding error of a number of jumps.
const rounding = 1e-9

// At returns the memory use after the given fraction of the run.
func (c Curve) At(share float64) float64 {
	risen := share / c.Rise
	if c.Epochs && risen > 1 {
		risen -= math.Ceil(risen) - 1
	}
	if risen >= 1 {
		return 1
	}
	return c.level(math.Floor(risen/c.Jump + rounding))
}

// Before returns the peak memory use before the given fraction of the run has elapsed.
func (c Curve) Before(share float64) float64 {
	if share > c.Rise {
		return 1
	}
	return c.level(math.Ceil(share/c.Rise/c.Jump-rounding) - 1)
}

// Exceeds returns the fraction of the run after which memory use first exceeds a level, or 1 if it never does.
func (c Curve) Exceeds(level float64) float64 {
	switch {
	case level >= 1:
		return 1
	case level < c.Base:
		return 0
	}
	return c.Rise * min(1, c.Jump*(1+math.Floor((level-c.Base)/(1-c.Base)/c.Jump)))
}
