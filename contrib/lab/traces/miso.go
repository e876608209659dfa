package traces

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"caelum/internal/sim/trace"
)

// MISO returns a workload based on the measurements published with the MISO paper (arXiv 2207.11428). They consist of a
// list of training jobs (each with a model, a batch size and a number of iterations) and the time that one iteration of
// each model takes on each profile of an A100-40GB. A job can run only on the profiles with a measurement, because the
// others have too little memory. The list does not contain submission times, so MISO draws exponentially distributed
// times between submissions. every is the mean of these times, in seconds. If it is 0, all jobs are submitted at the
// same time.
func MISO(
	jobsFile string,
	jobs io.Reader,
	stepsFile string,
	steps io.Reader,
	every float64,
	seed uint64,
) (*trace.Workload, error) {
	models, err := readSteps(stepsFile, steps)
	if err != nil {
		return nil, err
	}
	t, err := trace.OpenTable(jobsFile, jobs, commas, "job", "model", "num_iters")
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	w := &trace.Workload{}
	at := 0.0
	err = t.Each(func() error {
		id := t.Text("job")
		if err := t.Once("job", id, ""); err != nil {
			return err
		}
		iterations, err := number(t, "num_iters")
		if err != nil {
			return err
		}
		name, batch, _ := strings.Cut(t.Text("model"), "_train")
		m, ok := models[name+" "+batch]
		if !ok {
			return t.Bad(fmt.Errorf("%s contains no model %.60q with batch size %.60q", stepsFile, name, batch))
		}
		w.Jobs = append(w.Jobs, trace.Job{ID: id, Submit: at, Duration: iterations * m.step, Speed: m.speed})
		at += every * rng.ExpFloat64()
		return nil
	})
	if err == nil && w.Jobs == nil {
		err = &trace.LineError{File: jobsFile, Line: 1, Err: errors.New("no jobs")}
	}
	return w, err
}

// model describes a training model with a certain batch size. It holds the duration of an iteration on a whole GPU, in
// seconds, and the speed on each profile relative to the whole GPU.
type model struct {
	step  float64
	speed map[string]float64
}

func readSteps(file string, r io.Reader) (map[string]model, error) {
	t, err := trace.OpenTable(file, r, commas, "model", "batch", "7g.40gb_mean_s")
	if err != nil {
		return nil, err
	}
	all := map[string]model{}
	err = t.Each(func() (err error) {
		m := model{speed: map[string]float64{}}
		if m.step, err = number(t, "7g.40gb_mean_s"); err != nil {
			return err
		}
		for _, p := range trace.ChurnProfiles {
			column := p + "_mean_s"
			if !t.Has(column) || t.Text(column) == "" {
				continue
			}
			s, err := number(t, column)
			if err != nil {
				return err
			}
			if s == 0 {
				return t.Bad(fmt.Errorf("%s is 0, but must be the duration of an iteration in seconds", column))
			}
			m.speed[p] = m.step / s
		}
		name := t.Text("model") + " " + t.Text("batch")
		all[name] = m
		return t.Once("model", name, "")
	})
	if err == nil && len(all) == 0 {
		err = &trace.LineError{File: file, Line: 1, Err: errors.New("no models")}
	}
	return all, err
}
