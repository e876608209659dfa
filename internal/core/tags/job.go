package tags

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// Sized reports whether Caelum chose the job's profile. If so, another GPU model's equivalent profile may replace it.
// After a growth, the job's request names one of the smaller profiles until an agent replaces it, or permanently if
// slurmctld cannot replace it (slurm.Release.ReplacesTypes).
func Sized(j slurm.Job) bool {
	mig := j.SlicesPerNode()
	return len(mig) == 1 && (Has(j.AdminComment, Size+mig[0].Type) || grownFrom(j, mig[0].Type))
}

// Needed returns the profile that the job needs if it differs from the one in the job's request, and an empty string
// otherwise.
func Needed(j slurm.Job) string {
	mig := j.SlicesPerNode()
	if len(mig) != 1 || Has(j.AdminComment, Size+mig[0].Type) || !grownFrom(j, mig[0].Type) {
		return ""
	}
	return Value(j.AdminComment, Size)
}

// grownFrom reports whether the job requested the profile before a growth.
func grownFrom(j slurm.Job, profile string) bool {
	return slices.ContainsFunc(Growths(j), func(g predict.Growth) bool {
		return cmp.Or(g.Requested, g.Profile) == profile
	})
}

// Growths returns the job's growths, oldest first.
func Growths(j slurm.Job) []predict.Growth { return predict.ParseGrowths(Value(j.AdminComment, Grown)) }

// GrowMode returns the cause for which an agent may requeue the job on a larger profile: predict.RanOutOfMemory,
// predict.Foreseen (which includes RanOutOfMemory), or an empty string. A job can grow only if it is a batch job that
// can be requeued, it is not a component of a het job, and Caelum chose its profile.
func GrowMode(j slurm.Job) predict.Cause {
	mode := predict.Cause(Value(j.AdminComment, Grow))
	if mode != predict.RanOutOfMemory && mode != predict.Foreseen ||
		!j.Batch || !j.Requeue || j.HetJob != 0 || !Sized(j) {
		return ""
	}
	return mode
}

// Regrown returns the job's admin_comment after a growth to a larger profile. If the last growth has the same profile,
// an agent has already changed the comment during this run, and Regrown replaces that growth. The expected run time
// changes with the profile, because agents assume that it applies to the profile that the job needs.
func Regrown(j slurm.Job, larger string, g predict.Growth) string {
	all := Growths(j)
	if n := len(all); n > 0 && all[n-1].Profile == g.Profile {
		all = all[:n-1]
	}
	comment := Set(Set(j.AdminComment, Grown, predict.FormatGrowths(append(all, g))), Size, larger)
	if runs := runTimeOn(j, larger); runs != "" {
		comment = Set(comment, RunTime, runs)
	}
	return comment
}

// runTimeOn returns the value of the RunTime tag for a profile that replaces the one in the Size tag, or an empty
// string if the job has no valid RunTime tag.
func runTimeOn(j slurm.Job, profile string) string {
	seconds, high := learned(j)
	line := predict.Line{Profile: Value(j.AdminComment, Size), Seconds: int(seconds), High: int(high), Busy: -1}
	if share, ok := BusyShare(j); ok {
		line.Busy = int(math.Round(100 * share))
	}
	return predict.RunTime(line.On(profile))
}

// UnavailableSlices returns the slices, in the form PROFILE:COUNT,..., and the node in the job's NoRoom tag. The result
// ok is false if the job has no such tag.
func UnavailableSlices(j slurm.Job) (missing, node string, ok bool) {
	return strings.Cut(Value(j.AdminComment, NoRoom), "@")
}

// Learned returns the run time predicted from earlier runs of the job, or 0 if there is no prediction. It never exceeds
// the job's time limit.
func Learned(j slurm.Job) time.Duration {
	seconds, _ := learned(j)
	if at := time.Duration(seconds) * time.Second; j.TimeLimit <= 0 || at < j.TimeLimit {
		return at
	}
	return j.TimeLimit
}

// learned returns the learned run time and its 90% quantile in seconds. Both are 0 if the RunTime tag is missing or
// invalid. high is 0 if the tag has no quantile.
func learned(j slurm.Job) (seconds, high uint64) {
	middle, most, both := strings.Cut(Value(j.AdminComment, RunTime), "-")
	seconds, err := strconv.ParseUint(middle, 10, 31)
	if err == nil && both {
		high, err = strconv.ParseUint(most, 10, 31)
	}
	if err != nil || both && high < seconds {
		return 0, 0
	}
	return seconds, high
}

// BusyShare returns the job's busy share, from 0 to 1. ok is false if the job has no valid Busy tag.
func BusyShare(j slurm.Job) (share float64, ok bool) {
	text := Value(j.AdminComment, Busy)
	percent, err := strconv.ParseUint(text, 10, 8)
	if err != nil || len(text) > len("100") || percent > 100 {
		return 0, false
	}
	return float64(percent) / 100, true
}

// Expected returns the job's expected run time: the learned run time or, if it is unknown, the time limit. It returns 0
// if both are unknown.
func Expected(j slurm.Job) time.Duration { return cmp.Or(Learned(j), j.TimeLimit) }

// ExpectedEnd returns a running job's expected end, which predict.Expect computes from the learned run time. It is
// never later than the end of the time limit. Without a learned run time, it is the end of the time limit, or the
// zero time if there is none. takes is the run time on the job's slice, divided by the run time on the requested
// profile.
func ExpectedEnd(j slurm.Job, takes float64, now time.Time) time.Time {
	seconds, high := learned(j)
	if seconds == 0 || j.Start.IsZero() {
		return j.End
	}
	total, _ := predict.Expect(float64(seconds)*takes, float64(high)*takes, now.Sub(j.Start).Seconds())
	end := j.Start.Add(time.Duration(min(total, maxRunTime)) * time.Second)
	if !j.End.IsZero() && j.End.Before(end) {
		return j.End
	}
	return end
}

// maxRunTime limits expected run times to 68 years, in seconds, so that a time.Duration can represent them.
const maxRunTime = math.MaxInt32
