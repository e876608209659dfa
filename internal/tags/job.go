package tags

import (
	"cmp"
	"strconv"
	"time"

	"caelum/internal/slurm"
)

// Sized reports whether Caelum chose the job's profile. In this case, an equivalent profile of another GPU model may
// replace it.
func Sized(j slurm.Job) bool {
	mig := j.SlicesPerNode()
	return len(mig) == 1 && Has(j.AdminComment, Size+mig[0].Type)
}

// Learned returns the run time of the job that earlier runs predict, or 0 if there is no prediction. The result never
// exceeds the job's time limit.
func Learned(j slurm.Job) time.Duration {
	seconds, err := strconv.ParseUint(Value(j.AdminComment, RunTime), 10, 31)
	if err != nil {
		return 0
	}
	learned := time.Duration(seconds) * time.Second
	if j.TimeLimit > 0 {
		return min(learned, j.TimeLimit)
	}
	return learned
}

// BusyShare returns the share of the job's run time on one compute slice for which the job keeps that slice busy, from
// 0 to 1. ok is false if the job has no valid tag Busy.
func BusyShare(j slurm.Job) (share float64, ok bool) {
	text := Value(j.AdminComment, Busy)
	percent, err := strconv.ParseUint(text, 10, 8)
	if err != nil || len(text) > len("100") || percent > 100 {
		return 0, false
	}
	return float64(percent) / 100, true
}

// Expected returns the expected run time of the job. This is the learned run time, or else the time limit, or 0 if both
// are unknown.
func Expected(j slurm.Job) time.Duration { return cmp.Or(Learned(j), j.TimeLimit) }

// ExpectedEnd returns the expected end of a running job according to its earlier runs. If there are no earlier runs, or
// the job has already run for longer than they predict, the result is the end of the time limit. It is the zero time if
// the job has no time limit. takes is the run time on the slice that the job has,
// divided by the run time on the profile that the job requests.
func ExpectedEnd(j slurm.Job, takes float64, now time.Time) time.Time {
	learned := time.Duration(float64(Learned(j)) * takes)
	if end := j.Start.Add(learned); end.After(now) && !j.Start.IsZero() && learned > 0 {
		return end
	}
	return j.End
}
