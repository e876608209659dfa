package main

import (
	"cmp"
	"math"
	"math/rand/v2"

	"caelum/internal/core/predict"
)

// work is a recurring job with a key of its own. The population has the following distributions, chosen before any
// measurement:
//
//	users      200; each user requests 1.1 to 6 times the needed time (log-uniform), and has a scale of run times
//	peak       lognormal, median 6 GiB, sigma 1, from 0.5 to 36 GiB
//	noise      lognormal from run to run: sigma 0.5% for 60% of the jobs, 3% for 30%, 12% for 10%
//	drift      15% of the jobs: the peak grows or shrinks by up to 0.5% per run
//	outliers   20% of the jobs: 2% of the runs need 1.2 to 2 times as much memory
//	versions   30% of the jobs: one run in 25 is the first of a new version, with a peak exp(0.35 z) times as large;
//	           half of the new versions have a new script, and therefore a new key
//	curve      memory rises from half of the peak to the peak within the first 2 to 100% of the run
//	spikes     20% of the jobs: one sample per second misses the peak, and the sampled peak is 0 to 3% lower
//	chunks     a run out of memory fails at an allocation of up to 15% of its slice
//	ends       4% of the runs fail and 2% are cancelled at some time, for reasons other than memory;
//	           5% of the jobs always reach their time limits
//	run time   lognormal, median one hour times a scale of the user (sigma 1) and of the job (sigma 1);
//	           sigma from run to run: 5% for half of the jobs, 40% for the other half
//	limit      the user's factor times the job's median, rounded up to the next of 10 min, 30 min, 1, 2, 4, 8, 12 h,
//	           1, 2, 3, 4, 7 days; no run is longer than its limit
//	recurs     a job has 20 to 60 submissions
//
// A population can differ from these distributions (see population).
type work struct {
	population
	user                       int
	level, noise, drift, spike float64 // level: MiB
	rise, chunk                float64
	outliers, versions         bool
	cut                        bool

	typical, jitter, limit float64 // seconds, sigma, seconds
	runs                   int
}

// population holds the parameters that differ between populations.
type population struct {
	name    string
	failing float64 // the fraction of runs that fail for reasons other than memory
	noise   float64 // the run-to-run sigma of all jobs' peaks; 0 means as described for work
	base    float64 // the memory in use at the start of a run, as a fraction of the peak
	sudden  bool    // memory use does not rise gradually: one allocation takes all the memory that is missing
}

// standard is the population described in the comment on work.
var standard = population{name: "standard", failing: 0.04, base: 0.5}

// variants are the populations of the `variants` command. In the first three, memory use rises from zero, so a run that
// fails early has used little memory. In the last two, every job's memory use depends on its input.
var variants = []population{
	{"20% of the runs fail", 0.2, 0, 0, false},
	{"50% of the runs fail", 0.5, 0, 0, false},
	{"80% of the runs fail", 0.8, 0, 0, false},
	{"memory sigma 0.3", 0.04, 0.3, 0.5, false},
	{"sudden peaks with sigma 0.3", 0.04, 0.3, 0.1, true},
}

// user describes one user of the population.
type user struct{ habit, scale float64 }

func drawUsers(rng *rand.Rand, n int) []user {
	all := make([]user, n)
	for k := range all {
		all[k] = user{1.1 * math.Pow(6/1.1, rng.Float64()), math.Exp(rng.NormFloat64())}
	}
	return all
}

func (p population) drawWork(rng *rand.Rand, users []user) work {
	w := work{population: p, user: rng.IntN(len(users)), level: 0}
	for w.level < 512 || w.level > 36<<10 {
		w.level = 6144 * math.Exp(rng.NormFloat64())
	}
	switch x := rng.Float64(); {
	case x < 0.6:
		w.noise = 0.005
	case x < 0.9:
		w.noise = 0.03
	default:
		w.noise = 0.12
	}
	w.noise = cmp.Or(p.noise, w.noise)
	if rng.Float64() < 0.15 {
		w.drift = 0.005 * (2*rng.Float64() - 1)
	}
	if rng.Float64() < 0.2 {
		w.spike = 0.03
	}
	w.outliers, w.versions, w.cut = rng.Float64() < 0.2, rng.Float64() < 0.3, rng.Float64() < 0.05
	w.rise, w.chunk = 0.02+0.98*rng.Float64(), 0.15*rng.Float64()
	u := users[w.user]
	w.typical = 3600 * u.scale * math.Exp(rng.NormFloat64())
	w.jitter = []float64{0.05, 0.4}[rng.IntN(2)]
	w.limit = asked(u.habit * w.typical)
	w.runs = 20 + rng.IntN(41)
	return w
}

// asked returns the time limit that a user requests for a job with the given expected run time. Both times are in
// seconds.
func asked(seconds float64) float64 {
	const hour, day = 3600, 24 * 3600
	for _, round := range []float64{
		600, 1800, hour, 2 * hour, 4 * hour, 8 * hour, 12 * hour, day, 2 * day, 3 * day, 4 * day,
	} {
		if seconds <= round {
			return round
		}
	}
	return 7 * day
}

// submission describes one submission of a recurring job.
type submission struct {
	script  int     // version of the script; each version has its own key
	peak    float64 // memory that the run needs, in MiB
	seen    float64 // the fraction of the peak that the samples show
	seconds float64 // run time if nothing ends the run early
	state   string  // the final state if the slice has enough memory
	until   float64 // the fraction of the run after which it ends; 1 if it does not end early
	args    []float64
}

// submissions returns all submissions of the job in order.
func (w work) submissions(rng *rand.Rand) []submission {
	all := make([]submission, 0, w.runs)
	level, script := w.level, 0
	for k := range w.runs {
		if w.versions && k > 0 && rng.Float64() < 1./25 {
			level *= math.Exp(0.35 * rng.NormFloat64())
			script += rng.IntN(2)
		}
		level *= 1 + w.drift
		level = min(max(level, 512), 39<<10)
		s := submission{
			script: script,
			peak:   level * math.Exp(w.noise*rng.NormFloat64()),
			seen:   1 - w.spike*rng.Float64(),
			state:  "COMPLETED",
			until:  1,
		}
		if w.outliers && rng.Float64() < 0.02 {
			s.peak *= 1.2 + 0.8*rng.Float64()
		}
		s.peak = min(s.peak, 39<<10)
		s.seconds = w.typical * math.Exp(w.jitter*rng.NormFloat64())
		switch x := rng.Float64(); {
		case x < w.failing:
			s.state, s.until = "FAILED", rng.Float64()
		case x < w.failing+0.02:
			s.state, s.until = "CANCELLED", rng.Float64()
		case w.cut || s.seconds >= w.limit:
			s.state, s.seconds = "TIMEOUT", w.limit
		}
		all = append(all, s)
	}
	return all
}

// run returns the observed run of a submission on a slice with the given memory in MiB. The result killed is true if
// the run ran out of memory.
func (w work) run(s submission, job uint32, profile string, memory float64) (r predict.Run, killed bool) {
	r = predict.Run{
		Job:     job,
		Node:    "n1",
		GPUType: "a100",
		Profile: profile,
		Slices:  1,
		Start:   int64(job),
		Seconds: s.until * s.seconds,
		State:   s.state,
		Util:    -1,
		Args:    s.args,
	}
	r.PeakMiB, r.MedianMiB = w.memory(s, s.until), w.memory(s, s.until/2)
	if r.PeakMiB > memory {
		killed = true
		for s.until > 0.001 && w.memory(s, s.until) > memory*(1-w.chunk) {
			s.until *= 0.99
		}
		r.State, r.Seconds = "FAILED", s.until*s.seconds
		r.PeakMiB, r.MedianMiB = min(w.memory(s, s.until), memory*(1-w.chunk)), min(w.memory(s, s.until/2), memory)
	}
	r.PeakMiB *= s.seen
	r.HighMiB = r.PeakMiB
	r.Samples = int(r.Seconds)
	if r.State != "COMPLETED" {
		r.Exit = 1
	}
	return r, killed
}

// memory returns the memory in use, in MiB, after the given fraction of the run.
func (w work) memory(s submission, share float64) float64 {
	if w.sudden && share < w.rise {
		return s.peak * w.base
	}
	if w.sudden {
		return s.peak
	}
	return s.peak * min(1, w.base+(1-w.base)*share/w.rise)
}
