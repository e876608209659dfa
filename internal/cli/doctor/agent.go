package doctor

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
)

const agentOK = "the agent answers, and its offers are in slurmctld"

func publishing(f *Facts) []Finding {
	switch {
	case f.Agent.PublishError != "":
		return []Finding{fault(
			"the agent cannot publish: "+f.Agent.PublishError,
			"find and remove the cause (see `journalctl -u caelumd`); the agent will then publish without a restart",
		)}
	case f.Agent.PublishedAt == 0:
		return []Finding{warning(
			"the agent has published nothing yet: this node offers no slices",
			"run `caelum doctor` again in a few seconds; if the warning remains, find the cause with "+
				"`journalctl -u caelumd`",
		)}
	case f.lacks(Slurmctld):
		return []Finding{{Severity: OK, Text: "the agent answers. Whether its offers are in slurmctld is unknown"}}
	}
	return nil
}

var noGPU = fault(
	"the agent manages no GPU: this node offers no slices",
	"find the cause with `nvidia-smi -L` and `journalctl -u caelumd`, and fix it",
)

func gpus(f *Facts) []Finding {
	var found []Finding
	for _, g := range f.Agent.GPUs {
		if g.Problem != "" {
			found = append(found, warning(
				fmt.Sprintf("GPU %d is not managed: %s. Jobs get no slices on this GPU%s", g.Index, g.Problem,
					jobsOn(f, g.Index)),
				gpuRemedy(f.Agent.Node, g),
			))
		}
	}
	if len(found) == len(f.Agent.GPUs) {
		found = append(found, noGPU)
	}
	for _, g := range f.Agent.GPUs {
		if g.Unlisted {
			found = append(
				found,
				warning(fmt.Sprintf("the driver does not list the processes on GPU %d, so the agent destroys and "+
					"re-creates an idle slice for each job, which takes a few tenths of a second. The agent cannot "+
					"find processes that use another job's slice", g.Index),
					"find the driver's error in `journalctl -u caelumd`, and remove its cause"),
			)
		}
	}
	return found
}

// gpuRemedy returns the commands that make a GPU usable that the agent does not manage.
func gpuRemedy(node string, g api.GPU) string {
	if !gpu.Broken(g.Problem) {
		return "drain the node and follow the instructions in this message; the agent rechecks the GPU every minute"
	}
	text := fmt.Sprintf("run `scontrol update nodename=%s state=drain reason=\"GPU %d\"`, wait until the node's jobs "+
		"have ended (cancel those that hang on this GPU with scancel), reboot the node, and resume it; ", node, g.Index)
	if strings.HasPrefix(g.Problem, gpu.WithdrawnPrefix) {
		text += fmt.Sprintf("instead of the reboot, you can stop caelumd, run `nvidia-smi --gpu-reset -i %d`, start "+
			"caelumd, and run `caelum readmit %[1]d`; ", g.Index)
	}
	return text + "if the error returns, power the node off and on, or have the GPU replaced. As long as the node is " +
		"not drained, jobs use its other GPUs"
}

// jobsOn returns a sentence about the jobs that hold slices of a GPU, or "" if there are none.
func jobsOn(f *Facts, index int) string {
	var jobs []string
	for _, l := range f.Agent.Leases {
		if slices.ContainsFunc(l.Slices, func(s api.Slice) bool { return s.GPU == index }) {
			jobs = append(jobs, fmt.Sprint(l.Job))
		}
	}
	if len(jobs) == 0 {
		return ""
	}
	return ". These jobs hold slices of this GPU, are not ended by Caelum, and will probably fail or hang: " +
		strings.Join(jobs, ", ")
}

func instances(f *Facts) []Finding {
	var found []Finding
	for _, g := range f.Agent.GPUs {
		for _, in := range g.Instances {
			name := fmt.Sprintf("%s at %d on GPU %d", in.Profile, in.Start, g.Index)
			if in.Short() && in.State != api.StateForeign {
				found = append(found, warning(fmt.Sprintf("%s: the slice has %d of %d SMs", name, in.SMs, in.MaxSMs),
					"wait until the slice is idle; the agent then re-creates its compute instance with all SMs"))
			}
			switch in.State {
			case api.StateStuck:
				if in.Note != "" {
					found = append(found, warning(name+" is stuck: "+in.Note+"; its units are not offered",
						"kill these processes; the agent rechecks the instance every 2 s"))
					continue
				}
				found = append(found, warning(
					name+" is stuck: the agent could not destroy it; its units are not offered",
					"find the process that is using the instance (`nvidia-smi`, `fuser /dev/nvidia*`), and kill it; "+
						"the agent retries every minute",
				))
			case api.StateForeign:
				found = append(found, warning(
					name+" is foreign: it is not in the agent's ledger; its units are not offered",
					fmt.Sprintf(
						"if the ledger was lost, run `caelum adopt %s`; to remove the instance, run "+
							"`nvidia-smi mig -dci -gi %d -i %d` and then `nvidia-smi mig -dgi -gi %d -i %d`",
						in.UUID, in.GI, g.Index, in.GI, g.Index,
					),
				))
			}
		}
	}
	return found
}

// ledger reports leased instances that another program has destroyed.
func ledger(f *Facts) []Finding {
	var found []Finding
	for _, in := range f.Unlisted {
		found = append(found, fault(
			fmt.Sprintf("job %d has lost its slice %s (%s at %d): the driver no longer lists this instance",
				in.Job, in.UUID, in.Profile, in.Start),
			"find the program that destroyed the instance (for example `nvidia-smi mig` or a GPU reset), and resubmit "+
				"the job",
		))
	}
	return found
}

// slotFiles reports slots whose device files are missing. slurmd does not start if gres.conf names a missing file.
func slotFiles(f *Facts) []Finding {
	return findingIf(fault(
		"the slots' device files do not exist: "+strings.Join(f.NoSlots, ", ")+"; slurmd cannot start without them",
		"run `systemctl restart caelumd`, which creates the files, and find the program that removed them",
	), len(f.NoSlots) > 0)
}

// CapFile is a capability file of an instance that the agent has created.
type CapFile struct {
	Path    string
	Missing bool
	Mode    fs.FileMode
	Owner   uint32
	// Job is the job that holds the instance, or 0 if there is none. User is the only user who may open the file: the
	// job's user or, without a job, root.
	Job, User uint32
}

func deviceFiles(f *Facts) []Finding {
	var found []Finding
	for _, c := range f.Files {
		whose, repair := "of a slice that no job holds", "run `systemctl restart caelumd`, which restricts the file "+
			"to root; find the program that changed it (nvidia-modprobe does so only if the driver's "+
			"DeviceFileModify is not 0)"
		if c.Job != 0 {
			whose = fmt.Sprintf("of job %d (user %d)", c.Job, c.User)
			repair = fmt.Sprintf(
				"run `chown %d:root %s && chmod go= %s`, and find the program that changed the file",
				c.User, c.Path, c.Path,
			)
		}
		switch {
		case c.Missing && c.Job != 0:
			found = append(found, fault(
				fmt.Sprintf("%s %s is missing: the job cannot use its slice", c.Path, whose),
				"find the program that removed the file, and resubmit the job",
			))
		case c.Missing: // only root can open a missing file
		case c.Owner != c.User:
			found = append(found, fault(
				fmt.Sprintf("%s %s belongs to user %d: the wrong user has access to the slice", c.Path, whose, c.Owner),
				repair,
			))
		case c.Mode.Perm()&0o077 != 0:
			found = append(found, fault(
				fmt.Sprintf("%s %s has mode %04o: other users can open the slice", c.Path, whose, c.Mode.Perm()),
				repair,
			))
		}
	}
	return found
}

// steady returns the instances that are identical in two replies from the agent, by instanceKey. Because Read reads the
// capability files between the two replies, the owners and modes of the files belong to the returned instances. Only
// leased, idle and stuck instances are returned, because the agent has not set the owners of other instances' files.
func steady(before, after api.Status) map[string]api.Instance {
	states := map[string]api.Instance{}
	for _, g := range before.GPUs {
		for _, in := range g.Instances {
			states[instanceKey(g.UUID, in.GI)] = in
		}
	}
	kept := map[string]api.Instance{}
	for _, g := range after.GPUs {
		for _, in := range g.Instances {
			k := instanceKey(g.UUID, in.GI)
			if was, ok := states[k]; ok && was == in &&
				(in.State == api.StateLeased || in.State == api.StateIdle || in.State == api.StateStuck) {
				kept[k] = in
			}
		}
	}
	return kept
}

func instanceKey(gpu string, gi int) string { return fmt.Sprintf("%s/%d", gpu, gi) }
