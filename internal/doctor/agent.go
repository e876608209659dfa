package doctor

import (
	"fmt"
	"io/fs"

	"caelum/internal/api"
)

func publishing(f *Facts) []Finding {
	switch {
	case f.Agent.PublishError != "":
		return []Finding{
			fault(
				"the agent cannot publish: "+f.Agent.PublishError,
				"see `journalctl -u caelumd`; the agent tries again by itself",
			),
		}
	case f.Agent.PublishedAt == 0:
		return []Finding{
			concern(
				"the agent has published nothing yet",
				"ask again in some seconds; then see `journalctl -u caelumd`",
			),
		}
	}
	return nil
}

func gpus(f *Facts) []Finding {
	var found []Finding
	for _, g := range f.Agent.GPUs {
		if g.Problem != "" {
			found = append(
				found,
				concern(
					fmt.Sprintf("GPU %d is not managed: %s", g.Index, g.Problem),
					"with the node drained, do so; the agent looks again every minute",
				),
			)
		}
	}
	if len(found) == len(f.Agent.GPUs) {
		found = append(
			found,
			fault(
				"the agent manages no GPU: this node has no slice to give",
				"see `nvidia-smi -L` and `journalctl -u caelumd`",
			),
		)
	}
	for _, g := range f.Agent.GPUs {
		if g.Unlisted {
			found = append(
				found,
				concern(fmt.Sprintf("the driver does not list the processes on GPU %d: idle slices are destroyed and "+
					"made again for each job, which takes some tenths of a second, and strangers on slices are not found", g.Index),
					"see the error in `journalctl -u caelumd`; the check ends when the driver lists processes again"),
			)
		}
	}
	return found
}

func instances(f *Facts) []Finding {
	var found []Finding
	for _, g := range f.Agent.GPUs {
		for _, in := range g.Instances {
			what := fmt.Sprintf("%s at %d of GPU %d", in.Profile, in.Start, g.Index)
			switch in.State {
			case "stuck":
				if in.Note != "" {
					found = append(found, concern(what+" is stuck: "+in.Note+"; its room is not offered",
						"end these processes; the agent looks again every 2 s"))
					continue
				}
				found = append(found, concern(
					what+" is stuck: it could not be destroyed, and its room is not offered",
					"find and end what holds it (`nvidia-smi`, `fuser /dev/nvidia*`); the agent tries again every minute",
				))
			case "foreign":
				found = append(
					found,
					concern(
						what+" is foreign: the agent's ledger does not have it, and its room is not offered",
						fmt.Sprintf(
							"if the ledger was lost, `caelum adopt "+in.UUID+"`; if it is not wanted, `nvidia-smi mig -dci -gi %d -i %d`, then `nvidia-smi mig -dgi -gi %d -i %d`",
							in.GI,
							g.Index,
							in.GI,
							g.Index,
						),
					),
				)
			}
		}
	}
	return found
}

// CapFile is a capability file of an instance that the agent made.
type CapFile struct {
	Path    string
	Missing bool
	Mode    fs.FileMode
	Owner   uint32
	// Job holds the instance, and User is who may open it; root (0) where no job does.
	Job, User uint32
}

func deviceFiles(f *Facts) []Finding {
	var found []Finding
	for _, c := range f.Files {
		whose, repair := "of a slice that no job holds", "`systemctl restart caelumd` closes it; find out who changed it (DeviceFileModify of the driver must be 0 where nvidia-modprobe resets modes)"
		if c.Job != 0 {
			whose = fmt.Sprintf("of job %d, whose user is %d,", c.Job, c.User)
			repair = fmt.Sprintf(
				"`chown %d:root %s && chmod 400 %s`, and find out who changed it",
				c.User,
				c.Path,
				c.Path,
			)
		}
		switch {
		case c.Missing && c.Job != 0:
			found = append(
				found,
				fault(
					fmt.Sprintf("%s %s is not there: the job cannot use its slice", c.Path, whose),
					"find out who removed it; the job must be started again",
				),
			)
		case c.Missing: // nobody can open it
		case c.Owner != c.User:
			found = append(found, fault(fmt.Sprintf("%s %s belongs to user %d", c.Path, whose, c.Owner), repair))
		case c.Mode.Perm()&0o077 != 0:
			found = append(
				found,
				fault(fmt.Sprintf("%s %s has mode %04o: others can open it", c.Path, whose, c.Mode.Perm()), repair),
			)
		}
	}
	return found
}

// steady are the instances that stood alike in two looks at the agent: what was read of their files in between is of
// that state. Those that are promised or foreign are left out: the agent has not set their files.
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
				(in.State == "leased" || in.State == "idle" || in.State == "stuck") {
				kept[k] = in
			}
		}
	}
	return kept
}

func instanceKey(gpu string, gi int) string { return fmt.Sprintf("%s/%d", gpu, gi) }
