package doctor

import (
	"fmt"

	"caelum/internal/slurm"
)

// supported checks slurmctld's release and parameters that exist only in some releases.
func supported(f *Facts) []Finding {
	r, err := f.Config.Release()
	if err != nil {
		return []Finding{warning(
			fmt.Sprintf("slurmctld's release cannot be read (%v), so it is unknown whether Caelum supports it",
				err),
			"compare the output of `slurmctld -V` with docs/slurm-releases.md",
		)}
	}
	var found []Finding
	switch {
	case r.Compare(slurm.OldestRelease) < 0:
		found = append(found, fault(
			fmt.Sprintf("slurmctld is Slurm %v, but Caelum needs %v or later", r, slurm.OldestRelease),
			fmt.Sprintf("upgrade Slurm to %v or later", slurm.OldestRelease),
		))
	case r.Compare(slurm.NewestRelease) > 0:
		found = append(found, warning(
			fmt.Sprintf("slurmctld is Slurm %v, but this version of Caelum supports only releases up to %v",
				r, slurm.NewestRelease),
			"use a later version of Caelum, or test this Slurm release with the procedure in docs/slurm-releases.md",
		))
	}
	if r.ReadsExtraAsJSON() && f.Config.Has("SchedulerParameters", "extra_constraints") {
		found = append(found, fault(
			"SchedulerParameters includes extra_constraints, so slurmctld accepts only JSON in a node's Extra: "+
				"slurmctld rejects everything that the agents publish, and no slice is offered",
			"remove extra_constraints from SchedulerParameters in slurm.conf"+reconfigure,
		))
	}
	if f.Config.Values["NamespaceType"] == "namespace/linux" {
		found = append(found, warning(
			"NamespaceType is namespace/linux, but Caelum has not been tested in this plugin's namespaces",
			"run a CUDA program in a job to check that the job can use its slice",
		))
	}
	return found
}
