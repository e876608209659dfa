package sim

import (
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Waits is how long jobs waited, in as much memory for a million of them as for a hundred. The zero value is nobody.
type Waits struct {
	Count   int
	Sum     float64 // seconds
	Longest float64 // seconds
	by      *hdrhistogram.Histogram
}

// The waits are counted in milliseconds, to three digits, up to some three hundred years.
const (
	waitUnit   = 1e-3 // seconds
	mostUnits  = 1e13
	waitDigits = 3
)

// Add counts a wait, in seconds.
func (w *Waits) Add(seconds float64) {
	w.Count++
	w.Sum += seconds
	w.Longest = max(w.Longest, seconds)
	if w.by == nil {
		w.by = hdrhistogram.New(1, mostUnits, waitDigits)
	}
	w.by.RecordValue(int64(min(seconds/waitUnit, mostUnits)))
}

// Mean is in seconds; 0 when nobody waited.
func (w *Waits) Mean() float64 { return w.Sum / float64(max(w.Count, 1)) }

// At is the wait that share q of the jobs did not exceed, 0 < q <= 1, in seconds and to three digits; 0 when nobody
// waited.
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
