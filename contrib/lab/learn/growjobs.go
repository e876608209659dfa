package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"caelum/contrib/lab/growtrace"
	"caelum/internal/core/predict"
	"caelum/internal/sim/trace"
)

// growing is a population of recurring jobs that arrive over time, for the grow command.
type growing struct {
	name        string
	works       int     // the number of recurring jobs
	least, most int     // the number of submissions of a recurring job
	load        float64 // the fraction of all units that the jobs request if each of them runs on its tightest profile
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
	growtrace.Curve
}

// draw returns a population's submissions in chronological order. Memory use (except for its curve), run times,
// failures and versions are as described for the work type. The busy share has the density 4 b^3 (predict.UnknownBusy).
// A recurring job is first submitted at a random time within 40 days, and then about once a day. All times between
// submissions are then multiplied by the same factor, so that the population has the given load.
func (g growing) draw(n node, seed uint64) (all []*arrival) {
	rng := rand.New(rand.NewPCG(seed, 19))
	people := drawUsers(rng, users)
	work, last := 0.0, 0.0
	for k := range g.works {
		w := standard.drawWork(rng, people)
		w.runs = g.least + rng.IntN(g.most-g.least+1)
		w.limit = min(w.limit, longest)
		at, busy, curve := 40*86400*rng.Float64(), math.Pow(rng.Float64(), 0.25), growtrace.Draw(rng)
		for nth, s := range w.submissions(rng) {
			a := &arrival{submission: s, key: fmt.Sprint(k, ".", s.script), busy: busy, Curve: curve}
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

// share returns the fraction of a GPU's units that a profile occupies.
func (n node) share(profile string) float64 {
	k, _ := n.model.ProfileIndex(profile)
	return float64(n.model.Profiles[k].Size) / float64(n.model.Grid)
}
