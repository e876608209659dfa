package sim

import (
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Waits is a distribution of waiting times. Its size does not depend on the number of jobs. The zero value is an empty
// distribution.
type Waits struct {
	Count   int
	Sum     float64 // seconds
	Longest float64 // seconds
	by      *hdrhistogram.Histogram
}

// Waits are stored in milliseconds with three significant digits. The longest wait that can be stored is about three
// hundred years.
const (
	waitUnit   = 1e-3 // seconds
	mostUnits  = 1e13
	waitDigits = 3
)

// Add adds a wait, in seconds.
func (w *Waits) Add(seconds float64) {
	w.Count++
	w.Sum += seconds
	w.Longest = max(w.Longest, seconds)
	if w.by == nil {
		w.by = hdrhistogram.New(1, mostUnits, waitDigits)
	}
	w.by.RecordValue(int64(min(seconds/waitUnit, mostUnits)))
}

// Mean returns the mean wait in seconds, or 0 if no job was added.
func (w *Waits) Mean() float64 { return w.Sum / float64(max(w.Count, 1)) }

// At returns the q-quantile of the waits, in seconds, to three significant digits: a fraction q of the jobs waited at
// most that long. It returns 0 if no job was added. q is above 0 and at most 1.
func (w *Waits) At(q float64) float64 {
	if w.by == nil {
		return 0
	}
	rank := math.Ceil(q*float64(w.Count) - 1e-9)
	value := float64(w.by.ValueAtPercentile(100*rank/float64(w.Count))) * waitUnit
	if value < waitUnit {
		return 0
	}
	digit := math.Pow(10, math.Floor(math.Log10(value))-waitDigits+1)
	return math.Round(value/digit) * digit
}
