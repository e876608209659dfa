package main

import (
	"fmt"
	"io"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

const (
	recurrences = 10  // the number of submissions of each job
	recurError  = 0.1 // the standard deviation of the logarithm of a recurring job's run times
)

// learner estimates the speeds of recurring jobs from the runs that have ended so far. The part of a run's ID before
// the slash identifies the recurring job.
type learner struct {
	model *mig.Model
	runs  map[string][]finished
}

// finished is a run together with the time at which it ends.
type finished struct {
	predict.Run
	at float64
}

// ran records a run. The run may end after the current simulated time.
func (l *learner) ran(s sim.Span) {
	key, _, _ := strings.Cut(s.Job, "/")
	run := runOf(l.model, uint32(len(l.runs[key])+1), s.Profile, s.To-s.From)
	l.runs[key] = append(l.runs[key], finished{run, s.To})
}

// speed returns the estimated speed of a job on a profile. internal/core/predict makes this estimate from the runs that
// ended before the job was submitted.
func (l *learner) speed(j trace.Job, profile string) float64 {
	key, _, _ := strings.Cut(j.ID, "/")
	var known []predict.Run
	for _, r := range l.runs[key] {
		if r.at <= j.Submit {
			known = append(known, r.Run)
		}
	}
	return estimate(l.model, known, profile)
}

// learned prints the turnarounds of recurring jobs with known and with learned speeds.
func learned(w io.Writer, o options) error {
	c, err := newCluster("A100-40GB", misoGPUs, "offers")
	if err != nil {
		return err
	}
	t := newTable(w, "one job every", "jobs", "whole GPUs", "tightest, learned", "adaptive, known", "adaptive, learned")
	for _, minutes := range []float64{2, 4, 8} {
		var all, last [4]float64
		for _, seed := range o.seeds {
			jobs, err := repeated(o.path, minutes, recurrences, recurError, seed)
			if err != nil {
				return err
			}
			jobs = slowest(jobs, maxSlowdown)
			for k, v := range []struct {
				way
				learn bool
			}{{whole, false}, {tightest, true}, {adaptive, false}, {adaptive, true}} {
				on := c
				if v.learn {
					l := &learner{c.model, map[string][]finished{}}
					on.ran, on.speeds = l.ran, l.speed
				}
				turnarounds, err := on.play(v.way, jobs)
				if err != nil {
					return err
				}
				all[k] += mean(turnarounds) / float64(len(o.seeds))
				last[k] += mean(turnarounds[len(jobs)/2:]) / float64(len(o.seeds))
			}
		}
		for _, half := range []struct {
			name string
			of   [4]float64
		}{{"all", all}, {"last half", last}} {
			base, where := half.of[0], fmt.Sprintf("%v min, %s", minutes, half.name)
			t.row(fmt.Sprintf("%v min", minutes), half.name, seconds(base), seconds(half.of[1]),
				t.judge(seconds(half.of[2]), where+", known", half.of[2], base),
				t.judge(seconds(half.of[3]), where+", learned", half.of[3], base, half.of[1]))
		}
	}
	t.end()
	return nil
}
