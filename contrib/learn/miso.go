package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"gonum.org/v1/gonum/stat"

	"caelum/internal/predict"
)

// point is a model with a batch size: seconds of a step by profile, on those that it fits.
type point struct {
	model string
	batch float64
	step  map[string]float64
}

// readMISO reads the measurements of the MISO paper (arXiv 2207.11428).
func readMISO(path string, n node) ([]point, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, err
	}
	column := map[string]int{}
	for k, name := range rows[0] {
		column[name] = k
	}
	var all []point
	for line, row := range rows[1:] {
		p := point{model: row[column["model"]], step: map[string]float64{}}
		if p.batch, err = strconv.ParseFloat(row[column["batch"]], 64); err != nil {
			return nil, fmt.Errorf("%s:%d: batch: %w", path, line+2, err)
		}
		for _, profile := range n.board.Profiles {
			k, ok := column[profile.Name+"_mean_s"]
			if !ok || row[k] == "" {
				continue
			}
			if p.step[profile.Name], err = strconv.ParseFloat(row[k], 64); err != nil {
				return nil, fmt.Errorf("%s:%d: %s: %w", path, line+2, profile.Name, err)
			}
		}
		if p.step[n.whole] == 0 {
			return nil, fmt.Errorf("%s:%d: no step time on %s", path, line+2, n.whole)
		}
		all = append(all, p)
	}
	return all, nil
}

// speed is a point's on a profile, relative to the whole GPU.
func (p point) speed(n node, profile string) float64 { return p.step[n.whole] / p.step[profile] }

// need is what Caelum makes of a point's runs, without those on one profile.
func (p point) need(n node, without string) predict.Need {
	var h predict.History
	for _, profile := range n.board.Profiles {
		step := p.step[profile.Name]
		if step == 0 || profile.Name == without {
			continue
		}
		for range 3 {
			h.Runs = append(
				h.Runs,
				predict.Run{
					Job:     uint32(len(h.Runs) + 1),
					Profile: profile.Name,
					Board:   "a100",
					Seconds: 10000 * step,
					State:   "COMPLETED",
					Samples: 1,
					Util:    -1,
				},
			)
		}
	}
	need, _ := predict.Predict(h, predict.DefaultSite)
	return need
}

// speedBy is the speed that a need foresees, relative to the whole GPU.
func speedBy(need predict.Need, n node, profile string) float64 {
	k, _ := n.board.ProfileIndex(profile)
	need.Seconds, need.Compute = 1, n.board.Compute()
	seconds, _, _ := need.Takes(n.board.Profiles[k].Compute)
	return 1 / seconds
}

// way foresees a point's speeds without having seen it, or not on that profile; false: it cannot.
type way struct {
	name    string
	foresee func(n node, all []point, at int, profile string) (speed float64, ok bool)
}

var ways = []way{
	{"as its share of the compute", func(n node, _ []point, _ int, profile string) (float64, bool) {
		k, _ := n.board.ProfileIndex(profile)
		return float64(n.board.Profiles[k].Compute) / float64(n.board.Compute()), true
	}},
	{"the mean of other models", func(n node, all []point, at int, profile string) (float64, bool) {
		var of []float64
		for _, p := range all {
			if p.model != all[at].model && p.step[profile] > 0 {
				of = append(of, p.speed(n, profile))
			}
		}
		return stat.Mean(of, nil), len(of) > 0
	}},
	{"the same model's nearest batch", func(n node, all []point, at int, profile string) (float64, bool) {
		best := -1
		for k, p := range all {
			if k != at && p.model == all[at].model && p.step[profile] > 0 &&
				(best < 0 || distance(p, all[at]) < distance(all[best], all[at])) {
				best = k
			}
		}
		if best < 0 {
			return 0, false
		}
		return all[best].speed(n, profile), true
	}},
	{"Caelum, from the same model's nearest batch", func(n node, all []point, at int, profile string) (float64, bool) {
		best := -1
		for k, p := range all {
			if k != at && p.model == all[at].model &&
				(best < 0 || distance(p, all[at]) < distance(all[best], all[at])) {
				best = k
			}
		}
		return speedBy(all[best].need(n, ""), n, profile), true
	}},
	{"Caelum, from the other profiles", func(n node, all []point, at int, profile string) (float64, bool) {
		if len(all[at].step) < 3 { // with the one that is left out, two
			return 0, false
		}
		return speedBy(all[at].need(n, profile), n, profile), true
	}},
}

func distance(p, q point) float64 { return math.Abs(math.Log(p.batch / q.batch)) }

// compareMISO foresees each point without its own measurements (the last way: without that on the profile in question)
// and compares.
func compareMISO(w io.Writer, path string) error {
	n, err := newNode()
	if err != nil {
		return err
	}
	all, err := readMISO(path, n)
	if err != nil {
		return err
	}
	if err := table(w, "relative speed foreseen, of, mean error, 90% quantile, right profile for at most twice as long, ... three times", func(row func(string, ...any)) {
		for _, way := range ways {
			errs, right := way.judge(n, all)
			row("%s, %d, %.3f, %.3f, %d of %d, %d of %d", way.name, len(errs), stat.Mean(errs, nil), quantile(errs, 0.9), right[0], len(all), right[1], len(all))
		}
	}); err != nil {
		return err
	}
	return partitions(w, n, all)
}

// judge is the errors of the speeds, and for how many points the right profile follows if they may take twice, and
// three times as long as on the whole GPU. Whether a batch fits is taken as known: memory was not measured.
func (v way) judge(n node, all []point) (errs []float64, right [2]int) {
	for at, p := range all {
		foreseen := map[string]float64{n.whole: 1}
		for _, profile := range n.board.Profiles {
			if p.step[profile.Name] == 0 || profile.Name == n.whole {
				continue
			}
			if speed, ok := v.foresee(n, all, at, profile.Name); ok {
				foreseen[profile.Name] = speed
				errs = append(errs, math.Abs(speed-p.speed(n, profile.Name)))
			}
		}
		for k, slowdown := range []float64{2, 3} {
			want := p.smallest(n, slowdown, func(profile string) float64 { return p.speed(n, profile) })
			if p.smallest(n, slowdown, func(profile string) float64 { return foreseen[profile] }) == want {
				right[k]++
			}
		}
	}
	return errs, right
}

// smallest is the smallest profile on which the point is not slower than that; GPU models list theirs by size.
func (p point) smallest(n node, slowdown float64, speed func(string) float64) string {
	for _, profile := range n.board.Profiles {
		if p.step[profile.Name] > 0 && speed(profile.Name)*slowdown >= 1 {
			return profile.Name
		}
	}
	return n.whole
}

// partitions compares DynaP's choice for each batch by what was measured with that where the batch's own steps are
// taken from the model's nearest.
func partitions(w io.Writer, n node, all []point) error {
	return table(
		w,
		"DynaP's choice of a profile where steps may take so many times the whole GPU's, lambda, profiles as by measurement, loss of worth",
		func(row func(string, ...any)) {
			for _, deadline := range []float64{2, 3} {
				for _, lambda := range []float64{0.2, 0.5, 0.8} {
					right, loss := 0, 0.0
					for at, p := range all {
						g := predict.Goal{Lambda: lambda, Deadline: deadline * p.step[n.whole]}
						want := predict.Partitions(n.board, measured(n, all, p.model, -1), int(p.batch), g)
						got := predict.Partitions(n.board, measured(n, all, p.model, at), int(p.batch), g)
						if len(got) > 0 && got[0].Profile == want[0].Profile {
							right++
							continue
						}
						loss += want[0].Worth - worth(want, got)
					}
					row("%g, %g, %d of %d, %.3f", deadline, lambda, right, len(all), loss/float64(len(all)))
				}
			}
		},
	)
}

// nearest is the speed of the same model's nearest batch that fits the profile; of those that do not fit, it is
// foreseen.
func nearest(n node, all []point, at int, profile string) float64 {
	for _, way := range ways[2:4] {
		if speed, ok := way.foresee(n, all, at, profile); ok {
			return speed
		}
	}
	return 1
}

// worth is what the first of a list is worth by another; where that does not have it, because it misses the deadline,
// the least.
func worth(by, of []predict.Partition) float64 {
	for _, p := range by {
		if len(of) > 0 && p.Profile == of[0].Profile {
			return p.Worth
		}
	}
	return by[len(by)-1].Worth
}

// measured is a model's measurements; the steps of the point that is left out are foreseen, but for that on the whole
// GPU.
func measured(n node, all []point, model string, leftOut int) (of []predict.Measured) {
	for k, p := range all {
		if p.model != model {
			continue
		}
		for _, profile := range n.board.Profiles {
			step := p.step[profile.Name]
			if step == 0 {
				continue
			}
			if k == leftOut {
				step = p.step[n.whole] / nearest(n, all, k, profile.Name)
			}
			of = append(
				of,
				predict.Measured{Batch: int(p.batch), Profile: profile.Name, Latency: step, Throughput: p.batch / step},
			)
		}
	}
	return of
}
