package offer

import "caelum/internal/core/place"

// Submission is a job that was submitted earlier.
type Submission struct {
	At      float64 // the time of the submission, in seconds
	RunTime float64 // the expected run time in seconds if it was learned from earlier runs, and 0 otherwise
}

const (
	// arrivalGaps is the maximum number of intervals between submissions from which ExpectedArrivals computes the rate
	// of submissions, and leastGaps is the minimum.
	arrivalGaps, leastGaps = 8, 2
	// leastSpan limits the computed rate of submissions, because the rate is unknown if many jobs are submitted at the
	// same time.
	leastSpan = 1.0 // seconds
)

// ExpectedArrivals returns the number of jobs that are expected to be submitted during a run of average length, or 0 if
// unknown. all lists the earlier submissions in chronological order, and now is the current time in seconds. The
// average is computed from the learned run times of the last [place.RecentKept] submissions. Time limits are not used,
// because they are often several times as long.
func ExpectedArrivals(all []Submission, now float64) float64 {
	gaps := min(len(all)-1, arrivalGaps)
	if gaps < leastGaps {
		return 0
	}
	sum, n := 0.0, 0
	for _, s := range all[max(0, len(all)-place.RecentKept):] {
		if s.RunTime > 0 {
			sum += s.RunTime
			n++
		}
	}
	span := max(now-all[len(all)-1-gaps].At, leastSpan)
	return float64(gaps) / span * sum / float64(max(n, 1))
}
