package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// Settings are the site's settings that affect plans. If the agents, the watcher and `caelum explain` have different
// settings, they make different plans.
type Settings struct {
	Policy place.Policy
	// Tightest means that a job is never assigned a larger profile than it requested.
	Tightest bool
	// WholeShare is the maximum fraction of the GPUs that may be full while jobs are waiting for slices, or 0 for a
	// limit that depends on the waiting jobs (offer.Cluster).
	WholeShare float64
	// Text shows the values of policy and sizing as the agents publish them (WithSettings), and WholeShare if it is
	// not 0.
	Text string
}

// The values of the `sizing` configuration key.
const (
	SizingAdaptive = "adaptive"
	SizingTightest = "tightest"
)

// ParseSettings returns the settings for the values of the `policy`, `sizing` and `whole_share` configuration keys.
// If one is invalid, the error names its key.
func ParseSettings(policy, sizing string, wholeShare float64) (s Settings, err error) {
	if s.Policy, err = place.ByName(policy); err != nil {
		return s, fmt.Errorf("policy: %w", err)
	}
	all := []string{SizingAdaptive, SizingTightest}
	if !slices.Contains(all, sizing) {
		return s, fmt.Errorf("sizing: %q is not %s", sizing, strings.Join(all, " or "))
	}
	if !(wholeShare >= 0 && wholeShare <= 1) {
		return s, fmt.Errorf("whole_share: %v is not from 0 to 1 (0: automatic, 1: no limit)", wholeShare)
	}
	s.Tightest, s.WholeShare, s.Text = sizing == SizingTightest, wholeShare, policy+","+sizing
	if wholeShare > 0 {
		s.Text += fmt.Sprintf(",%v", wholeShare)
	}
	return s, nil
}

// Sizes returns the larger profiles, on the GPUs in kinds, that may be assigned to a job instead of the requested one.
// The result is empty unless Caelum chose the job's profile and the job needs a single slice. After a growth, the
// profile that the job needs replaces the requested one. The relative run times follow from the job's busy share
// (predict.Slowdown).
func Sizes(j slurm.Job, kinds []place.GPU) (all []offer.Size) {
	requested := j.SlicesPerNode()
	if !tags.Sized(j) || requested[0].Count != 1 || j.NumNodes > 1 || j.HetJob != 0 {
		return nil
	}
	busy, known := tags.BusyShare(j)
	if !known {
		busy = predict.UnknownBusy
	}
	for _, g := range kinds {
		all = appendSizes(all, g, cmp.Or(tags.Needed(j), requested[0].Type), busy)
	}
	return all
}

// appendSizes appends a GPU's profiles that are larger than the requested or the equivalent profile.
func appendSizes(all []offer.Size, g place.GPU, requested string, busy float64) []offer.Size {
	least, ok := g.Model.EquivalentProfile(requested, g.Offerable)
	if !ok {
		return all
	}
	k, _ := g.Model.ProfileIndex(least)
	from := &g.Model.Profiles[k]
	for i := range g.Model.Profiles {
		p := &g.Model.Profiles[i]
		known := slices.ContainsFunc(all, func(s offer.Size) bool { return s.Profile == p.Name })
		if known || i == k || p.Name == requested || p.Size < from.Size || p.Compute <= from.Compute ||
			!mig.Plain(*p) || p.Name == mig.Full || g.Model.OfProfile(i)&g.Offerable == 0 {
			continue
		}
		all = append(all, offer.Size{Profile: p.Name, Takes: predict.Slowdown(busy, p.Compute, from.Compute)})
	}
	return all
}

// setSpeculative determines the profiles that may be offered speculatively. These are the largest slices of each GPU
// model, full GPUs that cannot hold slices, and the profiles whose most recent job cannot be assigned a larger profile
// or is too short to benefit from one. last maps each profile to the most recently submitted job that requested it.
func (v *View) setSpeculative(last map[string]*slurm.Job) {
	v.Speculative = map[string]bool{}
	for _, g := range v.kinds {
		for _, p := range g.Model.Profiles {
			only := len(g.Model.Profiles) == 1 // full GPUs that cannot hold slices
			if only || mig.Plain(p) && p.Name != mig.Full &&
				len(appendSizes(nil, g, p.Name, predict.UnknownBusy)) == 0 {
				v.Speculative[p.Name] = true
			}
		}
	}
	for profile, j := range last {
		request := offer.Job{
			RunTime: seconds(tags.Expected(*j)),
			Wants:   []offer.Want{{Profile: profile, Sizes: Sizes(*j, v.kinds)}},
		}
		v.Speculative[profile] = !offer.Growable(request)
	}
}
