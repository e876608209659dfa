package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"caelum/internal/core/predict"
)

// scripts describes a population of scripts that each run once. A user has up to names job names, and edits the scripts
// of each name: every edit is a script of its own. The other fields are standard deviations of the logarithm of the
// peak.
type scripts struct {
	name        string
	user        float64 // of the users' means
	jobName     float64 // of the job names' means around the user's
	edit        float64 // of the change of a job name's mean with each edit
	independent float64 // of a script around the mean of its job name
	names       int
}

var scriptPopulations = []scripts{
	{"edits near the one before", 1, 0.5, 0.2, 0, 4},
	{"edits far from the one before", 1, 0.5, 0.35, 0, 4},
	{"edits around a mean", 1, 0.5, 0, 0.2, 4},
	{"many job names; similar jobs", 1, 0.2, 0, 0.1, 20},
	{"one job name; several programs", 1, 0, 0, 0.5, 1},
	{"nothing in common", 0, 0, 0, 1, 4},
}

// firstScript is a script's peak, and the peaks of the scripts that are similar to it, oldest first: those with the
// same job name, and the newest script of each of the user's job names.
type firstScript struct {
	peak           float64
	sameName, user []float64
}

// draw returns the scripts of one user in order.
func (p scripts) draw(rng *rand.Rand) (all []firstScript) {
	mean := math.Log(6144) + p.user*rng.NormFloat64()
	level, known := make([]float64, 1+rng.IntN(p.names)), map[int][]float64{}
	for k := range level {
		level[k] = mean + p.jobName*rng.NormFloat64()
	}
	var order []int // job names, in the order of their newest scripts
	for range 5 + rng.IntN(36) {
		k := rng.IntN(len(level))
		level[k] += p.edit * rng.NormFloat64()
		peak := min(max(math.Exp(level[k]+p.independent*rng.NormFloat64()), 512), 39<<10)
		s := firstScript{peak: peak, sameName: slices.Clone(known[k])}
		for _, name := range order {
			s.user = append(s.user, known[name][len(known[name])-1])
		}
		all = append(all, s)
		known[k] = append(known[k], peak)
		order = append(slices.DeleteFunc(order, func(name int) bool { return name == k }), k)
	}
	return all
}

// profile returns the profile of the script's run, from the scripts with the same job name or, with byUser, from the
// user's others if there are fewer than predict.FewestSimilar. Without either, it is the whole GPU.
func (s firstScript) profile(n node, byUser bool) string {
	peaks := s.sameName
	if len(peaks) < predict.FewestSimilar && byUser {
		peaks = s.user
	}
	h := predict.History{Level: predict.ByName, Runs: []predict.Run{{State: "COMPLETED", Samples: 1, Util: -1}}}
	need, ok := predict.PredictSimilar(h, peaks[max(0, len(peaks)-predict.SimilarWindow):], predict.DefaultSite)
	if p, fits := need.On(n.model, n.all); ok && fits {
		return p
	}
	return n.whole
}

// compareFirsts prints three figures for the scripts of users who have earlier ones, and the smallest possible share of
// a GPU.
func compareFirsts(w io.Writer, seeds []uint64) error {
	n, err := newNode()
	if err != nil {
		return err
	}
	head := "scripts, whole GPU, by job name, by job name and user, smallest share"
	return table(w, head, func(row func(string, ...any)) {
		for _, p := range scriptPopulations {
			var scores [3]score
			least := 0.0
			for _, seed := range seeds {
				rng := rand.New(rand.NewPCG(seed, 7))
				for range users {
					for _, s := range p.draw(rng)[1:] {
						tight := n.tightest(s.peak)
						least += n.memory(tight)
						for k, profile := range []string{n.whole, s.profile(n, false), s.profile(n, true)} {
							one := score{repeats: 1, given: n.memory(profile)}
							if profile == tight {
								one.tight = 1
							}
							if one.given < s.peak {
								one.killed = 1
							}
							scores[k].add(one)
						}
					}
				}
			}
			share := func(mib float64) float64 { return 100 * mib / float64(scores[0].repeats) / n.memory(n.whole) }
			cells := []any{p.name}
			for _, s := range scores {
				cells = append(cells, fmt.Sprintf("%.1f%% / %.2f%% / %.1f%%", s.of(s.tight), s.of(s.killed),
					share(s.given)))
			}
			row("%s, %s, %s, %s, %.1f%%", append(cells, share(least))...)
		}
	})
}
