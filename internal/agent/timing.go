package agent

import "time"

// spent stores the time that one prolog spent in calls to slurmctld and to the driver. The rest of
// the prolog's time was spent in the agent itself.
type spent struct {
	slurmctld, driver time.Duration
}

// add adds the time that has elapsed since the given time to a total. Typical use: defer
// add(&s.driver, time.Now()).
func add(to *time.Duration, since time.Time) { *to += time.Since(since) }

// milliseconds returns a duration in milliseconds for a log field, with a resolution of one microsecond.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
