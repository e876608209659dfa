// Package ends corrects the estimated run times of jobs by the run times of earlier jobs. The agents do not do this,
// because it did not shorten waiting times with backfill (contrib/lab/results.md, "Run times").
package ends

import (
	"math"
	"slices"

	"caelum/internal/sim"
)

// Ends learns the ratio between jobs' run times and their stated durations. A stated duration is a time limit or a
// prediction. Users' time limits are several times too long, but a job that has already run longer than most others
// will probably run much longer still. The expected duration of a running job is therefore the mean over the past jobs
// that ran at least as long, where all durations are relative to the stated one. The zero value has recorded no jobs
// and expects each job to run for its stated duration. Ends implements [sim.Corrector].
type Ends struct {
	ratios    []float64 // run time / stated duration of the last finished jobs, as a ring buffer
	next      int
	finished  int
	updated   int // the value of finished when the quantiles were last computed
	quantiles []float64
	means     []float64 // for each quantile, the mean of the quantile and all higher quantiles
}

const (
	endsKept      = 4096 // the number of finished jobs that are stored
	endsFew       = 32   // if fewer jobs have finished, the expected duration is the stated duration
	endsQuantiles = 64
)

// New returns an Ends that has recorded no jobs.
func New() sim.Corrector { return &Ends{} }

// Finished records a job that ended by itself, along with its stated duration and its run time, both in seconds.
func (e *Ends) Finished(stated, ran float64) {
	if stated <= 0 || math.IsInf(stated, 1) {
		return
	}
	if len(e.ratios) < endsKept {
		e.ratios = append(e.ratios, ran/stated)
	} else {
		e.ratios[e.next] = ran / stated
		e.next = (e.next + 1) % endsKept
	}
	e.finished++
	if e.finished >= endsFew && e.finished >= e.updated+min(e.updated/16, endsQuantiles) {
		e.learn()
	}
}

// learn computes the quantiles (k + 1/2) / 64.
func (e *Ends) learn() {
	e.updated = e.finished
	sorted := slices.Sorted(slices.Values(e.ratios))
	e.quantiles, e.means = make([]float64, endsQuantiles), make([]float64, endsQuantiles)
	sum := 0.0
	for k := endsQuantiles - 1; k >= 0; k-- {
		e.quantiles[k] = sorted[(2*k+1)*len(sorted)/(2*endsQuantiles)]
		sum += e.quantiles[k]
		e.means[k] = sum / float64(endsQuantiles-k)
	}
}

// Version returns a number that changes whenever the results of Expect may have changed.
func (e *Ends) Version() int { return e.updated }

// Expect returns the expected total duration of a job that has run for ran seconds. stated is the job's stated
// duration, or +Inf if unknown. A job that has run longer than all recorded jobs is expected to run for another quarter
// of its run time so far. total remains valid until the job's run time reaches until (in seconds), unless another job
// is recorded first.
func (e *Ends) Expect(stated, ran float64) (total, until float64) {
	if math.IsInf(stated, 1) {
		return stated, stated
	}
	if e.updated == 0 {
		if ran < stated {
			return stated, stated
		}
		return ran * 1.25, ran * 1.25
	}
	k, _ := slices.BinarySearch(e.quantiles, ran/stated)
	for k < endsQuantiles && e.quantiles[k]*stated <= ran {
		k++
	}
	if k == endsQuantiles {
		return ran * 1.25, ran * 1.25
	}
	return stated * e.means[k], stated * e.quantiles[k]
}
