package doctor

import (
	"strings"

	"caelum/internal/config"
	"caelum/internal/node/gpu"
	"caelum/internal/node/jobcgroup"
)

// readFractions sets f.UnusedTypes and f.NoFractions.
func (f *Facts) readFractions(cfg config.Config) {
	hw, err := gpu.OpenNVML(cfg.NVMLLibrary, gpu.Caps{Dev: cfg.DeviceDir, Proc: "/proc"})
	if err != nil {
		f.NoFractions = err.Error()
		return
	}
	defer hw.Close()
	if gpus, err := hw.GPUs(); err == nil { // otherwise, the agent does not start
		f.UnusedTypes = gpu.UnusedTypes(cfg.Fractions, gpus)
	}
	f.NoFractions = f.noFractions(cfg, hw)
}

// noFractions returns the reason why the memory of jobs cannot be limited, with a remedy after a semicolon, or an empty
// string if it can.
func (f *Facts) noFractions(cfg config.Config, hw *gpu.NVML) string {
	limits := gpu.Limiter(hw)
	if cfg.FractionLimits == config.LimitsSoftMig {
		limits = gpu.SoftMig{}
	}
	_, err := gpu.OpenJobGroups(limits, jobcgroup.Options{
		Mountpoint: f.Config.Values["CgroupMountpoint"], Slice: f.Config.Values["CgroupSlice"], Node: cfg.Node,
	}, "/proc")
	if err != nil {
		return err.Error()
	}
	return ""
}

// fractions checks what fractions of GPUs without MIG need: a driver that limits the memory of cgroups, or SoftMig; a
// cgroup for each job; and a devices cgroup, because only jobs whose memory is limited may use such a GPU. Without
// limits, the agent manages the GPUs whole; without the cgroups, it refuses the jobs. It also reports the types in the
// key that divide no GPU.
func fractions(f *Facts) (found []Finding) {
	if !f.Fractions {
		return nil
	}
	for _, unused := range f.UnusedTypes { // not a warning, because nodes with different GPUs may share caelum.yaml
		found = append(found, note(unused))
	}
	others := len(found)
	add := func(why, remedy string) {
		found = append(found, fault("the `fractions` key is set, but jobs get no fractions on this node: "+why, remedy))
	}
	if why, remedy, ok := strings.Cut(f.NoFractions, "; "); ok {
		add(why, remedy)
	} else if why != "" {
		add(why, "remove `fractions` from caelum.yaml if this node cannot have them")
	}
	const restart = ", and restart slurmctld, every slurmd and caelumd"
	if !f.Config.Has("ProctrackType", "proctrack/cgroup") {
		add("ProctrackType is not proctrack/cgroup, so jobs have no cgroups", "set ProctrackType=proctrack/cgroup in "+
			"slurm.conf"+restart)
	}
	if !f.Config.RelativeIndex() {
		add("Slurm does not confine tasks to a devices cgroup", "set TaskPlugin=task/cgroup in slurm.conf and "+
			"ConstrainDevices=yes in cgroup.conf"+restart)
	}
	if !f.SoftMig {
		return found
	}
	if f.Config.JobCgroup(1, "sluid") != "job_1" {
		add("SoftMig finds the processes of a job only in cgroups that are called job_ID", "set CgroupJobIdPaths=yes "+
			"in cgroup.conf"+restart)
	}
	if len(found) == others {
		found = append(found, warning("the memory limits of fractions are cooperative: SoftMig limits only programs "+
			"that load its library, and the agent ends jobs that evade it after two samples", "if the users do not "+
			"trust each other, upgrade to the NVIDIA driver R615, and remove `fraction_limits` from caelum.yaml"))
	}
	return found
}
