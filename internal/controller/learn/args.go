package learn

import (
	"slices"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
)

// args returns the args line of a key and the relation from which it follows. p is the prediction for the key without
// the line. ok is false if all jobs would get the same profile without the line, or if an administrator's line decides.
func (t Table) args(p Prediction, site predict.Site) (rel predict.Relation, steps predict.Steps, ok bool) {
	if p.Own != "" || !p.Complete || p.Need.Level != predict.ByKey {
		return rel, steps, false
	}
	if rel, ok = predict.Related(p.History, site); !ok {
		return rel, steps, false
	}
	most := 0.0
	for _, b := range t.Models {
		for k := range b.Profiles {
			most = max(most, b.Profiles[k].Memory())
		}
	}
	limit := t.larger(t.Default, p.Profile)
	choose := func(n predict.Need) string {
		n.HighestMiB = min(n.HighestMiB, most) // a forecast above the largest profile must not select the default
		profile := Choose(n, true, t.Models, t.Default).Profile
		if rel.Assumed && t.larger(limit, profile) != limit {
			return limit
		}
		return profile
	}
	steps, ok = rel.Steps(choose, func(profile string) string { return t.larger(t.Default, profile) })
	same := func(s predict.Step) bool { return s.Profile == p.Profile }
	if steps.Beyond == p.Profile && !slices.ContainsFunc(steps.UpTo, func(s predict.Step) bool { return !same(s) }) {
		return rel, steps, false
	}
	return rel, steps, ok
}

// larger returns the profile with more memory, or the first one if they have the same.
func (t Table) larger(a, b string) string {
	var ofA, ofB float64
	for _, m := range t.Models {
		ofA, ofB = max(ofA, memory(m, a)), max(ofB, memory(m, b))
	}
	if ofB > ofA {
		return b
	}
	return a
}

// withArgs returns the prediction for a job with the given arguments. p is the prediction for its key.
func (t Table) withArgs(p Prediction, job repo.JobKeys, site predict.Site) Prediction {
	if own, ok := t.lines.Args[subject(predict.ByArgs, job)]; ok {
		if profile, ok := own.Profile(job.Args); ok {
			p.ownLine = p.line()
			p.Own, p.ownLine.Profile = profile, profile
		}
		return p
	}
	rel, steps, ok := t.args(p, site)
	if !ok {
		return p
	}
	profile, ok := steps.Profile(job.Args)
	if !ok {
		return p
	}
	p.Need = rel.Need(job.Args[steps.Position-1])
	p.Choice = on(profile, p.Need, t.Models)
	return p
}
