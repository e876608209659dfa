package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"caelum/contrib/lab/traces"
	"caelum/internal/core/predict"
	"caelum/internal/sim/trace"
)

// maxSlowdown is the default of the `max_slowdown` configuration key.
var maxSlowdown = predict.DefaultSite.MaxSlowdown

// misoGPUs is the number of GPUs for MISO's jobs.
const misoGPUs = 4

// miso returns MISO's 100 jobs. The argument minutes is the mean time between submissions.
func miso(path string, minutes float64, seed uint64) ([]trace.Job, error) {
	const jobsFile, stepsFile = "jobs_100.csv", "a100_40gb_mig_step_time.csv"
	jobs, err := os.ReadFile(filepath.Join(path, jobsFile))
	if err != nil {
		return nil, err
	}
	steps, err := os.ReadFile(filepath.Join(path, stepsFile))
	if err != nil {
		return nil, err
	}
	w, err := traces.MISO(jobsFile, bytes.NewReader(jobs), stepsFile, bytes.NewReader(steps), 60*minutes, seed)
	if err != nil {
		return nil, err
	}
	return w.Jobs, nil
}

// repeated returns several copies of MISO's jobs, each in a different random order. The job IDs end with a slash and
// the number of the copy. The run times have a lognormal error, and sigma is the standard deviation of the error's
// logarithm.
func repeated(path string, minutes float64, times int, sigma float64, seed uint64) ([]trace.Job, error) {
	jobs, err := miso(path, minutes, seed)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	var all []trace.Job
	at := 0.0
	for repetition := range times {
		for _, k := range rng.Perm(len(jobs)) {
			j := jobs[k]
			j.ID, j.Submit = fmt.Sprintf("%s/%d", j.ID, repetition), at
			j.Duration *= math.Exp(sigma * rng.NormFloat64())
			at += 60 * minutes * rng.ExpFloat64()
			all = append(all, j)
		}
	}
	return all, nil
}
