package agent

import (
	"caelum/internal/gpu"
)

// usageBins is into how many bins of equal width a slice's memory is divided. A quantile is told as the upper edge of
// the bin that it lies in, so at most 1/128 of the slice's memory too high (38 MiB of a 1g.5gb, 320 MiB of a 7g.40gb)
// and never too low.
const usageBins = 128

// usage is what a slice was seen to have in use: a histogram, so that it needs no more room after a week than after a
// second. It is kept as JSON while its job runs.
type usage struct {
	GPU       int
	UUID      string
	Profile   string
	MemoryMiB float64 // of the slice
	// Samples is how often it was looked at, Bins how often its memory in use was in each bin.
	Samples int
	Bins    [usageBins]uint32
	// PeakMiB is exact; LastMiB, LastUtil and Last are the last sample's.
	PeakMiB, LastMiB, LastUtil float64
	// Most is the largest number of processes that was seen on it, Last the last.
	Most, Last int
	// Busy is the sum of the utilisations of those samples that had one.
	Busy        float64
	BusySamples int

	in   gpu.Instance
	over bool // it, or its GPU, is gone
	odd  bool // an error of its GPU has been logged
	// strangers are the processes on it that are not its job's, by pid. The GPU's sampler writes it under observer.mu.
	strangers map[int]stranger
}

func (u *usage) add(use gpu.Use) {
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

// quantile is the memory in MiB that was not exceeded in a share q of the samples, 0 without any.
func (u *usage) quantile(q float64) float64 {
	seen := 0.0
	for k, n := range u.Bins {
		if seen += float64(n); n > 0 && seen >= q*float64(u.Samples) {
			if k == usageBins-1 {
				return u.PeakMiB // what is more than the slice's memory is counted here too
			}
			return min(float64(k+1)*u.MemoryMiB/usageBins, u.PeakMiB)
		}
	}
	return 0
}

// util is the mean utilisation, -1 if the GPU never told one.
func (u *usage) util() float64 {
	if u.BusySamples == 0 {
		return -1
	}
	return u.Busy / float64(u.BusySamples)
}

// continues adds what an earlier agent saw of the same slice.
func (u *usage) continues(earlier *usage) {
	if u.Samples == 0 {
		u.LastMiB, u.LastUtil, u.Last = earlier.LastMiB, earlier.LastUtil, earlier.Last
	}
	for k, n := range earlier.Bins {
		u.Bins[k] += n
	}
	u.Samples, u.Busy, u.BusySamples = u.Samples+earlier.Samples, u.Busy+earlier.Busy, u.BusySamples+earlier.BusySamples
	u.PeakMiB, u.Most = max(u.PeakMiB, earlier.PeakMiB), max(u.Most, earlier.Most)
}

// sane reports whether a usage that was read from the repository can be one.
func (u *usage) sane() bool {
	total := 0
	for _, n := range u.Bins {
		total += int(n)
	}
	return u.MemoryMiB > 0 && total == u.Samples && u.PeakMiB >= 0 && u.Most >= 0 && u.BusySamples >= 0 &&
		u.BusySamples <= u.Samples &&
		u.Busy >= 0 &&
		u.Busy <= float64(u.BusySamples)
}
