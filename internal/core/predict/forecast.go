package predict

import (
	"math"
	"slices"
)

// Forecast is the expected peak memory of a running job on one slice.
type Forecast struct {
	// PeakMiB is the expected peak at Horizon, which is a time in seconds since the start of the run. LowMiB is the
	// lower bound on the peak and determines Exceeds. Neither value is less than the highest memory use so far.
	PeakMiB, LowMiB float64
	Horizon         float64
	// SliceMiB is the slice's memory. Exceeds is true if the job will almost certainly need more memory than the slice
	// has.
	SliceMiB float64
	Exceeds  bool
}

// The forecast's constants were chosen with seeds 1 to 20 of `go run -C contrib/lab ./learn forecast`. A false alarm
// discards the work of a job that would have completed. The constants therefore favour late alarms over false alarms.
const (
	// blocks is the maximum number of points to which the forecast reduces the memory use in each of the periods that
	// it considers. With fewer than minPoints points, the forecast is the highest memory use so far.
	blocks    = 16
	minPoints = 8
	// The slope is limited by the slope over all but the first part of the run so far (the fraction growthShare). The
	// memory use must therefore also have grown before the last half.
	growthShare = 1.0 / 8
	// The growth is slowing down if, in the last half of the run, it is less than slowing times the growth in the
	// preceding quarter.
	slowing = 0.8
	// lowSlope is the quantile of the slopes that LowMiB uses. This quantile is 0 unless the memory use grew during
	// most of the last half of the run, so a single step rarely causes an alarm. believed is the fraction of the growth
	// between now and the horizon that LowMiB includes.
	lowSlope = 0.2
	believed = 0.85
	// Exceeds is false until at least minRan seconds, and at least minShare times the time to the horizon, have passed.
	// A program allocates most of its memory during this time, and a run that fails so early loses little work.
	minRan   = 60
	minShare = 0.2
	// A run almost certainly lasts at least sureLearned times its learned run time, and at least sureRan times its
	// duration so far.
	sureLearned = 0.6
	sureRan     = 1.05
)

// End holds the known information about the end of a run. All values are in seconds since the start of the run; unknown
// values are 0.
type End struct {
	Ran     float64 // the duration of the run so far
	Total   float64 // the total duration, from the number of iterations that the job reported
	Learned float64 // the expected run time from earlier runs
	Limit   float64 // the time limit
}

// horizons returns the expected end of a run, and a time until which it will almost certainly last, both in seconds
// since its start. If neither the number of iterations nor a learned run time is known, the run is expected to last
// twice as long as it already has, because users often set time limits that are many times longer than the run.
func (e End) horizons() (expected, sure float64) {
	expected, sure = e.Total, e.Total
	if e.Total <= 0 {
		expected, sure = 2*e.Ran, max(sureLearned*e.Learned, sureRan*e.Ran)
		if e.Learned > e.Ran {
			expected = e.Learned
		}
	}
	if e.Limit > 0 {
		expected, sure = min(expected, e.Limit), min(sure, e.Limit)
	}
	return max(expected, e.Ran), max(sure, e.Ran)
}

// Forecast returns the forecast for a slice with sliceMiB of memory. The growth of the highest memory use so far is the
// median of the slopes between all pairs of points in the last half of the run (the Theil-Sen estimator, which is
// robust against up to 29% outliers). If the growth slows down, the forecast continues the slowdown: the slope is then
// a power of the time. For Exceeds, the slope is a low quantile of these slopes, the growth must not be slowing down,
// and the horizon is a time until which the run will almost certainly last.
func (s Series) Forecast(end End, sliceMiB float64) Forecast {
	horizon, sure := end.horizons()
	f := Forecast{Horizon: horizon, SliceMiB: sliceMiB}
	past := s.highest(end.Ran)
	if len(past) == 0 {
		return f
	}
	top := past[len(past)-1].mib
	f.PeakMiB, f.LowMiB = top, top
	late := thin(within(past, end.Ran/2, end.Ran))
	if len(late) < minPoints {
		return f
	}
	lately := slopes(late)
	before := middle(slopes(thin(within(past, end.Ran/4, end.Ran/2))))
	slope := min(middle(lately), middle(slopes(thin(within(past, growthShare*end.Ran, end.Ran)))))
	f.PeakMiB = top + growth(slope, bend(before, middle(lately)), end.Ran, horizon)
	if low := lately[int(lowSlope*float64(len(lately)))]; bend(before, low) == 0 {
		f.LowMiB = min(top+believed*growth(low, 0, end.Ran, sure), f.PeakMiB)
	}
	f.Exceeds = f.LowMiB > sliceMiB && end.Ran >= minRan && end.Ran >= minShare*horizon
	return f
}

// bend returns the power of the time to which the slope is proportional, or 0 if the slope hardly decreases. before is
// the slope from a quarter to half of the run so far, and lately is the slope since then.
func bend(before, lately float64) float64 {
	if lately <= 0 || before <= 0 || lately >= slowing*before {
		return 0
	}
	return math.Log2(lately / before)
}

// growth returns the growth between the times ran and horizon. slope is the slope at three quarters of ran, and changes
// with the given power of the time.
func growth(slope, power, ran, horizon float64) float64 {
	if slope <= 0 || horizon <= ran {
		return 0
	}
	at := 0.75 * ran
	if math.Abs(power+1) < 1e-6 {
		return slope * at * math.Log(horizon/ran)
	}
	return slope * at / (power + 1) * (math.Pow(horizon/at, power+1) - math.Pow(ran/at, power+1))
}

// thin divides the points into at most blocks equal parts and returns the last point of each part.
func thin(all []point) (few []point) {
	n := min(blocks, len(all))
	for k := range n {
		few = append(few, all[(k+1)*len(all)/n-1])
	}
	return few
}

// slopes returns the slopes between all pairs of points in MiB per second, in ascending order.
func slopes(points []point) (all []float64) {
	for k, p := range points {
		for _, o := range points[:k] {
			all = append(all, (p.mib-o.mib)/max(p.at-o.at, 1e-9))
		}
	}
	slices.Sort(all)
	return all
}

// middle returns the lower median of sorted numbers, or 0 if there are no numbers.
func middle(sorted []float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)/2]
}
