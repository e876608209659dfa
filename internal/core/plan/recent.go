package plan

import (
	"cmp"
	"slices"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// recent computes the profile weights, the mean duration and the expected arrivals from the most recently submitted
// jobs, and determines from all jobs that slurmctld lists which profiles can be offered speculatively.
func (v *View) recent(all []slurm.Job) {
	var recent place.Recent
	var earlier []offer.Submission
	last, byProfile := v.planner.lastSubmitted(all)
	for _, j := range last {
		recent.Add(place.Request{Profile: j.SlicesPerNode()[0].Type, Duration: seconds(tags.Expected(*j))})
		at := float64(j.Submit.UnixMilli()) / 1000
		earlier = append(earlier, offer.Submission{At: at, RunTime: tags.Learned(*j).Seconds()})
	}
	v.Arrivals = offer.ExpectedArrivals(earlier, v.Now)
	v.Weights, v.MeanDuration = recent.Weights(), recent.MeanDuration()
	if v.Speculative = nil; v.kinds != nil {
		v.setSpeculative(byProfile)
	}
}

// lastSubmitted returns the place.RecentKept most recently submitted jobs that request slices, in order of submission,
// and the most recently submitted job for each profile.
func (p *Planner) lastSubmitted(all []slurm.Job) (last []*slurm.Job, byProfile map[string]*slurm.Job) {
	order := func(a, b *slurm.Job) int { return cmp.Or(a.Submit.Compare(b.Submit), cmp.Compare(a.ID, b.ID)) }
	byProfile = map[string]*slurm.Job{}
	last = p.submitted[:0]
	var least *slurm.Job // last contains at least place.RecentKept jobs that were not submitted before least
	shorten := func() {
		slices.SortStableFunc(last, order)
		last = slices.Delete(last, 0, max(0, len(last)-place.RecentKept))
		least = last[0]
	}
	for k := range all {
		j := &all[k]
		i := slices.IndexFunc(j.PerNode, func(g slurm.GRES) bool { return g.Name == "mig" && g.Count > 0 })
		if i < 0 {
			continue
		}
		if o := byProfile[j.PerNode[i].Type]; o == nil || order(o, j) <= 0 {
			byProfile[j.PerNode[i].Type] = j
		}
		if least != nil && order(j, least) < 0 {
			continue
		}
		if last = append(last, j); len(last) == 2*place.RecentKept {
			shorten()
		}
	}
	if len(last) > 0 {
		shorten()
	}
	p.submitted = last
	return last, byProfile
}
