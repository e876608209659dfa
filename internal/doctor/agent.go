package doctor

import (
	"fmt"
	"io/fs"

	"caelum/internal/api"
)

func publishing(f *Facts) []Finding {
	switch {
	case f.Agent.PublishError != "":
		return []Finding{fault(
			"the agent cannot publish: "+f.Agent.PublishError,
			"see `journalctl -u caelumd`; the agent tries again by itself",
		)}
	case f.Agent.PublishedAt == 0:
		return []Finding{warning(
			"the agent has published nothing yet",
			"run `caelum doctor` again in a few seconds; then see `journalctl -u caelumd`",
		)}
	}
	return nil
}

func gpus(f *Facts) []Finding {
	var found []Finding
	for _, g := range f.Agent.GPUs {
		if g.Problem != "" {
			found = append(found, warning(
				fmt.Sprintf("GPU %d is not managed: %s", g.Index, g.Problem),
				"drain the node and do what the message says; the agent checks the GPU again every minute",
			))
		}
	}
	if len(found) == len(f.Agent.GPUs) {
		found = append(found, fault(
			"the agent manages no GPU: this node offers no slices",
			"see `nvidia-smi -L` and `journalctl -u caelumd`",
		))
	}
	for _, g := range f.Agent.GPUs {
		if g.Unlisted {
			found = append(
				found,
				warning(fmt.Sprintf("the driver does not list the processes on GPU %d, so idle slices are destroyed "+
					"and re-created for each job, which takes a few tenths of a second. The agent cannot find "+
					"processes that use another job's slice", g.Index),
					"see the error in `journalctl -u caelumd`; this warning ends when the driver lists processes "+
						"again"),
			)
		}
	}
	return found
}

func instances(f *Facts) []Finding {
	var found []Finding
	for _, g := range f.Agent.GPUs {
		for _, in := range g.Instances {
			name := fmt.Sprintf("%s at %d of GPU %d", in.Profile, in.Start, g.Index)
			switch in.State {
			case api.StateStuck:
				if in.Note != "" {
					found = append(found, warning(name+" is stuck: "+in.Note+"; its units are not offered",
						"end these processes; the agent checks again every 2 s"))
					continue
				}
				found = append(found, warning(
					name+" is stuck: the agent could not destroy it; its units are not offered",
					"find and end the process that uses it (`nvidia-smi`, `fuser /dev/nvidia*`); the agent tries "+
						"again every minute",
				))
			case api.StateForeign:
				found = append(found, warning(
					name+" is foreign: the agent's ledger does not contain it; its units are not offered",
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

// CapFile is a capability file of an instance that the agent has created.
type CapFile struct {
	Path    string
	Missing bool
	Mode    fs.FileMode
	Owner   uint32
	// Job is the job that holds the instance, or 0. User is the user who may open the file, which is the job's user or
	// root.
	Job, User uint32
}

func deviceFiles(f *Facts) []Finding {
	var found []Finding
	for _, c := range f.Files {
		whose, repair := "of a slice that no job holds", "run `systemctl restart caelumd`, which closes the file; "+
			"find out what changed it (if nvidia-modprobe resets modes, the driver's DeviceFileModify must be 0)"
		if c.Job != 0 {
			whose = fmt.Sprintf("of job %d (user %d)", c.Job, c.User)
			repair = fmt.Sprintf(
				"run `chown %d:root %s && chmod go= %s`, and find out what changed the file",
				c.User, c.Path, c.Path,
			)
		}
		switch {
		case c.Missing && c.Job != 0:
			found = append(found, fault(
				fmt.Sprintf("%s %s is missing: the job cannot use its slice", c.Path, whose),
				"find out what removed the file, and start the job again",
			))
		case c.Missing: // only root can open a missing file
		case c.Owner != c.User:
			found = append(found, fault(fmt.Sprintf("%s %s belongs to user %d", c.Path, whose, c.Owner), repair))
		case c.Mode.Perm()&0o077 != 0:
			found = append(found, fault(
				fmt.Sprintf("%s %s has mode %04o: other users can open it", c.Path, whose, c.Mode.Perm()),
				repair,
			))
		}
	}
	return found
}

// steady returns the instances that are equal in two replies of the agent, by instanceKey. The capability files are
// read between the two replies, so they belong to these instances. Instances in the states promised and foreign are
// left out, because the agent has not set the owners of their files.
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
