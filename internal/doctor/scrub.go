package doctor

import (
	"strconv"
	"strings"
)

// scrubKey is the registry key with which NVIDIA's driver does not overwrite freed GPU memory (nvrm_registry.h of the
// open kernel modules). By default, the driver overwrites memory before another process can use it.
const scrubKey = "RMDisableScrubOnFree"

// unscrubbed reports whether scrubbing is disabled by the driver's parameters. RegistryDwords and
// RegistryDwordsPerDevice in /proc/driver/nvidia/params have the form "KEY=NUMBER;KEY=NUMBER", in quotation marks.
func unscrubbed(params string) bool {
	for line := range strings.Lines(params) {
		name, value, _ := strings.Cut(line, ":")
		if !strings.HasPrefix(name, "RegistryDwords") {
			continue
		}
		for setting := range strings.SplitSeq(strings.Trim(strings.TrimSpace(value), `"`), ";") {
			key, number, _ := strings.Cut(setting, "=")
			if !strings.EqualFold(strings.TrimSpace(key), scrubKey) {
				continue
			}
			if n, err := strconv.ParseUint(strings.TrimSpace(number), 0, 64); err != nil || n != 0 {
				return true
			}
		}
	}
	return false
}

func scrubbing(f *Facts) []Finding {
	return findingIf(fault(
		"the driver's parameter "+scrubKey+" is set: jobs can read what earlier jobs left in GPU memory",
		"remove "+scrubKey+" from NVreg_RegistryDwords in /etc/modprobe.d, then reboot the node"), f.Driver.Unscrubbed)
}

// modifies returns the finding for NVreg_ModifyDeviceFiles=1. Without a devices cgroup, jobs of all users can open the
// files of a new slice before the agent restricts access. An open descriptor remains usable afterwards.
func modifies(f *Facts, text, next string) Finding {
	if !f.lacks(Slurmctld) && !f.Config.RelativeIndex() {
		return fault(
			text+"; ConstrainDevices is not yes in cgroup.conf, so any process can open them before that and keep "+
				"them open",
			next,
		)
	}
	return warning(text, next)
}
