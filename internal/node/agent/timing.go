package agent

import "time"

// spent is the time that a prolog has spent on calls to slurmctld and to the driver.
type spent struct {
	slurmctld, driver time.Duration
}

// add adds the time that has passed since the given time to a total.
func add(to *time.Duration, since time.Time) { *to += time.Since(since) }

// milliseconds returns a duration in milliseconds for a log field, with a resolution of one microsecond.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
