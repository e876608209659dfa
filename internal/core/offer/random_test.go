package offer

import (
	"math"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

// drawNode returns a node with random GPUs: any layout of plain profiles of any GPU model, with some blocked units and
// some idle instances.
func drawNode(t *rapid.T) []place.GPU {
	models := append(mig.Models(), placetest.WithoutMIG()...)
	gpus := make([]place.GPU, rapid.IntRange(1, 4).Draw(t, "gpus"))
	for i := range gpus {
		b := models[rapid.IntRange(0, len(models)-1).Draw(t, "board")].Select(mig.Plain)
		layouts := b.Layouts()
		l := layouts[rapid.IntRange(0, len(layouts)-1).Draw(t, "layout")]
		gpus[i] = place.GPU{Model: b, Offerable: everything(b)}
		for p := range l.Indices() {
			switch rapid.IntRange(0, 3).Draw(t, "state") {
			case 0:
				gpus[i].Idle = gpus[i].Idle.With(p)
			case 1:
				gpus[i].Blocked |= b.Units(p)
			default:
				gpus[i].Busy = gpus[i].Busy.With(p)
			}
		}
		if rapid.IntRange(0, 4).Draw(t, "narrow") == 0 {
			gpus[i].Offerable = b.OfProfile(0)
		}
	}
	return gpus
}

func drawNodes(t *rapid.T) (nodes [][]place.GPU) {
	for range rapid.IntRange(1, 4).Draw(t, "nodes") {
		nodes = append(nodes, drawNode(t))
	}
	return nodes
}

func drawDemands(t *rapid.T, gpus []place.GPU) []*Job {
	all := make([]*Job, rapid.IntRange(0, 12).Draw(t, "jobs"))
	for i := range all {
		all[i] = &Job{ID: uint32(i + 1), RunTime: math.Inf(1), TimeLimit: math.Inf(1)}
		for range rapid.IntRange(1, 2).Draw(t, "kinds") {
			profiles := gpus[rapid.IntRange(0, len(gpus)-1).Draw(t, "of")].Model.Profiles
			p := profiles[rapid.IntRange(0, len(profiles)-1).Draw(t, "profile")]
			all[i].Wants = append(all[i].Wants, Want{Profile: p.Name, Count: rapid.IntRange(1, 3).Draw(t, "count")})
		}
		if w := &all[i].Wants[0]; len(all[i].Wants) == 1 && rapid.Bool().Draw(t, "sized") {
			for _, g := range gpus {
				if name, ok := g.Model.EquivalentProfile(w.Profile, g.Offerable); ok && name != w.Profile {
					w.Alternatives = append(w.Alternatives, name)
				}
			}
		}
	}
	return all
}
