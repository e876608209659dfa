package doctor

import (
	"fmt"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// moves checks the settings for moves of running jobs on this host.
func moves(f *Facts) (found []Finding) {
	if f.MovesPerDay == 0 {
		return nil
	}
	if f.Config.HidesJobs() {
		found = append(found, warning(
			fmt.Sprintf("moves_per_day is %d, but the watcher moves no jobs: users must not see other users' jobs "+
				"(PrivateData=jobs), so the agents do not publish which jobs hold their slices", f.MovesPerDay),
			"set moves_per_day: 0 in caelum.yaml, or remove jobs from PrivateData in slurm.conf"+reconfigure,
		))
	}
	for _, name := range f.MovePartitions {
		if !slices.ContainsFunc(f.Partitions, func(p slurm.Partition) bool { return p.Name == name }) {
			found = append(found, warning(
				fmt.Sprintf("move_partitions names %q, but slurmctld has no partition with this name", name),
				"correct move_partitions in caelum.yaml",
			))
		}
	}
	return found
}

// preemption checks Slurm's preemption modes and the preempt key, without which jobs are stopped only for slices of the
// same profile. A suspended job keeps its slice, and GANG suspends jobs in turn. The preemption modes of QOSs are not
// checked, because slurmctld does not show them.
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
	if !f.Preempt && len(found) == 0 {
		found = append(found, note("Slurm preempts jobs, but only for slices of the same profile: preempt is false in "+
			"this host's caelum.yaml; remove the key on slurmctld's host, so that the watcher stops jobs for others"))
	}
	return found
}
