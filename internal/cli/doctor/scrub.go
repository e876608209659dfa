package doctor

import "caelum/internal/node/gpu"

func scrubbing(f *Facts) []Finding {
	return findingIf(fault(
		"the driver's parameter "+gpu.ScrubKey+" is set: jobs can read earlier jobs' data in GPU memory",
		"remove "+gpu.ScrubKey+" from NVreg_RegistryDwords in /etc/modprobe.d, then reboot the node",
	), f.Driver.Unscrubbed)
}

// modifies returns the finding for NVreg_ModifyDeviceFiles=1. Without a devices cgroup, all users' jobs can open a new
// slice's files before the agent restricts access to them. A descriptor that was opened before then remains usable.
func modifies(f *Facts, text, next string) Finding {
	if !f.lacks(Slurmctld) && !f.Config.RelativeIndex() {
		return fault(
			text+"; ConstrainDevices is not yes in cgroup.conf, so any process can open the files during these "+
				"milliseconds and keep them open",
			next,
		)
	}
	return warning(text, next)
}
