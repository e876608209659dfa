package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"caelum/internal/node/gpu"
)

// GeneralFile is the device file of a capability that does not belong to an instance.
type GeneralFile struct {
	gpu.Capability
	Missing bool
	// Unused is true if the program that needs the file is not installed. The driver has the capability on every node.
	Unused bool
	Mode   fs.FileMode // permission bits
	Owner  uint32
}

// capabilityUsers names the programs that need each capability.
var capabilityUsers = map[string]string{
	gpu.MIGConfig:  "the agent and `nvidia-smi mig` cannot change instances",
	gpu.MIGMonitor: "the agent cannot list the processes on instances",
	gpu.FabricMgmt: "on systems with NVSwitches, Fabric Manager does not start after a reboot, and CUDA fails on " +
		"full GPUs",
	gpu.IMEXMgmt: "on systems with multi-node NVLink, the IMEX daemon does not start after a reboot",
}

func readGeneral(proc, dev string, units []string) (all []GeneralFile) {
	caps := gpu.Caps{Proc: proc, Dev: dev}
	for _, c := range caps.General() {
		f := GeneralFile{Capability: c, Missing: true, Unused: caps.Unused(c.Name, units)}
		if st, err := os.Stat(c.Path); err == nil {
			f.Missing, f.Mode, f.Owner = false, st.Mode().Perm(), st.Sys().(*syscall.Stat_t).Uid
		}
		all = append(all, f)
	}
	return all
}

// capabilityFiles checks the files of mig/config, mig/monitor, fabric-mgmt and fabric-imex-mgmt. If nvidia-modprobe
// manages a file, it creates the file when a program needs it.
func capabilityFiles(f *Facts) (found []Finding) {
	for _, c := range f.Driver.General {
		switch {
		case c.Missing && !c.Managed && !c.Unused:
			found = append(found, fault(
				fmt.Sprintf("%s (%s) does not exist: %s", c.Path, c.Name, capabilityUsers[c.Name]),
				"restart caelumd, which creates the file, and then the program that needs it",
			))
		case !c.Missing && c.Name == gpu.MIGMonitor && c.Mode&0o007 != 0:
			found = append(found, warning(
				fmt.Sprintf("%s (%s) has mode %04o: every user can read the process ids and the memory use of other "+
					"users' jobs", c.Path, c.Name, c.Mode),
				fmt.Sprintf("run `chmod 0400 %s`; for monitoring programs without root, give the file to their group "+
					"(mode 0440)", c.Path),
			))
		}
	}
	return found
}
