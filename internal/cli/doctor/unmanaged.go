package doctor

import (
	"fmt"
	"io/fs"
	"strings"

	"caelum/internal/node/gpu"
)

// UnmanagedGPU describes the device file of a GPU that the agent does not manage.
type UnmanagedGPU struct {
	Index int
	Path  string
	Mode  fs.FileMode
	Owner uint32
}

// unmanaged returns the indices of the GPUs that the agent does not manage although they work.
func (f *Facts) unmanaged() map[int]bool {
	indices := map[int]bool{}
	for _, g := range f.Agent.GPUs {
		if g.Problem != "" && !gpu.Broken(g.Problem) {
			indices[g.Index] = true
		}
	}
	return indices
}

// wholeGPUs reports the GPUs without slices that any process is permitted to open. The agent does not restrict access
// to their device files, because a site can let Slurm allocate such a GPU (gres.conf), and because the driver's daemons
// and monitoring programs also open these files.
func wholeGPUs(f *Facts) []Finding {
	var found []Finding
	for _, g := range f.Unmanaged {
		if g.Mode.Perm()&0o066 == 0 {
			continue
		}
		denied := "jobs are not confined by a devices cgroup here (ConstrainDevices=yes in cgroup.conf and " +
			"TaskPlugin=task/cgroup are not set), and"
		if f.Config.RelativeIndex() {
			denied = "unless gres.conf names the file,"
		}
		found = append(found, warning(
			fmt.Sprintf(
				"GPU %d is not managed, and %s has mode %04o: %s any job on this node can use the whole GPU without "+
					"requesting it from Slurm",
				g.Index, g.Path, g.Mode.Perm(), denied,
			),
			strings.Join([]string{"choose one of these remedies: enable MIG mode, so that Caelum manages the GPU",
				fmt.Sprintf(
					"or put `Name=gpu Type=whole File=%s Flags=nvidia_gpu_env` into gres.conf and set "+
						"ConstrainDevices=yes in cgroup.conf, so that Slurm allocates the GPU to one job and denies "+
						"access to all others",
					g.Path,
				),
				fmt.Sprintf(
					"or, if no job may use the GPU, put `z %s 0600 root root -` into /etc/tmpfiles.d/nvidia.conf "+
						"and set NVreg_ModifyDeviceFiles=0",
					g.Path,
				)}, "; "),
		))
	}
	return found
}
