package gpu

import (
	"strconv"
	"strings"
)

// ScrubKey is the registry key that stops NVIDIA's driver from overwriting freed GPU memory (nvrm_registry.h of the
// open kernel modules). By default, the driver overwrites freed memory before another process can use it.
const ScrubKey = "RMDisableScrubOnFree"

// Unscrubbed reports whether the driver's parameters disable this overwriting of freed memory. params is the content
// of /proc/driver/nvidia/params, where RegistryDwords and RegistryDwordsPerDevice have the form
// "KEY=NUMBER;KEY=NUMBER", including the quotation marks.
func Unscrubbed(params string) bool {
	for line := range strings.Lines(params) {
		name, value, _ := strings.Cut(line, ":")
		if !strings.HasPrefix(name, "RegistryDwords") {
			continue
		}
		for setting := range strings.SplitSeq(strings.Trim(strings.TrimSpace(value), `"`), ";") {
			key, number, _ := strings.Cut(setting, "=")
			if !strings.EqualFold(strings.TrimSpace(key), ScrubKey) {
				continue
			}
			if n, err := strconv.ParseUint(strings.TrimSpace(number), 0, 64); err != nil || n != 0 {
				return true
			}
		}
	}
	return false
}
