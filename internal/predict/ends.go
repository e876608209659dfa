package predict

import (
	"math"
	"slices"
)

// Ends learns how long jobs run, compared with what was said of them: a time limit, or a prediction. Users' limits are
// several times too long, and a job that has outlived most of its kind is likely to run on; so what is expected of a
// running job is the mean of those of the past that ran at least as long, in proportion. The zero value knows nothing
// and believes what is said.
type Ends struct {
	ratios    []float64 // of the last finished jobs, ran / said, a ring
	next      int
	finished  int
	updated   int // finished when the quantiles were made
	quantiles []float64
	means     []float64 // of the quantiles from this one on
}

const (
	endsKept      = 4096
	endsFew       = 32 // before so many have finished, what is said is believed
	endsQuantiles = 64
)

// Finished tells of a job that has ended by itself: what was said of it, and how long it ran, in seconds.
func (e *Ends) Finished(said, ran float64) {
	if said <= 0 || math.IsInf(said, 1) {
		return
	}
	if len(e.ratios) < endsKept {
		e.ratios = append(e.ratios, ran/said)
	} else {
		e.ratios[e.next] = ran / said
		e.next = (e.next + 1) % endsKept
	}
	e.finished++
	if e.finished >= endsFew && e.finished >= e.updated+min(e.updated/16, endsQuantiles) {
		e.learn()
	}
}

// learn makes the quantiles, at (k + 1/2) / 64.
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

// Version changes when expectations may.
func (e *Ends) Version() int { return e.updated }

// Expect is how long a job is expected to run in all, in seconds, of which said was said (+Inf: nothing) and which has
// run for so long already; and until when (seconds that it has run) that is the answer, if it has not ended before and
// nothing is learned. A job that has outlived all that were ever seen is expected to run for a quarter of its time so
// far once more.
func (e *Ends) Expect(said, ran float64) (total, until float64) {
	if math.IsInf(said, 1) {
		return said, said
	}
	if e.updated == 0 {
		if ran < said {
			return said, said
		}
		return ran * 1.25, ran * 1.25
	}
	k, _ := slices.BinarySearch(e.quantiles, ran/said)
	for k < endsQuantiles && e.quantiles[k]*said <= ran {
		k++
	}
	if k == endsQuantiles {
		return ran * 1.25, ran * 1.25
	}
	return said * e.means[k], said * e.quantiles[k]
}
