package agent

import (
	"context"
	"fmt"
	"math"
	"slices"

	"caelum/internal/core/offer"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/node/api"
	"caelum/internal/node/state"
	"caelum/internal/slurm"
)

// larger returns the profile on which a job with the given need is rerun. The last element of runs is the run whose
// slice was too small. The error is the reason why the job cannot grow.
func (a *Agent) larger(job slurm.Job, lease api.Lease, runs []predict.Run, need predict.Need) (string, error) {
	profile := runs[len(runs)-1].Profile
	if n := growths(job, runs); n >= a.cfg.GrowLimit {
		return "", fmt.Errorf("the job has already grown %d times (grow_limit: %d)", n, a.cfg.GrowLimit)
	}
	k := slices.IndexFunc(lease.Slices, func(s api.Slice) bool { return s.Profile == profile })
	if k < 0 {
		return "", fmt.Errorf("the job has no slice of the profile %s on this node", profile)
	}
	a.node.Lock()
	card := a.node.Cards[lease.Slices[k].GPU]
	model, offerable, empty := card.Model, card.Offerable, a.node.EmptyGPUs()
	a.node.Unlock()
	if model == nil {
		return "", fmt.Errorf("GPU %d is no longer managed", lease.Slices[k].GPU)
	}
	larger, ok := need.Larger(model, offerable, profile)
	if !ok {
		return "", fmt.Errorf("%s has no larger profile with %.0f MiB", model.Name, need.PeakMiB)
	}
	want := offer.Want{Profile: larger, Count: len(lease.Slices)}
	j := &offer.Job{Wants: []offer.Want{want}, RunTime: math.Inf(1), TimeLimit: math.Inf(1)}
	if spots, _ := offer.NewCluster(a.node.Settings.Policy, empty).Find(j, nil); spots == nil {
		return "", fmt.Errorf("the GPUs on %s have no room for %d slices of %s", a.cfg.Node, want.Count, larger)
	}
	return larger, nil
}

// growths returns the number of times that the job had grown before the last run in runs. If the agent could not write
// the tags after a requeue, only the stored runs show that growth. A tag for the last run's profile belongs to a growth
// that was interrupted before the requeue.
func growths(job slurm.Job, runs []predict.Run) int {
	last := runs[len(runs)-1]
	tagged, stored := tags.Growths(job), 0
	n := len(tagged)
	if n > 0 && tagged[n-1].Profile == last.Profile {
		n--
	}
	for _, r := range runs[:len(runs)-1] {
		if r.Job == last.Job && r.End != "" {
			stored++
		}
	}
	return max(n, stored)
}

// countedGrowth returns nil if the job has not grown, or if slurmctld counts its larger slice. If slurmctld cannot
// replace the profile of a waiting job, the job keeps the smaller profile (docs/security.md). Otherwise, the user or a
// failure has kept slurmctld from counting the larger slice, and countedGrowth returns an *unsuitable. If slurmctld
// does not answer, it returns api.NotNow.
func (a *Agent) countedGrowth(ctx context.Context, job slurm.Job) error {
	needed := tags.Needed(job)
	if needed == "" {
		return nil
	}
	config, err := a.slurmConfig(ctx)
	switch {
	case err != nil:
		return api.NotNow(err.Error())
	case !config.ReplacesTypes():
		return nil
	}
	return &state.Unsuitable{
		Reason:  "the job has grown to " + needed + ", but slurmctld counts a smaller slice for it",
		Missing: fmt.Sprintf("%s:%d", needed, job.SlicesPerNode()[0].Count),
	}
}
