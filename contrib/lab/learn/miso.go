package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"gonum.org/v1/gonum/stat"

	"caelum/internal/core/predict"
)

// point holds the measurements of a machine-learning model with one batch size: the duration of a step, in seconds, on
// each profile with enough memory for the model.
type point struct {
	model string
	batch float64
	step  map[string]float64
}

// readMISO reads the MISO paper's measurements (arXiv 2207.11428) from a file.
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
		for _, profile := range n.model.Profiles {
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

// speed returns the speed of a point on a profile, relative to the whole GPU.
func (p point) speed(n node, profile string) float64 { return p.step[n.whole] / p.step[profile] }

// need returns Caelum's prediction from the runs of a point, excluding those on the given profile.
func (p point) need(n node, without string) predict.Need {
	var h predict.History
	for _, profile := range n.model.Profiles {
		step := p.step[profile.Name]
		if step == 0 || profile.Name == without {
			continue
		}
		for range 3 {
			h.Runs = append(h.Runs, predict.Run{
				Job:     uint32(len(h.Runs) + 1),
				Profile: profile.Name,
				GPUType: "a100",
				Seconds: 10000 * step,
				State:   "COMPLETED",
				Samples: 1,
				Util:    -1,
			})
		}
	}
	need, _ := predict.Predict(h, predict.DefaultSite)
	return need
}

// speedBy returns the speed implied by a prediction, relative to the whole GPU.
func speedBy(need predict.Need, n node, profile string) float64 {
	k, _ := n.model.ProfileIndex(profile)
	need.Seconds, need.Compute = 1, n.model.Compute()
	seconds, _, _ := need.Takes(n.model.Profiles[k].Compute)
	return 1 / seconds
}

// predictor predicts the speed of a point on a profile from other measurements; ok is false if it cannot.
type predictor struct {
	name    string
	foresee func(n node, all []point, at int, profile string) (speed float64, ok bool)
}

var predictors = []predictor{
	{"the profile's share of the compute slices", func(n node, _ []point, _ int, profile string) (float64, bool) {
		k, _ := n.model.ProfileIndex(profile)
		return float64(n.model.Profiles[k].Compute) / float64(n.model.Compute()), true
	}},
	{"the mean speed of other models", func(n node, all []point, at int, profile string) (float64, bool) {
		var of []float64
		for _, p := range all {
			if p.model != all[at].model && p.step[profile] > 0 {
				of = append(of, p.speed(n, profile))
			}
		}
		return stat.Mean(of, nil), len(of) > 0
	}},
	{"the model's measurement with the nearest batch size", func(
		n node, all []point, at int, profile string,
	) (float64, bool) {
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
	{"Caelum, from the model's measurements with the nearest batch size", func(
		n node, all []point, at int, profile string,
	) (float64, bool) {
		best := -1
		for k, p := range all {
			if k != at && p.model == all[at].model &&
				(best < 0 || distance(p, all[at]) < distance(all[best], all[at])) {
				best = k
			}
		}
		return speedBy(all[best].need(n, ""), n, profile), true
	}},
	{"Caelum, from the pair's measurements on the other profiles", func(
		n node, all []point, at int, profile string,
	) (float64, bool) {
		if len(all[at].step) < 3 { // the prediction needs measurements on two other profiles
			return 0, false
		}
		return speedBy(all[at].need(n, profile), n, profile), true
	}},
}

func distance(p, q point) float64 { return math.Abs(math.Log(p.batch / q.batch)) }

// compareMISO predicts the speeds of each point without the point's own measurements and compares the predictions with
// these measurements. Only the last predictor uses the point's measurements on other profiles.
func compareMISO(w io.Writer, path string) error {
	n, err := newNode()
	if err != nil {
		return err
	}
	all, err := readMISO(path, n)
	if err != nil {
		return err
	}
	head := "source of the predicted relative speed, predictions, mean error, 90% quantile of the error, " +
		"right profile for at most twice as long, right profile for at most three times as long"
	if err := table(w, head, func(row func(string, ...any)) {
		for _, v := range predictors {
			errs, right := v.judge(n, all)
			row("%s, %d, %.3f, %.3f, %d of %d, %d of %d", v.name, len(errs), stat.Mean(errs, nil),
				quantile(errs, 0.9), right[0], len(all), right[1], len(all))
		}
	}); err != nil {
		return err
	}
	return partitions(w, n, all)
}

// judge returns the errors of the predicted speeds. It also returns the number of points for which the predictions lead
// to the right profile under the condition that a step takes at most two or three times as long as on the whole GPU.
// Because the measurements do not include memory, judge assumes that Caelum knows which profiles have enough memory for
// a batch.
func (v predictor) judge(n node, all []point) (errs []float64, right [2]int) {
	for at, p := range all {
		foreseen := map[string]float64{n.whole: 1}
		for _, profile := range n.model.Profiles {
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

// smallest returns the smallest profile on which the point's slowdown is acceptable. The profiles of a GPU model are
// sorted by size.
func (p point) smallest(n node, slowdown float64, speed func(string) float64) string {
	for _, profile := range n.model.Profiles {
		if p.step[profile.Name] > 0 && speed(profile.Name)*slowdown >= 1 {
			return profile.Name
		}
	}
	return n.whole
}

// partitions compares two choices that DynaP makes for each batch: one based on measured step times, and one based on
// predicted step times. The predictions use the model's nearest batch size.
func partitions(w io.Writer, n node, all []point) error {
	return table(
		w,
		"longest allowed step time as a multiple of the step time on a whole GPU, lambda, "+
			"pairs with an unchanged choice, mean loss of DynaP's objective",
		func(row func(string, ...any)) {
			for _, deadline := range []float64{2, 3} {
				for _, lambda := range []float64{0.2, 0.5, 0.8} {
					right, loss := 0, 0.0
					for at, p := range all {
						g := Goal{Lambda: lambda, Deadline: deadline * p.step[n.whole]}
						want := Partitions(n.model, measured(n, all, p.model, -1), int(p.batch), g)
						got := Partitions(n.model, measured(n, all, p.model, at), int(p.batch), g)
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

// nearest returns the speed measured with the model's nearest batch size that fits into the profile, or a predicted
// speed if no batch fits.
func nearest(n node, all []point, at int, profile string) float64 {
	for _, v := range predictors[2:4] {
		if speed, ok := v.foresee(n, all, at, profile); ok {
			return speed
		}
	}
	return 1
}

// worth takes the profile that comes first in the second argument, and returns its Worth in the first argument. If the
// first argument does not contain this profile because it misses the deadline, the result is the smallest Worth there.
func worth(by, of []Partition) float64 {
	for _, p := range by {
		if len(of) > 0 && p.Profile == of[0].Profile {
			return p.Worth
		}
	}
	return by[len(by)-1].Worth
}

// measured returns the measurements of a model. For the point with the index leftOut, it returns the measured step time
// on the whole GPU, and predicted step times on all other profiles.
func measured(n node, all []point, model string, leftOut int) (of []Measured) {
	for k, p := range all {
		if p.model != model {
			continue
		}
		for _, profile := range n.model.Profiles {
			step := p.step[profile.Name]
			if step == 0 {
				continue
			}
			if k == leftOut {
				step = p.step[n.whole] / nearest(n, all, k, profile.Name)
			}
			of = append(
				of,
				Measured{Batch: int(p.batch), Profile: profile.Name, Latency: step, Throughput: p.batch / step},
			)
		}
	}
	return of
}
