package plan

import (
	"fmt"
	"math"
	"time"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
)

// maxMisses limits the number of jobs for which Misses searches for the earliest free slices.
const maxMisses = 64

// Misses returns the waiting jobs that are not expected to meet their deadlines, each with the reason as a phrase that
// follows "because". made is the plan of the view. Misses considers at most maxMisses jobs with deadlines.
func (v *View) Misses(made offer.Plan) map[uint32]string {
	all, n := map[uint32]string{}, 0
	for k, j := range v.Jobs {
		if _, known := all[j.ID]; known || j.Deadline == 0 {
			continue
		}
		if n++; n > maxMisses {
			break
		}
		if why := v.misses(made, k); why != "" {
			all[j.ID] = why
		}
	}
	return all
}

// misses returns the reason why the k-th job is not expected to meet its deadline, or an empty string. The reason is
// independent of the waiting jobs: even if the job were first in the queue, it would miss its deadline.
func (v *View) misses(made offer.Plan, k int) string {
	j := v.Jobs[k]
	latest := clock(int64(j.LatestStart))
	switch {
	case j.Deadline == 0:
		return ""
	case v.Now > j.LatestStart:
		return fmt.Sprintf("slurmctld ends it with the state DEADLINE if it has not started by %s, "+
			"its deadline minus its time limit (or --time-min)", latest)
	case j.MissesAlways(v.Now):
		left := time.Duration(j.Deadline-v.Now) * time.Second
		return fmt.Sprintf("it is expected to run for more than the %v until the deadline, even on the fastest "+
			"profile that it may get", left)
	case made.Spots[k] != nil || j.Het != 0:
		return ""
	}
	var at float64
	if r := made.Reserved; r != nil && r.Job == k {
		at = r.At
	} else if spots, why := v.Find(j, nil); spots != nil {
		return ""
	} else if why.Verdict != place.Hold {
		at = v.Reserve(j, why).At
	} else {
		return ""
	}
	if math.IsInf(at, 1) || at <= j.LatestStart {
		return "" // if the expected end is unknown, the slices may become free in time
	}
	return fmt.Sprintf("its slices are not expected to be free before %s, and it must start by %s, its deadline minus "+
		"its time limit (or --time-min)", clock(v.unix(at)), latest)
}

// setDeadline sets the fields of the explanation of the k-th job that describe its deadline.
func (e *Explanation) setDeadline(v *View, made offer.Plan, k int) {
	j := v.Jobs[k]
	if j.Deadline == 0 {
		return
	}
	e.Deadline, e.LatestStart = int64(j.Deadline), int64(j.LatestStart)
	e.Misses = v.misses(made, k)
}
