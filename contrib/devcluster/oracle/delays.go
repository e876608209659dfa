package oracle

import (
	"slices"
	"time"
)

// Delays are how long batch jobs waited that had nothing to wait for but slurmctld: from the write that last put their
// profile on offer where they started, or from their submission if that came later, to their start. Jobs that found it
// on offer but taken by others, or were held, waited for more: so these are at most too long. Longest is the longest
// wait from submission to start of each profile.
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
