package oracle

import (
	"slices"
	"time"
)

// Delays returns slurmctld's delays in ascending order, and the longest wait from submission to start for each profile.
// A delay begins with the last write that raised the offer of a batch job's profile on its node, or with the job's
// submission if that was later, and ends when the job starts. Each delay is an upper bound, because it includes any
// time during which the job was held or the slices were assigned to other jobs.
func Delays(run Run) (starts []time.Duration, longest map[string]time.Duration) {
	longest = map[string]time.Duration{}
	writes := map[string][]Write{}
	for _, n := range run.Nodes {
		writes[n.Name] = n.Writes
	}
	for _, s := range run.Starts {
		submitted, ok := run.Submits[s.Job]
		if !ok || s.Requeued || len(s.Profiles) != 1 {
			continue
		}
		for profile := range s.Profiles {
			longest[profile] = max(longest[profile], time.Duration(s.At-submitted))
			offered, before := int64(0), 0
			for _, w := range writes[s.Node] {
				if w.At > s.At {
					break
				}
				if w.Total[profile] > before {
					offered = w.Done
				}
				before = w.Total[profile]
			}
			starts = append(starts, time.Duration(max(0, s.At-max(offered, submitted))))
		}
	}
	slices.Sort(starts)
	return starts, longest
}
