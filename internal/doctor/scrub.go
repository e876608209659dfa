package doctor

import (
	"strconv"
	"strings"
)

// scrubKey is the registry key that stops NVIDIA's driver from overwriting freed GPU memory (nvrm_registry.h of the
// open kernel modules). By default, the driver overwrites freed memory before another process can use it.
const scrubKey = "RMDisableScrubOnFree"

// unscrubbed reports whether the driver's parameters disable this overwriting of freed memory. params is the content
// of /proc/driver/nvidia/params, where RegistryDwords and RegistryDwordsPerDevice have the form
// "KEY=NUMBER;KEY=NUMBER", including the quotation marks.
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
		"the driver's parameter "+scrubKey+" is set: jobs can read earlier jobs' data in GPU memory",
		"remove "+scrubKey+" from NVreg_RegistryDwords in /etc/modprobe.d, then reboot the node"), f.Driver.Unscrubbed)
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
