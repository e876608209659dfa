package learn

import (
	"slices"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
)

// similar returns the prediction for a script without runs, from the user's scripts with the same job name or, at the
// level ByOwner, from one script of each job name. Because such a prediction is uncertain, its profile is larger than
// the default only if the median of the need requires it.
func (t Table) similar(
	kind predict.Level, job repo.JobKeys, base Prediction, scripts []repo.Script, r *repo.Repo, site predict.Site,
) (Prediction, error) {
	peaks := peaksOf(kind, job, scripts)
	if len(peaks) < predict.FewestSimilar || site.FirstRunQuantile == 0 {
		return base, nil
	}
	h, err := r.Similar(kind, job)
	if err != nil {
		return base, err
	}
	need, ok := predict.PredictSimilar(h, peaks, site)
	if !ok {
		return base, nil
	}
	c := Choose(need, true, t.Models, t.Default)
	if exceeds := func() bool { return t.larger(t.Default, c.Profile) != t.Default }; exceeds() {
		need.PeakMiB = need.HighestMiB
		if c = Choose(need, true, t.Models, t.Default); !exceeds() {
			c = on(t.Default, need, t.Models)
		}
	}
	if c.Profile == base.profile() {
		return base, nil // run times of other scripts alone do not justify a line
	}
	return base.with(c, need, h, true), nil
}

// peaksOf returns the peaks of the scripts that are similar to a job at a level, oldest first. Scripts without a
// complete run do not count, because their peaks say little. Several keys of one script count as one script.
func peaksOf(kind predict.Level, job repo.JobKeys, scripts []repo.Script) (peaks []float64) {
	at, seen := map[string]int{}, map[string]bool{}
	for _, w := range scripts {
		if !w.Complete || w.Fingerprint == "" || kind == predict.ByName && w.Name != job.Name {
			continue
		}
		if k, known := at[w.Fingerprint]; known {
			peaks[k] = max(peaks[k], w.PeakMiB)
			continue
		}
		if seen[w.Name] || len(peaks) == predict.SimilarWindow {
			continue
		}
		seen[w.Name] = kind == predict.ByOwner
		at[w.Fingerprint] = len(peaks)
		peaks = append(peaks, w.PeakMiB)
	}
	slices.Reverse(peaks)
	return peaks
}
