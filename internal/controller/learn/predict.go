package learn

import (
	"math"
	"slices"
	"time"

	"caelum/internal/controller/decisions"
	"caelum/internal/controller/repo"
	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
)

// Table is the part of the decision table that affects predictions.
type Table struct {
	// Models lists the GPU models to which the table applies. Each model contains only the profiles that the table
	// lists and that a prediction may choose.
	Models  []*mig.Model
	Default string
	decided map[string]predict.Line
	lines   decisions.Table // empty if there is no decision table
}

// ReadTable reads the table at path.
func ReadTable(path string) (Table, error) {
	t, _, err := readTable(path)
	return t.forPredictions(), err
}

func (t table) forPredictions() Table { return Table{t.gpuModels(), t.fallback, t.decided, t.lines} }

// Prediction describes the profile that is assigned to a job and the runs that determined it.
type Prediction struct {
	// Choice is the profile that follows from earlier runs. If Own is not empty, the job is assigned Own instead.
	Choice
	// Own is the profile from an administrator's line that takes precedence over Choice. It is empty if there is
	// none.
	Own string
	// Need is the need at the level that determined Choice, and History holds the runs at that level. If no run was
	// complete at any level, Need is a lower bound, or empty if the runs do not even provide that.
	Need     predict.Need
	History  predict.History
	Complete bool
	// ownLine is the content of the administrator's line from which Own was read.
	ownLine predict.Line
}

// Predict returns the prediction that applies to a job after the next [Write]. It combines the levels according to the
// rules of the decision table. A complete run at one level overrides the more general levels. If no run at a level was
// complete, the prediction from the more general levels applies, unless the runs at this level show that the job needs
// more memory. In that case, the job is assigned a larger profile. The user's runs of other scripts are used only if
// neither the user nor, if the site shares runs, other users have runs of the job's script. If the needs of the key's
// runs follow a number in their arguments, the job's number determines its profile.
func (t Table) Predict(r *repo.Repo, job repo.JobKeys, site predict.Site) (Prediction, error) {
	scripts, err := r.ScriptsOf(job.UID)
	if err != nil {
		return Prediction{}, err
	}
	return t.PredictAmong(r, job, scripts, site)
}

// PredictAmong is like Predict for callers that have already read the scripts of the job's user, newest first.
func (t Table) PredictAmong(
	r *repo.Repo, job repo.JobKeys, scripts []repo.Script, site predict.Site,
) (p Prediction, err error) {
	known := false
	use := func(levels ...predict.Level) {
		for _, level := range levels {
			if err != nil {
				return
			}
			var has bool
			p, has, err = t.at(level, job, p, scripts, r, site)
			known = known || has
		}
	}
	p = t.without()
	use(predict.BySite, predict.ByUser)
	if !known {
		p = t.without()
		use(predict.ByOwner, predict.ByName)
	}
	if use(predict.ByKey); err != nil {
		return Prediction{}, err
	}
	return t.withArgs(p, job, site), nil
}

// InTime returns the profile that a job with the prediction p and the given time limit requests. If limit is 0, or if
// the predicted profile is fast enough (predict.Line.InTime), the result is the predicted profile.
func (t Table) InTime(p Prediction, limit time.Duration) string {
	l := p.line()
	all := t.lines.Alternatives("", l.Profile)
	if t.lines.Default == "" && p.Model != nil {
		for _, of := range p.Model.Profiles {
			all = append(all, of.Name)
		}
	}
	return l.InTime(l.Profile, all, limit.Seconds())
}

// without returns the prediction for a job to which neither runs nor lines apply.
func (t Table) without() Prediction { return Prediction{Choice: Choice{Profile: t.Default}} }

// at returns the prediction for a job at a level. base is the prediction at the more general levels, and scripts holds
// the user's scripts, newest first. The result known is true if runs or an administrator's line exist at this level.
// Runs without a script fingerprint are ignored, because the key of a job that was submitted without a script does not
// identify its program.
func (t Table) at(
	kind predict.Level, job repo.JobKeys, base Prediction, scripts []repo.Script, r *repo.Repo, site predict.Site,
) (p Prediction, known bool, err error) {
	p = base
	switch {
	case job.Fingerprint == "":
	case kind == predict.ByName || kind == predict.ByOwner:
		p, err = t.similar(kind, job, base, scripts, r, site)
	default:
		var need predict.Need
		var h predict.History
		var complete bool
		need, h, complete, err = r.PredictAt(kind, job, site)
		p = base.with(Choose(need, complete, t.Models, base.profile()), need, h, complete)
		known = complete || need.PeakMiB > 0
	}
	if own, ok := t.decided[lineName(kind, job)]; ok {
		p.Own, p.ownLine, known = own.Profile, own, true
	}
	return p, known, err
}

// with combines p, the prediction from the more general levels, with the choice c at the next level.
func (p Prediction) with(c Choice, need predict.Need, h predict.History, complete bool) Prediction {
	switch {
	case complete || need.PeakMiB > 0 && c.Profile != p.profile():
		return Prediction{Choice: c, Need: need, History: h, Complete: complete}
	case need.PeakMiB > 0 && need.PeakMiB >= p.Need.PeakMiB && !p.Complete:
		p.Choice, p.Need, p.History = c, need, h // the runs at this level are more similar to the job
	}
	return p
}

// profile returns the profile that is assigned to the job.
func (p Prediction) profile() string {
	if p.Own != "" {
		return p.Own
	}
	return p.Profile
}

// line converts a prediction into a line of the table. The line contains a run time and a busy share only if they are
// known from complete runs or an administrator's line.
func (p Prediction) line() predict.Line {
	if p.Own != "" {
		return p.ownLine
	}
	l := predict.Line{Profile: p.Profile, Busy: -1}
	if p.Complete {
		l.Seconds = int(min(math.Ceil(p.Seconds), maxSeconds))
	}
	if l.Seconds > 0 && p.Need.Ended && p.Model != nil {
		l.High = int(min(math.Ceil(p.High), maxSeconds))
	}
	if l.Seconds > 0 && p.Need.BusyKnown {
		l.Busy = int(math.Round(100 * min(p.Need.Busy, 1)))
	}
	return l
}

// Choice is the profile that would be assigned to a job, with the expected run time on that profile and the 10% and 90%
// quantiles of the run time, all in seconds. If Model is nil, the run times apply to the profile of the last run.
type Choice struct {
	Profile            string
	Model              *mig.Model
	Seconds, Low, High float64
}

// Choose returns the smallest sufficient profile of the first GPU model that has one. If no model has one, Choose
// returns the parameter without, which is the profile for jobs without a prediction. If complete is false, only a lower
// bound on the need is known (see predict.Predict), and the result is never smaller than that profile.
func Choose(need predict.Need, complete bool, models []*mig.Model, without string) Choice {
	g := Choice{Seconds: need.Seconds, Low: need.Low, High: need.High}
	g.Profile, g.Model = tightest(need, complete, models, without)
	g.setTimes(need)
	return g
}

// on returns the choice of the given profile of the first GPU model that has it.
func on(profile string, need predict.Need, models []*mig.Model) Choice {
	g := Choice{Profile: profile, Seconds: need.Seconds, Low: need.Low, High: need.High}
	for _, b := range slices.Backward(models) {
		if _, ok := b.ProfileIndex(profile); ok {
			g.Model = b
		}
	}
	g.setTimes(need)
	return g
}

// setTimes converts the run times to the chosen profile.
func (g *Choice) setTimes(need predict.Need) {
	if g.Model == nil {
		return
	}
	if k, ok := g.Model.ProfileIndex(g.Profile); ok {
		g.Seconds, g.Low, g.High = need.TakesOn(g.Model, k)
	}
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
