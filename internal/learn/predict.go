package learn

import (
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/predict"
	"caelum/internal/repo"
)

// Table is the part of a decision table that affects predictions.
type Table struct {
	// Models contains the GPU models to which the table applies. Each model has only the profiles that the table lists
	// and a prediction may choose.
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

// Prediction describes the profile that a job gets and the runs that determined this profile.
type Prediction struct {
	// Choice is the profile according to earlier runs. If Own is not empty, the job gets Own instead.
	Choice
	// Own is the profile in an administrator's line that takes precedence over Choice. It is empty if no such line
	// exists.
	Own string
	// Need is the need at the level that determined Choice, and History contains the runs at that level. If no run was
	// complete at any level, Need is a lower bound. It is empty if the runs do not even show a lower bound.
	Need     predict.Need
	History  predict.History
	Complete bool
	// ownLine is the content of the administrator's line from which Own was read.
	ownLine decision
}

// Predict returns the prediction that applies to a job after the next [Write]. It combines the levels in the same way
// as the lines of the decision table. A complete run at one level overrides the more general levels. If no run at a
// level was complete, the prediction of the more general levels applies, unless the runs at this level show that the
// job needs more memory. The job then gets a larger profile.
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

// without returns the prediction for a job to which neither runs nor lines apply.
func (t Table) without() Prediction { return Prediction{Choice: Choice{Profile: t.Default}} }

// at returns the prediction for a job at a level. base is the prediction at the more general levels. Runs without a
// script fingerprint are ignored, because such jobs were submitted without a script and their key does not identify the
// program.
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

// with returns the prediction that results from p, the prediction of the more general levels, and from the choice c at
// the next level.
func (p Prediction) with(c Choice, need predict.Need, h predict.History, complete bool) Prediction {
	switch {
	case complete || need.PeakMiB > 0 && c.Profile != p.profile():
		return Prediction{Choice: c, Need: need, History: h, Complete: complete}
	case need.PeakMiB > 0 && need.PeakMiB >= p.Need.PeakMiB && !p.Complete:
		p.Choice, p.Need, p.History = c, need, h // the profile is the same, but the runs are more similar to the job
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
// are based on complete runs or were specified by the administrator.
func (p Prediction) decision() decision {
	if p.Own != "" {
		return p.ownLine
	}
	d := decision{profile: p.Profile, busy: -1}
	if p.Complete {
		d.seconds = int(min(math.Ceil(p.Seconds), maxSeconds))
	}
	if d.seconds > 0 && p.Need.BusyKnown {
		d.busy = int(math.Round(100 * min(p.Need.Busy, 1)))
	}
	return d
}

// Choice is the profile that a job would get. It includes the expected run time on that profile in seconds, with the
// 10% and 90% quantiles. If Model is nil, the run times apply to the profile of the last run.
type Choice struct {
	Profile            string
	Model              *mig.Model
	Seconds, Low, High float64
}

// Choose returns the smallest sufficient profile of the first GPU model that has one. If no model has a sufficient
// profile, Choose returns without, which is the profile for a job without a prediction. If complete is false, only a
// lower bound of the need is known (see predict.Predict), and the result is never smaller than without.
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

// memory returns the memory of a profile in MiB, or 0 if the GPU model does not have the profile.
func memory(b *mig.Model, profile string) float64 {
	k, ok := b.ProfileIndex(profile)
	if !ok {
		return 0
	}
	return b.Profiles[k].Memory()
}
