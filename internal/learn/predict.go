package learn

import (
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/predict"
	"caelum/internal/repo"
)

// Table is the part of a decision table that predictions use.
type Table struct {
	// Models contains the GPU models to which the table applies, each with the listed profiles
	// that a prediction may choose.
	Models  []*mig.Model
	Default string
	decided map[string]decision
}

// ReadTable reads the table at path.
func ReadTable(path string) (Table, error) {
	t, _, err := readTable(path)
	return t.forPredictions(), err
}

func (t table) forPredictions() Table { return Table{t.gpuModels(), t.fallback, t.decided} }

// Prediction describes the profile that a job gets, and the runs that determine this profile.
type Prediction struct {
	// Choice is the choice based on earlier runs. The job gets Own instead if Own is set.
	Choice
	// Own is the profile in an administrator's line that takes precedence over Choice. It is
	// empty if there is no such line.
	Own string
	// Need is the need at the level that determines Choice, and History contains the runs at
	// this level. If no run was complete at any level, Need is a lower bound. It is empty if
	// the runs show no lower bound.
	Need     predict.Need
	History  predict.History
	Complete bool
	// ownLine is the content of the line that contains Own.
	ownLine decision
}

// Predict returns the prediction for a job after the next [Write]. It combines the levels in the same way as the lines
// of the decision table. A complete run at a level overrides the more general levels. If no run at a level was
// complete, the job gets what it would get from the more general levels, or a larger profile if the runs at this level
// show that it needs more memory.
func (t Table) Predict(r *repo.Repo, job repo.JobKeys, site predict.Site) (Prediction, error) {
	p := t.without()
	for _, kind := range slices.Backward(predict.Levels) {
		var err error
		if p, err = t.at(kind, job, p, r, site); err != nil {
			return Prediction{}, err
		}
	}
	return p, nil
}

// without returns the prediction for a job without runs and lines.
func (t Table) without() Prediction { return Prediction{Choice: Choice{Profile: t.Default}} }

// at returns the prediction for a job at a level. base is the prediction at the more general
// levels. Runs without a script fingerprint are ignored, because they were submitted without a
// script and their key does not identify the program.
func (t Table) at(
	kind predict.Level, job repo.JobKeys, base Prediction, r *repo.Repo, site predict.Site,
) (Prediction, error) {
	p := base
	if job.Fingerprint != "" {
		need, h, complete, err := r.PredictAt(kind, job, site)
		if err != nil {
			return p, err
		}
		p = p.with(Choose(need, complete, t.Models, base.profile()), need, h, complete)
	}
	if own, ok := t.decided[lineName(kind, job)]; ok {
		p.Own, p.ownLine = own.profile, own
	}
	return p, nil
}

// with returns the prediction after a more specific level, at which the runs give the choice c.
func (p Prediction) with(c Choice, need predict.Need, h predict.History, complete bool) Prediction {
	switch {
	case complete || need.PeakMiB > 0 && c.Profile != p.profile():
		return Prediction{Choice: c, Need: need, History: h, Complete: complete}
	case need.PeakMiB > 0 && need.PeakMiB >= p.Need.PeakMiB && !p.Complete:
		p.Choice, p.Need, p.History = c, need, h // the same profile, but from more similar runs
	}
	return p
}

// profile returns the profile that the job gets.
func (p Prediction) profile() string {
	if p.Own != "" {
		return p.Own
	}
	return p.Profile
}

// decision converts a prediction into a line of the table. The line contains a run time and a busy share only if they
// are based on complete runs.
func (p Prediction) decision() decision {
	if p.Own != "" {
		return p.ownLine
	}
	d := decision{profile: p.Profile, busy: -1}
	if p.Complete {
		d.seconds = int(min(math.Ceil(p.Seconds), maxSeconds))
	}
	if d.seconds > 0 && p.Need.Busy >= 0 {
		d.busy = int(math.Round(100 * min(p.Need.Busy, 1)))
	}
	return d
}

// Choice is the profile that a job would get, and its expected run time on that profile in seconds, with the 10% and
// 90% quantiles. If Model is nil, the run times are those on the profile of the last run.
type Choice struct {
	Profile            string
	Model              *mig.Model
	Seconds, Low, High float64
}

// Choose returns the smallest sufficient profile of the first GPU model that has one. If no model has a sufficient
// profile, it returns without, the profile of a job that has no prediction. If no run was complete (see
// predict.Predict), only a lower bound of the need is known, and the chosen profile is never smaller than without.
func Choose(need predict.Need, complete bool, models []*mig.Model, without string) Choice {
	g := Choice{Seconds: need.Seconds, Low: need.Low, High: need.High}
	g.Profile, g.Model = tightest(need, complete, models, without)
	if g.Model != nil {
		if k, ok := g.Model.ProfileIndex(g.Profile); ok {
			g.Seconds, g.Low, g.High = need.Takes(g.Model.Profiles[k].Compute)
		}
	}
	return g
}

func tightest(need predict.Need, complete bool, models []*mig.Model, without string) (string, *mig.Model) {
	if complete || need.PeakMiB > 0 {
		for _, b := range models {
			profile, ok := need.On(b, b.Open(0, 0))
			if ok && (complete || memory(b, profile) > memory(b, without)) {
				return profile, b
			}
			if ok {
				break
			}
		}
	}
	for _, b := range models {
		if _, ok := b.ProfileIndex(without); ok {
			return without, b
		}
	}
	return without, nil
}

// memory returns the memory of a profile in MiB, 0 if the GPU model does not have the profile.
func memory(b *mig.Model, profile string) float64 {
	k, ok := b.ProfileIndex(profile)
	if !ok {
		return 0
	}
	return b.Profiles[k].Memory()
}
