package usage

import (
	"caelum/internal/predict"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// observation contains the usage of one run while the run lasts.
type observation struct {
	// Run contains the facts that were known when the run began.
	Run predict.Run
	// Began is the time at which the run got its slices. Seen is the time of the last sample. Both are read from
	// CLOCK_MONOTONIC.
	Began, Seen time.Duration
	Slices      []*sliceUsage

	left   *observation // the observation of an earlier agent, until slurmctld confirms that the job still runs
	stored bool         // the observation is in the repository
}

// minObserved is the duration of the shortest run whose peak is recorded. A job takes about this long to start using
// its GPU.
const minObserved = time.Second

// run returns the run and its usage, with end as the time at which it ended.
func (o *observation) run(end time.Duration) predict.Run {
	r := o.Run
	r.Seconds, r.Util = max(end-o.Began, 0).Seconds(), -1
	most := slices.MaxFunc(o.Slices, func(x, y *sliceUsage) int {
		return cmp.Or(cmp.Compare(x.PeakMiB, y.PeakMiB), cmp.Compare(x.Samples, y.Samples))
	})
	r.Profile, r.Slices = most.Profile, 0
	for _, u := range o.Slices {
		if u.Profile == most.Profile {
			r.Slices++
		}
	}
	if most.Samples > 0 && end-o.Began >= minObserved {
		r.Samples, r.PeakMiB, r.Util = most.Samples, most.PeakMiB, most.util()
		r.MedianMiB, r.HighMiB = most.quantile(0.5), most.quantile(0.95)
		for _, u := range o.Slices {
			r.Processes = max(r.Processes, u.Most)
		}
	}
	return r
}

// parseObservation parses an observation that an earlier agent wrote into the repository.
func parseObservation(text []byte) (*observation, error) {
	o := &observation{}
	if err := json.Unmarshal(text, o); err != nil {
		return nil, fmt.Errorf("not an observation: %w", err)
	}
	if len(o.Slices) == 0 || slices.ContainsFunc(o.Slices, func(u *sliceUsage) bool { return u == nil || !u.valid() }) {
		return nil, errors.New("not an observation: its slices or their samples are missing or contradictory")
	}
	return o, nil
}

// continues merges an earlier agent's observation of the same run into o.
func (o *observation) continues(earlier *observation) {
	o.Run, o.Began, o.Seen, o.left = earlier.Run, earlier.Began, earlier.Seen, earlier
	for _, u := range o.Slices {
		k := slices.IndexFunc(earlier.Slices, func(e *sliceUsage) bool { return e.UUID == u.UUID })
		if k >= 0 {
			u.continues(earlier.Slices[k])
		}
	}
}
