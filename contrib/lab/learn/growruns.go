package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

const (
	// resubmitMedian and resubmitSigma describe the lognormal distribution of the time, in seconds, that a user takes
	// to notice that a job has run out of memory and to resubmit it.
	resubmitMedian, resubmitSigma = 1800, 1
	// growLimit is the default of the grow_limit key.
	growLimit = 3
	// shortest is the time, in seconds, after which a job that needs too much memory from the start fails.
	shortest = 20
	// forecastEvery and forecastShare are the minimum times between forecasts, in seconds and as a fraction of the run
	// so far, as in package usage. Between forecasts, an agent takes a sample every second, whereas the simulation
	// takes samplesBetween samples.
	forecastEvery, forecastShare, samplesBetween = 5, 0.02, 4
	// rareShare replaces forecastShare while the fraction of the slice's memory in use is below nearlyFull, because the
	// simulation would otherwise take hours. If the run time is unknown, no forecast made below nearlyFull exceeds the
	// slice's memory.
	rareShare, nearlyFull = 0.1, 0.8
	// constant is a multiple of the time until the peak. After that time, the simulation does not make any more
	// forecasts, because the memory use no longer changes.
	constant = 4
)

// site holds the site's settings: the growth mode, and the profile for unknown jobs.
type site struct {
	grow    string // off, oom or forecast
	profile string // the profile of jobs without a complete run
	reports bool   // true if jobs report that they ran out of memory
	// These times are in seconds. If they are not 0, notice replaces the time after which a user resubmits a job, delay
	// replaces the delay of a requeue, and loading replaces shortest.
	notice, delay, loading float64
}

// growTally holds the results of a simulation.
type growTally struct {
	jobs       int
	turnaround float64 // from the first submission to the end of the last run, in seconds
	ran        int     // jobs with a run that ran, or would have run, out of memory
	affected   float64 // the turnaround of these jobs, in seconds
	used, lost float64 // GPU-seconds of all runs, and of the runs that were followed by another run
	failures   int     // runs that ran out of memory, after which the user resubmitted the job
	requeues   int
	stopped    int // requeues before a job would have run out of memory
	needless   int // requeues of jobs that would not have run out of memory
}

// growth simulates growing jobs and the decisions that agents make about them. It implements [sim.Growth].
type growth struct {
	site
	node
	growTally
	plays map[string]*growingJob   // by ID
	runs  map[string][]predict.Run // by key
	last  uint32                   // the last job ID assigned
}

// growingJob is the state of a submission.
type growingJob struct {
	*arrival
	chance   *rand.Rand
	attempts int // the number of times that the user has submitted the job
	grown    []predict.Growth

	run     predict.Run // the current run
	seconds float64     // the duration of a complete run on the current slice
	memory  float64     // the current slice's memory in MiB
	short   bool        // the run would run out of memory

	affected bool // a run ran out of memory
}

// newGrowth returns the initial state of a simulation of all submissions.
func newGrowth(n node, s site, all []*arrival, seed uint64) *growth {
	g := &growth{site: s, node: n, plays: map[string]*growingJob{}, runs: map[string][]predict.Run{}}
	for k, a := range all {
		g.plays[a.ID] = &growingJob{arrival: a, chance: rand.New(rand.NewPCG(seed, uint64(k)))}
	}
	return g
}

// Submitted implements [sim.Growth]. A user whose job has run out of memory several times requests a whole GPU.
func (g *growth) Submitted(t trace.Job) string {
	j := g.plays[t.ID]
	g.last++
	j.attempts, j.grown, j.run = j.attempts+1, nil, predict.Run{Job: g.last}
	if j.attempts == tries {
		return g.whole
	}
	return g.predicted(g.runs[j.key], predict.DefaultSite, g.profile)
}

// Started implements [sim.Growth].
func (g *growth) Started(t trace.Job, profile string) float64 {
	j := g.plays[t.ID]
	k, _ := g.model.ProfileIndex(profile)
	takes := predict.Slowdown(j.busy, g.model.Profiles[k].Compute, 1)
	j.seconds, j.memory = t.Takes(profile), g.memory(profile)
	until := j.Exceeds(j.memory / j.peak)
	if j.short = until < j.until; !j.short {
		until = j.until
	}
	r := &j.run
	*r = predict.Run{
		Job: r.Job, Restart: r.Restart, Node: "n1", GPUType: g.model.Type, Profile: profile, Slices: 1,
		Util: 1 - (1-j.busy)/takes, State: j.state,
	}
	switch share, foreseen := g.foresee(j, until); {
	case foreseen > 0:
		until, r.State, r.End, r.ForeseenMiB = share, "REQUEUED", predict.EndForeseen, foreseen
	case j.short:
		r.State = "FAILED"
	}
	if r.State != "COMPLETED" {
		r.Exit = 1
	}
	r.Seconds = max(until*j.seconds, min(cmp.Or(g.loading, shortest), j.seconds))
	peak := min(j.Before(until)*j.peak, j.memory)
	r.PeakMiB, r.MedianMiB = j.seen*peak, j.seen*min(peak, j.At(until/2)*j.peak)
	r.HighMiB = r.PeakMiB
	r.Samples = int(math.Ceil(r.Seconds))
	return r.Seconds
}

// foresee returns the fraction of a run after which the agent stops it because the forecast peak exceeds the slice's
// memory, and the forecast in MiB. The forecast is 0 if the agent does not stop the run before the fraction given by
// until has elapsed.
func (g *growth) foresee(j *growingJob, until float64) (share, mib float64) {
	if g.grow != "forecast" || len(j.grown) == growLimit {
		return 0, 0
	}
	runs := g.runs[j.key]
	need, _ := predict.Predict(predict.History{Level: predict.ByKey, Runs: runs}, predict.DefaultSite)
	compute, _ := mig.Claims(j.run.Profile)
	end := predict.End{Limit: j.Limit * j.seconds / j.Duration}
	end.Learned, _, _ = need.Takes(compute)
	if g.reports {
		end.Total = j.seconds
	}
	var series predict.Series
	current, credible := j.run, false
	if !j.Epochs {
		until = min(until, constant*j.Rise)
	}
	for end.Ran < until*j.seconds {
		often := forecastShare
		if current.PeakMiB < nearlyFull*j.memory {
			often = rareShare
		}
		step := max(forecastEvery, often*end.Ran)
		for range samplesBetween {
			end.Ran += step / samplesBetween
			mib := j.seen * j.At(end.Ran/j.seconds) * j.peak
			series.Add(end.Ran, mib)
			if mib > current.PeakMiB {
				current.PeakMiB = mib
				_, credible = predict.Foresaw(runs, current, mib, predict.DefaultSite)
			}
		}
		if !credible { // true of most forecasts for recurring jobs
			continue
		}
		f := series.Forecast(end, j.memory)
		if !f.Exceeds || end.Ran >= until*j.seconds {
			continue
		}
		need, _ := predict.Foresaw(runs, current, f.PeakMiB, predict.DefaultSite)
		if _, ok := need.Larger(g.model, g.all, j.run.Profile); ok {
			return end.Ran / j.seconds, f.PeakMiB
		}
	}
	return 0, 0
}

// Ended implements [sim.Growth].
func (g *growth) Ended(t trace.Job, now float64) (next sim.Next) {
	j := g.plays[t.ID]
	r := &j.run
	r.Start = int64(now - r.Seconds)
	g.runs[j.key] = append(g.runs[j.key], *r)
	used := g.share(r.Profile) * r.Seconds
	g.used += used
	j.affected = j.affected || j.short
	if next.Requeue = g.larger(j); next.Requeue != "" {
		g.requeues++
		switch {
		case !j.short:
			g.needless++
		case r.End == predict.EndForeseen:
			g.stopped++
		}
		r.Restart++
		next.Delay = g.delay
	} else if j.short {
		g.failures++
		next.Resubmit = cmp.Or(g.notice, resubmitMedian*math.Exp(resubmitSigma*j.chance.NormFloat64()))
	}
	if next != (sim.Next{}) {
		g.lost += used
		return next
	}
	g.growTally.jobs++
	g.turnaround += now - t.Submit
	if j.affected {
		g.ran++
		g.affected += now - t.Submit
	}
	return next
}

// larger returns the profile with which the agent requeues a job after its last run, or an empty string.
func (g *growth) larger(j *growingJob) string {
	if g.grow == "off" || len(j.grown) == growLimit {
		return ""
	}
	cause := predict.Growth{Profile: j.run.Profile, Cause: predict.RanOutOfMemory, MiB: j.run.PeakMiB}
	if j.run.End == predict.EndForeseen {
		cause.Cause, cause.MiB = predict.Foreseen, j.run.ForeseenMiB
		j.grown = append(j.grown, cause)
		larger, _ := predict.Larger(g.model, g.all, j.run.Profile, cause.MiB)
		return larger
	}
	runs := slices.Clone(g.runs[j.key])
	last := &runs[len(runs)-1]
	if g.reports && j.short {
		last.End = predict.EndOOM
	}
	need, short := predict.RanOut(runs, j.grown, predict.DefaultSite)
	if !short {
		return ""
	}
	larger, ok := need.Larger(g.model, g.all, j.run.Profile)
	if ok {
		last.End, g.runs[j.key] = predict.EndOOM, runs
		j.grown = append(j.grown, cause)
	}
	return larger
}
