package usage

import (
	"math"
	"time"

	"caelum/internal/core/predict"
	"caelum/internal/node/api"
)

const (
	// forecastEvery is the minimum time between forecasts of a slice. In addition, the run time must have increased by
	// the fraction forecastShare since the last forecast, because the forecasts of a long run change slowly.
	forecastEvery = 5 * time.Second
	forecastShare = 0.02
	// foreseenEvery is the time between calls to Options.Foreseen for the same job.
	foreseenEvery = time.Minute
)

// forecast computes the forecast for a slice if a new one is due. The caller holds m.mu.
func (m *Monitor) forecast(o *observation, u *sliceUsage) {
	if o.Seen < u.next {
		return
	}
	ran := o.Seen - o.Began
	u.next = o.Seen + max(forecastEvery, time.Duration(forecastShare*float64(ran)))
	u.forecast = u.Series.Forecast(predict.End{
		Ran: ran.Seconds(), Total: o.total(u.UUID), Learned: o.expected, Limit: o.limit,
	}, u.MemoryMiB)
}

// total returns the run's total duration in seconds according to the iterations reported by the processes on a slice,
// or 0 if no iterations are reported. If several processes report iterations, the result is the longest duration.
func (o *observation) total(uuid string) (seconds float64) {
	for _, p := range o.reporters {
		done := float64(p.now.iteration - p.first.iteration)
		if p.uuid != uuid || done <= 0 || p.now.iterations < p.now.iteration {
			continue
		}
		each := (p.now.at - p.first.at).Seconds() / done
		left := each * float64(p.now.iterations-p.now.iteration)
		seconds = max(seconds, (p.now.at-o.Began).Seconds()+left)
	}
	if math.IsInf(seconds, 0) {
		return 0
	}
	return seconds
}

// warn calls Options.Foreseen if the memory use forecast for a slice exceeds the slice's memory and the job is allowed
// to grow before it fails.
func (m *Monitor) warn(h heldSlice) {
	m.mu.Lock()
	o, f := m.open[h.job], h.forecast
	call := m.Foreseen != nil && o != nil && o.grow == api.GrowForecast && f.Exceeds && o.left == nil &&
		(o.warned == 0 || o.Seen-o.warned >= foreseenEvery)
	if call {
		o.warned = o.Seen
	}
	m.mu.Unlock()
	if call {
		m.Foreseen(h.job, f)
	}
}

// use returns the last sample and the forecast for `caelum job`. The forecast can be older than the sample.
func (u *sliceUsage) use() *api.Use {
	return &api.Use{
		MemoryMiB: u.LastMiB, PeakMiB: u.PeakMiB, Util: u.LastUtil, Processes: u.Last,
		ForecastMiB: math.Round(max(u.forecast.PeakMiB, u.PeakMiB)), Exceeds: u.forecast.Exceeds,
	}
}
