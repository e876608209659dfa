package predict

// Forecast is the expected peak memory of a running job on one slice.
type Forecast struct {
	// PeakMiB is the expected peak at the end of the run. LowMiB is a lower bound of the peak. LowMiB is never less than
	// the highest memory usage so far.
	PeakMiB, LowMiB float64
	// Horizon is the time for which the forecast was made, in seconds since the start of the run.
	Horizon float64
	// SliceMiB is the memory of the slice. Exceeds is true if the forecasts have converged and the peak will exceed the
	// memory of the slice.
	SliceMiB float64
	Exceeds  bool
}

// End contains the available knowledge of the end of a run. All values are in seconds since the start, and 0 if
// unknown.
type End struct {
	Ran     float64 // the duration of the run so far
	Total   float64 // the total duration, from the number of iterations that the job reported
	Learned float64 // the expected run time from earlier runs
	Limit   float64 // the time limit
}

// Horizon returns the time for which the peak of a run is forecast, in seconds since the start: the total duration, the
// learned run time, or else twice the duration so far, because users often set time limits that are many times longer
// than the run. The result never exceeds the time limit.
func Horizon(e End) float64 {
	horizon := e.Total
	if horizon <= 0 && e.Learned > e.Ran {
		horizon = e.Learned
	}
	if horizon <= 0 {
		horizon = 2 * e.Ran
	}
	if e.Limit > 0 {
		horizon = min(horizon, e.Limit)
	}
	return max(horizon, e.Ran)
}

// Forecast returns the forecast of the peak at the horizon for a run that has lasted for ran seconds.
func (s Series) Forecast(ran, horizon, sliceMiB float64) Forecast {
	f := Forecast{Horizon: horizon, SliceMiB: sliceMiB}
	past := s.highest(ran)
	if len(past) == 0 {
		return f
	}
	f.PeakMiB = past[len(past)-1].mib
	f.LowMiB = f.PeakMiB
	return f
}
