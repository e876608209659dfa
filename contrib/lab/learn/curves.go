package main

import (
	"math"
	"math/rand/v2"
)

// curveSteps is the number of samples in an emulated run, and also the number of its iterations.
const curveSteps = 2000

// curve is the memory use of an emulated run over time, in MiB, with one value per step.
type curve struct {
	shape string
	// need is the memory that the run needs in order not to fail. used is the memory that NVML shows, on a slice of any
	// size. With a caching allocator, it includes memory that the allocator could return to the driver.
	need, used []float64
	clean      []float64 // need without noise
	// allocated and reserved are the allocator's values, or nil if there is no caching allocator. context is the memory
	// that the allocator does not count.
	allocated, reserved []float64
	context             float64
	seconds             float64 // the duration of the run
	learned, limit      float64 // the run time learned from earlier runs, and the time limit, in seconds
	slice               float64 // the slice's memory in MiB
}

// seen returns the memory that NVML shows at step k. An allocator returns unused memory when the slice is full.
func (c *curve) seen(k int) float64 { return min(c.used[k], c.slice) }

// peak returns the memory that the run needs before step n.
func (c *curve) peak(n int) float64 {
	top := 0.0
	for _, v := range c.need[:n] {
		top = max(top, v)
	}
	return top
}

// failsAt returns the step at which the run runs out of memory, or curveSteps if it completes.
func (c *curve) failsAt() int {
	for k, v := range c.need {
		if v > c.slice {
			return k
		}
	}
	return curveSteps
}

// shape is a kind of curve. Its level function returns two functions of the elapsed fraction of the run: the allocated
// memory, relative to the memory after the start, and the memory that is lost to fragmentation, as a fraction of the
// allocated memory. Its grows field is true if the memory grows steadily until the end, so that the past can indicate a
// later failure.
type shape struct {
	name      string
	grows     bool
	level     func(rng *rand.Rand) (level, lost func(x float64) float64)
	cacheOnly bool // only the memory that the allocator could return grows
}

func flat(float64) float64 { return 1 }
func none(float64) float64 { return 0 }

// between returns a random number between low and high.
func between(rng *rand.Rand, low, high float64) float64 { return low + (high-low)*rng.Float64() }

// sawtooth returns a sawtooth with 10 to 500 teeth. The argument growth is the amount by which their height grows until
// the end.
func sawtooth(rng *rand.Rand, growth float64) func(float64) float64 {
	teeth, height := math.Exp(between(rng, math.Log(10), math.Log(500))), between(rng, 0.1, 1)
	return func(x float64) float64 {
		_, phase := math.Modf(x * teeth)
		return 1 + height*(1+growth*x)*phase
	}
}

var shapes = []shape{
	{name: "flat after warm-up", level: func(rng *rand.Rand) (_, _ func(float64) float64) {
		from, warm, steps := between(rng, 0.1, 0.8), between(rng, 0.005, 0.05), float64(1+rng.IntN(8))
		return func(x float64) float64 {
			return from + (1-from)*min(math.Ceil(x/warm*steps)/steps, 1)
		}, none
	}},
	{name: "ramp", grows: true, level: func(rng *rand.Rand) (_, _ func(float64) float64) {
		growth := between(rng, 0.3, 3)
		return func(x float64) float64 { return 1 + growth*x }, none
	}},
	{name: "growing sawtooth", grows: true, level: func(rng *rand.Rand) (_, _ func(float64) float64) {
		return sawtooth(rng, between(rng, 0.3, 2)), none
	}},
	{name: "leak", grows: true, level: func(rng *rand.Rand) (_, _ func(float64) float64) {
		from, growth := between(rng, -0.5, 0.5), between(rng, 0.2, 2)
		from = max(from, 0)
		return func(x float64) float64 { return 1 + growth*max(x-from, 0) }, none
	}},
	{name: "fragmentation", grows: true, level: func(rng *rand.Rand) (_, _ func(float64) float64) {
		most, tau := between(rng, 0.1, 0.8), between(rng, 0.05, 0.5)
		if rng.IntN(2) == 0 {
			return flat, func(x float64) float64 { return most * (1 - math.Exp(-x/tau)) }
		}
		return flat, func(x float64) float64 { return most * math.Log1p(x/tau) / math.Log1p(1/tau) }
	}},
	{name: "growing cache", cacheOnly: true,
		level: func(*rand.Rand) (_, _ func(float64) float64) { return flat, none }},
	{name: "sawtooth", level: func(rng *rand.Rand) (_, _ func(float64) float64) { return sawtooth(rng, 0), none }},
	{name: "step at an epoch's end", level: func(rng *rand.Rand) (_, _ func(float64) float64) {
		at, height := 1/float64(2+rng.IntN(9)), between(rng, 0.1, 0.8)
		return func(x float64) float64 {
			if x < at {
				return 1
			}
			return 1 + height
		}, none
	}},
	{name: "evaluation phase", level: func(rng *rand.Rand) (_, _ func(float64) float64) {
		epochs, share, height := float64(3+rng.IntN(18)), between(rng, 0.05, 0.15), between(rng, 0.5, 1.8)
		return func(x float64) float64 {
			if _, phase := math.Modf(x * epochs); phase > 1-share {
				return height
			}
			return 1
		}, none
	}},
}

const (
	// loading is the fraction of the run in which the program loads its data. A run that fails within atStart fails
	// before there is a past to learn from, and a run that fails within noAlarms fails before Caelum raises any alarm
	// (predict.minShare).
	loading, atStart, noAlarms = 0.003, 0.05, 0.2
)

// newCurve returns a random run with the given shape. Its peak is 0.5 to 2 times its slice's memory, so that half of
// the runs fail. Half of the programs use a caching allocator.
func newCurve(s shape, rng *rand.Rand) *curve {
	level, lost := s.level(rng)
	base := math.Exp(between(rng, math.Log(1000), math.Log(20000)))
	sigma, heavy := between(rng, 0, 0.03), rng.IntN(3) == 0
	caching := rng.IntN(2) == 0 || s.cacheOnly
	creep := between(rng, 0.1, 0.8)
	c := &curve{shape: s.name, context: between(rng, 200, 500)}
	c.seconds = math.Exp(between(rng, math.Log(600), math.Log(36000)))
	c.learned = c.seconds * math.Exp(0.2*rng.NormFloat64())
	c.limit = c.seconds * between(rng, 1, 6)
	reserved := 0.0
	for k := range curveSteps {
		x := float64(k+1) / curveSteps
		noise := math.Exp(sigma * rng.NormFloat64())
		if heavy {
			noise = math.Exp(sigma * (rng.ExpFloat64() - 1))
		}
		allocated := base * level(x) * noise * min(x/loading, 1)
		need := allocated * (1 + lost(x))
		const block = 20 // the allocator reserves blocks of 20 MiB
		extra := 0.0
		if s.cacheOnly {
			extra = creep * base * math.Sqrt(x)
		}
		reserved = max(reserved, math.Ceil((need+extra)/block)*block)
		c.need = append(c.need, need+c.context)
		c.clean = append(c.clean, need/noise+c.context)
		if caching {
			c.used = append(c.used, reserved+c.context)
			c.allocated = append(c.allocated, allocated)
			c.reserved = append(c.reserved, reserved)
		} else {
			c.used = append(c.used, need+c.context)
		}
	}
	c.slice = c.peak(curveSteps) * math.Exp2(between(rng, -1, 1))
	return c
}
