package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"caelum/internal/predict"
	"caelum/internal/trace"
)

// memoryCurve is a run's memory over time, as a share of its peak. The memory rises from a base to the peak in jumps of
// equal height. The curves have the following distributions, chosen on seeds 1 and 2:
//
//	base      30 to 90% of the peak
//	jumps     1 to 15% of the difference between the base and the peak
//	flat      40% of the recurring jobs: memory reaches the peak within the first 0.2 to 2% of the run
//	ramp      15%: the same within the first 2 to 80% of the run
//	leak      10%: the same at the end of the run
//	sawtooth  15%: the same in each of 2 to 20 epochs; memory returns to the base at the end of an epoch
//	step      20%: one jump to the peak at the end of the first of 2 to 20 epochs
type memoryCurve struct {
	base, jump float64
	rise       float64 // the share of the run until memory reaches the peak for the first time
	epochs     bool    // true if memory returns to the base after each rise
}

func drawMemoryCurve(rng *rand.Rand) memoryCurve {
	c := memoryCurve{base: 0.3 + 0.6*rng.Float64(), jump: 0.01 + 0.14*rng.Float64()}
	kind, at := rng.Float64(), rng.Float64()
	epoch := 1 / (2 + math.Floor(19*at))
	switch {
	case kind < 0.4:
		c.rise = 0.002 + 0.018*at
	case kind < 0.55:
		c.rise = 0.02 + 0.78*at
	case kind < 0.65:
		c.rise = 1
	case kind < 0.8:
		c.rise, c.epochs = epoch, true
	default:
		c.rise, c.jump = epoch, 1
	}
	return c
}

// level returns the memory after the given number of jumps.
func (c memoryCurve) level(jumps float64) float64 {
	return c.base + (1-c.base)*min(1, max(0, jumps)*c.jump)
}

// rounding is larger than any rounding error in a number of jumps.
const rounding = 1e-9

// at returns the memory after the given share of the run.
func (c memoryCurve) at(share float64) float64 {
	risen := share / c.rise
	if c.epochs && risen > 1 {
		risen -= math.Ceil(risen) - 1
	}
	if risen >= 1 {
		return 1
	}
	return c.level(math.Floor(risen/c.jump + rounding))
}

// before returns the peak memory use before the given share of the run has elapsed.
func (c memoryCurve) before(share float64) float64 {
	if share > c.rise {
		return 1
	}
	return c.level(math.Ceil(share/c.rise/c.jump-rounding) - 1)
}

// exceeds returns the share of the run after which the memory first exceeds a level, or 1 if it never does.
func (c memoryCurve) exceeds(level float64) float64 {
	switch {
	case level >= 1:
		return 1
	case level < c.base:
		return 0
	}
	return c.rise * min(1, c.jump*(1+math.Floor((level-c.base)/(1-c.base)/c.jump)))
}

// growing is a population of recurring jobs that arrive over time, for the grow command.
type growing struct {
	name        string
	works       int     // the number of recurring jobs
	least, most int     // the number of submissions of a recurring job
	load        float64 // the requested share of all units if each job had the tightest profile
}

// growings lists the populations for the grow command. Each of them has about 4000 submissions.
var growings = []growing{
	{"recurring jobs, load 0.4", 100, 20, 60, 0.4},
	{"new jobs, load 0.6", 1600, 1, 4, 0.6},
}

const (
	growGPUs = 16
	// longest is the longest time limit, in seconds, on a whole GPU.
	longest = 12 * 3600
)

// arrival is one submission, with its job's memory and compute needs.
type arrival struct {
	submission
	trace.Job
	key  string  // the job key
	busy float64 // the busy share
	memoryCurve
}

// draw returns a population's submissions in order of time. Except for the curve, the jobs' memory, run times, failures
// and versions are those of the work type. The busy share has the density 4 b^3 (predict.UnknownBusy). A recurring job
// is first submitted at a random time within 40 days, and then about once a day. All times between submissions are then
// multiplied by the same factor, so that the population has the given load.
func (g growing) draw(n node, seed uint64) (all []*arrival) {
	rng := rand.New(rand.NewPCG(seed, 19))
	people := drawUsers(rng, users)
	work, last := 0.0, 0.0
	for k := range g.works {
		w := standard.drawWork(rng, people)
		w.runs = g.least + rng.IntN(g.most-g.least+1)
		w.limit = min(w.limit, longest)
		at, busy, curve := 40*86400*rng.Float64(), math.Pow(rng.Float64(), 0.25), drawMemoryCurve(rng)
		for nth, s := range w.submissions(rng) {
			a := &arrival{submission: s, key: fmt.Sprint(k, ".", s.script), busy: busy, memoryCurve: curve}
			a.Job = trace.Job{
				ID: fmt.Sprint(k, ".", nth), Submit: at, Duration: s.seconds, Limit: w.limit, MemoryMiB: s.peak,
				Speed: map[string]float64{},
			}
			for _, p := range n.model.Profiles {
				a.Speed[p.Name] = 1 / predict.Slowdown(busy, p.Compute, n.model.Compute())
			}
			tight := n.fitting(a)
			work += n.share(tight) * a.Takes(tight) * s.until
			last = max(last, at)
			at += 86400 * rng.ExpFloat64()
			all = append(all, a)
		}
	}
	for _, a := range all {
		a.Submit *= work / (growGPUs * last * g.load)
	}
	slices.SortFunc(all, func(a, b *arrival) int { return cmp.Compare(a.Submit, b.Submit) })
	return all
}

// fitting returns the profile that Caelum would choose for a submission with known memory and busy share.
func (n node) fitting(a *arrival) string {
	need := predict.Need{
		PeakMiB: a.peak, HighestMiB: a.peak, Busy: a.busy, BusyKnown: true,
		MaxSlowdown: predict.DefaultSite.MaxSlowdown,
	}
	profile, _ := need.On(n.model, n.all)
	return profile
}

// share returns a profile's share of a GPU's units.
func (n node) share(profile string) float64 {
	k, _ := n.model.ProfileIndex(profile)
	return float64(n.model.Profiles[k].Size) / float64(n.model.Grid)
}
