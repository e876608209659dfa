package usage

import (
	"math"
	"time"

	"caelum/internal/core/predict"
	"caelum/internal/node/gpu"
)

// usageBins is the number of bins of equal width into which the histogram divides a slice's memory. The reported value
// of a quantile is the upper edge of its bin, which is never too low and is too high by at most 1/128 of the slice's
// memory (38 MiB for a 1g.5gb, 320 MiB for a 7g.40gb).
const usageBins = 128

// sliceUsage holds a slice's samples as a histogram, so that the memory that they occupy does not grow with time. While
// the job is running, the repository stores the sliceUsage as JSON.
type sliceUsage struct {
	GPU       int
	UUID      string
	Profile   string
	MemoryMiB float64 // the memory of the slice
	// Samples is the number of samples, and Bins is the number of samples in each bin of memory use.
	Samples int
	Bins    [usageBins]uint32
	// PeakMiB is the exact peak memory usage. LastMiB and LastUtil are the values of the last sample.
	PeakMiB, LastMiB, LastUtil float64
	// Most is the highest number of processes in a sample. Last is the number of processes in the last sample.
	Most, Last int
	// Busy is the sum of the utilisation values. BusySamples is the number of samples that include such a value.
	Busy        float64
	BusySamples int
	// Series is the memory use over time, without the memory that the job's allocator could return to the driver.
	// Observations that earlier releases stored do not contain it.
	Series predict.Series

	slice  Slice
	gap    int  // the number of samples since the run last had a process on the device; used by an Observer
	failed bool // true if an error has been logged

	forecast predict.Forecast // the last forecast
	next     time.Duration    // the time of CLOCK_MONOTONIC at which the next forecast becomes due
}

// add adds a sample.
func (u *sliceUsage) add(use gpu.Use) {
	bin := int(use.MemoryMiB / u.MemoryMiB * usageBins)
	u.Bins[min(max(bin, 0), usageBins-1)]++
	u.Samples++
	u.LastMiB, u.LastUtil, u.Last = use.MemoryMiB, use.Util, use.Processes
	u.PeakMiB, u.Most = max(u.PeakMiB, use.MemoryMiB), max(u.Most, use.Processes)
	if use.Util >= 0 {
		u.Busy += use.Util
		u.BusySamples++
	}
}

// quantile returns the memory in MiB that a fraction q of the samples did not exceed, or 0 if there are no samples.
func (u *sliceUsage) quantile(q float64) float64 {
	seen := 0.0
	for k, n := range u.Bins {
		if seen += float64(n); n > 0 && seen >= q*float64(u.Samples) {
			if k == usageBins-1 {
				return u.PeakMiB // the last bin also counts samples that exceed the slice's memory
			}
			return min(float64(k+1)*u.MemoryMiB/usageBins, u.PeakMiB)
		}
	}
	return 0
}

// util returns the mean utilisation from 0 to 1, or -1 if the GPU has never reported its utilisation.
func (u *sliceUsage) util() float64 {
	if u.BusySamples == 0 {
		return -1
	}
	return u.Busy / float64(u.BusySamples)
}

// rescale changes the memory of the slice to mib. A quantile remains the upper edge of a bin.
func (u *sliceUsage) rescale(mib float64) {
	var bins [usageBins]uint32
	for k, n := range u.Bins {
		to := int(math.Ceil(float64(k+1)*u.MemoryMiB/mib)) - 1
		bins[min(max(to, 0), usageBins-1)] += n
	}
	u.Bins, u.MemoryMiB = bins, mib
}

// continues adds the samples that an earlier agent took of the same slice.
func (u *sliceUsage) continues(earlier *sliceUsage) {
	if u.Samples == 0 {
		u.LastMiB, u.LastUtil, u.Last = earlier.LastMiB, earlier.LastUtil, earlier.Last
	}
	earlier.rescale(u.MemoryMiB) // the slice may have been resized since
	for k, n := range earlier.Bins {
		u.Bins[k] += n
	}
	u.Samples, u.Busy, u.BusySamples = u.Samples+earlier.Samples, u.Busy+earlier.Busy, u.BusySamples+earlier.BusySamples
	u.PeakMiB, u.Most = max(u.PeakMiB, earlier.PeakMiB), max(u.Most, earlier.Most)
	u.Series.Merge(earlier.Series)
}

// valid reports whether a usage read from the repository is consistent.
func (u *sliceUsage) valid() bool {
	total := 0
	for _, n := range u.Bins {
		total += int(n)
	}
	return u.MemoryMiB > 0 && u.Series.Valid() && total == u.Samples && u.PeakMiB >= 0 && u.Most >= 0 &&
		u.BusySamples >= 0 && u.BusySamples <= u.Samples &&
		u.Busy >= 0 && u.Busy <= float64(u.BusySamples)
}
