package doctor

import (
	"fmt"
	"strings"
)

// preemption checks Slurm's preemption modes. A suspended job keeps its slice, and GANG suspends jobs in turn. The
// preemption modes of QOSs are not checked, because slurmctld does not show them.
func preemption(f *Facts) (found []Finding) {
	if !f.Config.Preempts() {
		return nil
	}
	suspends := func(mode string) bool {
		mode = strings.ToUpper(mode)
		return strings.Contains(mode, "SUSPEND") || strings.Contains(mode, "GANG")
	}
	if mode := f.Config.Values["PreemptMode"]; suspends(mode) {
		found = append(found, warning(
			fmt.Sprintf("PreemptMode=%s suspends preempted jobs, but a suspended job keeps its slice, so the "+
				"preemptor cannot use it, and the watcher does not stop jobs to make room for other profiles", mode),
			"set PreemptMode=REQUEUE or PreemptMode=CANCEL in slurm.conf"+reconfigure,
		))
		return found
	}
	for _, p := range f.Partitions {
		if suspends(p.PreemptMode) {
			found = append(found, warning(
				fmt.Sprintf("partition %s has PreemptMode=%s, but a suspended job keeps its slice: the watcher does "+
					"not stop this partition's jobs to make room for other profiles", p.Name, p.PreemptMode),
				"set PreemptMode=REQUEUE, CANCEL or OFF for the partition in slurm.conf"+reconfigure,
			))
		}
	}
	return found
}
