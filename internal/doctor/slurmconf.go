package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const reconfigure = ", then `scontrol reconfigure`"

func prologFlags(f *Facts) []Finding {
	if f.Config.Has("PrologFlags", "RunInJob") {
		return []Finding{
			fault(
				"PrologFlags in slurm.conf has RunInJob, under which Slurm runs no SPANK prolog: no job would get its slice, and nothing is published",
				"remove it, restart slurmctld and every slurmd, then caelumd",
			),
		}
	}
	return one(
		fault(
			"PrologFlags in slurm.conf is without Alloc: a job on several nodes gets its slices only on nodes that a step reaches",
			"add Alloc to PrologFlags and restart slurmctld and every slurmd",
		),
		!f.Config.Has("PrologFlags", "Alloc"),
	)
}

// defaultWait is how long a prolog waits for the agent without wait= in plugstack.conf, seconds.
const defaultWait = 60

func batchStart(f *Facts) []Finding {
	wait := defaultWait
	if n, err := strconv.Atoi(f.Plugin.Args["wait"]); err == nil {
		wait = n
	}
	text := f.Config.Values["BatchStartTimeout"] // "10 sec"
	number, _, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(number)
	return one(
		fault(
			fmt.Sprintf(
				"BatchStartTimeout is %q, and a prolog may wait %d s for an agent that restarts: slurmctld would take the job's start for failed",
				text,
				wait,
			),
			fmt.Sprintf("set BatchStartTimeout=%d in slurm.conf", 2*wait)+reconfigure,
		),
		err != nil || n <= wait,
	)
}

func selectType(f *Facts) []Finding {
	return one(fault(
		"SelectType=select/linear gives out whole nodes: two jobs never share this node's GPUs",
		"set SelectType=select/cons_tres in slurm.conf and restart slurmctld and every slurmd",
	), f.Config.Values["SelectType"] == "select/linear")
}

func backfill(f *Facts) []Finding {
	return one(
		concern(
			"SchedulerParameters is without bf_continue: each time an agent publishes, backfill gives up and starts over",
			"add bf_continue to SchedulerParameters in slurm.conf"+reconfigure,
		),
		f.Config.Values["SchedulerType"] == "sched/backfill" && !f.Config.Has("SchedulerParameters", "bf_continue"),
	)
}

// hetPriority: while the components of a het job have different priorities, backfill reserves nodes for the first of
// them and starts the jobs between on what is left (22.05.8: four idle GPUs, one job at a time). Under priority/basic a
// user brings that about by releasing the components one after the other.
func hetPriority(f *Facts) []Finding {
	return one(
		concern(
			"SchedulerParameters does not include bf_hetjob_prio=min: backfill can keep nodes idle for a heterogeneous job "+
				"whose components have different priorities",
			"add bf_hetjob_prio=min to SchedulerParameters in slurm.conf"+reconfigure,
		),
		f.Config.Values["SchedulerType"] == "sched/backfill" &&
			!f.Config.Has("SchedulerParameters", "bf_hetjob_prio=min"),
	)
}

func gresTypes(f *Facts) []Finding {
	var found []Finding
	for _, name := range []string{"gpu", "mig"} {
		if !f.Config.Has("GresTypes", name) {
			found = append(
				found,
				fault(
					"GresTypes in slurm.conf is without "+name,
					"set GresTypes=gpu,mig and restart slurmctld and every slurmd",
				),
			)
		}
	}
	return found
}

const slurmdbd = "accounting_storage/slurmdbd"

// Without slurmdbd there is nothing to account to, and slurmctld refuses GRES in AccountingStorageTRES (22.05.8).
func accounting(f *Facts) []Finding {
	if f.Config.Values["AccountingStorageType"] != slurmdbd {
		return []Finding{note("there is no slurmdbd: sacct shows no slices, and no limit can name them")}
	}
	return one(
		concern(
			"AccountingStorageTRES is without gres/mig: sacct does not show slices, and no limit can name them",
			"put the AccountingStorageTRES of `caelum slurm-config` into slurm.conf and restart slurmctld",
		),
		!f.Config.Has("AccountingStorageTRES", "gres/mig"),
	)
}

// maxSkew is far from munge's own limit (credentials live 300 s) and far above what a busy slurmctld adds.
const maxSkew = 30 * time.Second

// A skew beyond munge's limit is not seen here: slurmctld then refuses to answer at all.
func clock(f *Facts) []Finding {
	at := f.Config.AsOf
	if at.IsZero() {
		return []Finding{
			concern(
				"scontrol does not say when slurmctld answered, so its clock is not compared with this host's",
				"compare `date` on both hosts",
			),
		}
	}
	var skew time.Duration
	switch {
	case at.Before(f.Asked):
		skew = f.Asked.Sub(at)
	case at.After(f.Answered):
		skew = at.Sub(f.Answered)
	}
	return one(
		concern(
			fmt.Sprintf(
				"slurmctld's clock and this host's are %s apart; from 300 s on munge refuses, and with it every prolog's question and every publication fails",
				skew.Round(time.Second),
			),
			"see `timedatectl` on both hosts",
		),
		skew > maxSkew,
	)
}

// The files' owner keeps users apart. Two jobs of one user are kept apart by the plugin, where Slurm has a devices
// cgroup.
func isolation(f *Facts) []Finding {
	const own = "other users cannot open a job's slice, but a user's own other jobs on this node can: "
	const trust = "nothing, where users may trust their own jobs; else "
	switch {
	case !f.Config.Has("TaskPlugin", "task/cgroup") && !f.Config.Has("TaskPlugin", "cgroup"):
		return []Finding{
			concern(
				own+"no devices cgroup confines a task (TaskPlugin is without task/cgroup)",
				trust+"TaskPlugin=task/cgroup, and ConstrainDevices=yes in cgroup.conf",
			),
		}
	case !f.Config.RelativeIndex():
		return []Finding{
			concern(
				own+"no devices cgroup confines a task (ConstrainDevices is not yes)",
				trust+"ConstrainDevices=yes in cgroup.conf",
			),
		}
	case f.Confinement.Cgroup == 0:
		return []Finding{
			concern(
				own+"this host has no cgroups for devices where Slurm looks for them",
				trust+"look at CgroupMountpoint in cgroup.conf",
			),
		}
	case f.Confinement.Cgroup == 1 || f.Confinement.Program:
		return nil
	case f.Confinement.Problem != "":
		return []Finding{concern(f.Confinement.Problem, "run `caelum doctor` as root")}
	case f.Confinement.Tasks:
		return []Finding{concern(
			own+"tasks run, and no BPF program of the plugin's is attached above them",
			trust+"slurmd's log has the reason (`caelum: task: ... BPF`); a kernel that is too old needs a newer one (6.18 is known to do) or cgroup v1",
		)}
	}
	return []Finding{
		note(
			"not known yet whether a user's own other jobs can open a job's slice: the plugin attaches its BPF program with the first task " +
				"after a boot; ask again while a job runs",
		),
	}
}
