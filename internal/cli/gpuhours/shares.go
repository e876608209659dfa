package gpuhours

import (
	"slices"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
)

// modelsOf returns the GPU models that a GPU type may refer to, or all models if the type is empty or unknown and the
// profile is that of a slice. A full GPU of an unknown type need not support MIG. The type is the site's Type in
// gres.conf, such as A100, which need not distinguish an A100-40GB from an A100-80GB.
func modelsOf(gpuType, profile string) (models []*mig.Model) {
	all := mig.Models()
	if mig.IsFraction(profile) {
		all = mig.WithFraction(profile)
	}
	for _, m := range all {
		if mig.TypeNames(gpuType, m.Type) {
			models = append(models, m)
		}
	}
	if len(models) == 0 && profile != mig.Full {
		return all
	}
	return models
}

// nodes maps each node's name, in lower case, to what the summaries show about the node.
type nodes map[string]node

// node is what the summaries of the runs on a node show about it.
type node struct {
	models      []*mig.Model // the GPU models that the node may have
	first, last float64      // the Unix times in seconds at which the first run began and the last one ended
}

// seen includes s in the time for which its node is known to have been managed, and excludes the GPU models on which s
// cannot have run: those of another type, and those without its profile. If no model is left, because the node's GPU
// model has changed, the node may have any model of s's type.
func (n nodes) seen(s predict.Run) {
	name := strings.ToLower(s.Node)
	began, ended := float64(s.Start), float64(s.Start)+s.Seconds
	known, ok := n[name]
	if !ok {
		known = node{modelsOf(s.GPUType, s.Profile), began, ended}
	}
	left := slices.DeleteFunc(slices.Clone(known.models), func(m *mig.Model) bool {
		_, has := m.ProfileIndex(s.Profile)
		return s.Profile != mig.Full && !has || !strings.EqualFold(m.Type, s.GPUType)
	})
	if len(left) == 0 {
		left = modelsOf(s.GPUType, s.Profile)
	}
	n[name] = node{left, min(known.first, began), max(known.last, ended)}
}

// shareOf returns the fraction of a GPU that an instance of the profile occupies: its units divided by the units of the
// GPU. ok is false if none of the models has the profile, or if the fraction differs between the models. For example, a
// 1g.10gb occupies a quarter of an A100-40GB and an eighth of an A100-80GB.
func shareOf(profile string, models []*mig.Model) (share float64, ok bool) {
	if profile == mig.Full {
		return 1, true
	}
	for _, m := range models {
		k, has := m.ProfileIndex(profile)
		if !has {
			continue
		}
		s := float64(m.Profiles[k].Size) / float64(m.Grid)
		if ok && s != share {
			return 0, false
		}
		share, ok = s, true
	}
	return share, ok
}
