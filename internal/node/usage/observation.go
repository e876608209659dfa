package usage

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"caelum/internal/core/predict"
	"caelum/internal/node/api"
)

// observation is the usage of a run that has not ended.
type observation struct {
	// Run holds the properties that were known when the run began.
	Run predict.Run
	// Began is the time at which the run was granted its slices. Seen is the time of the last sample. Both are times of
	// CLOCK_MONOTONIC.
	Began, Seen time.Duration
	Slices      []*sliceUsage

	left   *observation // the observation of an earlier agent, until slurmctld confirms that the job is still running
	stored bool         // true if the observation is in the repository

	grow            string            // api.Lease.Grow
	expected, limit float64           // the learned run time and the time limit in seconds since Began; 0 if unknown
	reporters       map[int]*reporter // by pid
	warned          time.Duration     // time of CLOCK_MONOTONIC at the last call to Options.Foreseen; 0 if never called
}

// minObserved is the minimum duration of a run whose peak is recorded. A job takes about one second to begin using its
// GPU.
const minObserved = time.Second

// run returns the run and its usage. end is the time at which the run ended.
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

// parseObservation parses an observation that an earlier agent stored in the repository.
func parseObservation(text []byte) (*observation, error) {
	o := &observation{}
	if err := json.Unmarshal(text, o); err != nil {
		return nil, fmt.Errorf("not an observation: %w", err)
	}
	if len(o.Slices) == 0 || slices.ContainsFunc(o.Slices, func(u *sliceUsage) bool { return u == nil || !u.valid() }) {
		return nil, errors.New("not an observation: slices or samples are missing or contradictory")
	}
	return o, nil
}

// describe copies the properties of the job from its lease.
func (o *observation) describe(l api.Lease) {
	r := &o.Run
	r.Key, r.Fingerprint, r.User, r.Account, r.Name = l.Key, l.Fingerprint, l.User, l.Account, l.Name
	o.grow, o.expected = l.Grow, float64(l.Expected)
	if l.End > 0 {
		o.limit = float64(l.End - l.Since)
	}
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
