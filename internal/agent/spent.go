package agent

import "time"

// spent is where the time of one prolog went outside the agent; what is left of the whole is its own.
type spent struct {
	slurmctld, driver time.Duration
}

// add adds the time since a moment: defer add(&s.driver, time.Now()).
func add(to *time.Duration, since time.Time) { *to += time.Since(since) }

// milliseconds as a log field, to the microsecond.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
