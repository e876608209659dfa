package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const reconfigure = ", then run `scontrol reconfigure`"

func prologFlags(f *Facts) []Finding {
	if f.Config.Has("PrologFlags", "RunInJob") {
		return []Finding{fault(
			"PrologFlags in slurm.conf includes RunInJob, so Slurm runs no SPANK prologs: the agent publishes no "+
				"offers, because no job could get a slice",
			"remove RunInJob from PrologFlags; restart slurmctld and every slurmd, and then every caelumd",
		)}
	}
	return findingIf(
		fault(
			"PrologFlags in slurm.conf does not include Alloc: a job on several nodes gets slices only on the nodes "+
				"where it runs a step",
			"add Alloc to PrologFlags and restart slurmctld and every slurmd",
		),
		!f.Config.Has("PrologFlags", "Alloc"),
	)
}

// defaultWait is the time, in seconds, that a prolog waits for the agent if the plugin's line in plugstack.conf does
// not set wait=.
const defaultWait = 60

// prologWait returns the time, in seconds, that a prolog waits for the agent.
func (f *Facts) prologWait() int {
	if n, err := strconv.Atoi(f.Plugin.Args["wait"]); err == nil {
		return n
	}
	return defaultWait
}

// seconds parses a number of seconds in slurmctld's configuration, for example "10 sec".
func seconds(text string) (int, error) {
	number, _, _ := strings.Cut(text, " ")
	return strconv.Atoi(number)
}

func batchStart(f *Facts) []Finding {
	wait := f.prologWait()
	text := f.Config.Values["BatchStartTimeout"]
	n, err := seconds(text)
	return findingIf(
		fault(
			fmt.Sprintf(
				"BatchStartTimeout is %q, but a prolog may wait %d s for the agent: slurmctld would treat the start "+
					"of a waiting job as failed",
				text, wait,
			),
			fmt.Sprintf("set BatchStartTimeout=%d in slurm.conf", 2*wait)+reconfigure,
		),
		err != nil || n <= wait,
	)
}

// noLimit is the value of an unset time limit in slurmctld's configuration (NO_VAL16).
const noLimit = 65534

// reconfigureWait compares the time that slurmd waits during `scontrol reconfigure` (rpc_wait in slurmd.c) with the
// time that a prolog can wait.
func reconfigureWait(f *Facts) []Finding {
	r, err := f.Config.Release()
	if err != nil || !r.RestartsSlurmd() {
		return nil
	}
	waits, err := seconds(f.Config.Values["MessageTimeout"])
	if err != nil {
		return nil
	}
	if !r.WaitsForPrologs() {
		waits /= 2
	}
	waits = max(waits, 5)
	for _, name := range []string{"PrologEpilogTimeout", "PrologTimeout", "EpilogTimeout"} {
		if n, err := seconds(f.Config.Values[name]); err == nil && n < noLimit && r.WaitsForPrologs() {
			waits = max(waits, n)
		}
	}
	return findingIf(
		note(fmt.Sprintf(
			"during `scontrol reconfigure`, slurmd waits %d s for running prologs, but a prolog may wait %d s for the "+
				"agent to restart; do not run `scontrol reconfigure` while an agent is down",
			waits, f.prologWait(),
		)),
		waits < f.prologWait(),
	)
}

func selectType(f *Facts) []Finding {
	return findingIf(fault(
		"SelectType=select/linear allocates whole nodes: two jobs can never use the same node's GPUs at the same time",
		"set SelectType=select/cons_tres in slurm.conf and restart slurmctld and every slurmd",
	), f.Config.Values["SelectType"] == "select/linear")
}

func backfill(f *Facts) []Finding {
	return findingIf(
		warning(
			"SchedulerParameters does not include bf_continue: each time an agent publishes offers, the backfill "+
				"scheduler starts over with the first job",
			"add bf_continue to SchedulerParameters in slurm.conf"+reconfigure,
		),
		f.Config.Values["SchedulerType"] == "sched/backfill" && !f.Config.Has("SchedulerParameters", "bf_continue"),
	)
}

// hetPriority checks bf_hetjob_prio. If a het job's components have different priorities, backfill reserves nodes for
// the first one and, on the remaining nodes, starts jobs with priorities between those of the components. In a
// measurement with 22.05.8, only one job at a time ran even though four GPUs were idle. With priority/basic, the
// components are assigned different priorities if the agent releases them one after another.
func hetPriority(f *Facts) []Finding {
	return findingIf(
		warning(
			"SchedulerParameters does not include bf_hetjob_prio=min: backfill can keep nodes idle for a "+
				"heterogeneous job if its components have different priorities",
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
			found = append(found, fault(
				"GresTypes in slurm.conf does not include "+name+": Slurm cannot allocate slices",
				"add "+name+" to GresTypes in slurm.conf, and restart slurmctld and every slurmd",
			))
		}
	}
	return found
}

const slurmdbd = "accounting_storage/slurmdbd"

// accounting checks AccountingStorageTRES. Without slurmdbd, slurmctld does not accept GRES in this parameter
// (22.05.8).
func accounting(f *Facts) []Finding {
	if f.Config.Values["AccountingStorageType"] != slurmdbd {
		return []Finding{note("Slurm runs without slurmdbd: sacct does not show slices, and limits on slices are not " +
			"possible")}
	}
	return findingIf(
		warning(
			"AccountingStorageTRES does not include gres/mig: sacct does not show slices, and limits cannot refer "+
				"to slices",
			"set AccountingStorageTRES in slurm.conf to the value that `caelum slurm-config` prints, and restart "+
				"slurmctld",
		),
		!f.Config.Has("AccountingStorageTRES", "gres/mig"),
	)
}

// maxSkew is the largest accepted difference between the clocks. It is much smaller than munge's limit (a credential is
// valid for 300 s) and much larger than the delay that a busy slurmctld adds.
const maxSkew = 30 * time.Second

// clock compares slurmctld's clock with this host's. It cannot detect a difference larger than munge's limit, because
// slurmctld then rejects every request.
func clock(f *Facts) []Finding {
	at := f.Config.AsOf
	if at.IsZero() {
		return []Finding{warning(
			"scontrol does not show when slurmctld answered, so the clocks of slurmctld and this host "+
				"were not compared",
			"run `date` on both hosts, and compare the times",
		)}
	}
	var skew time.Duration
	switch {
	case at.Before(f.Asked):
		skew = f.Asked.Sub(at)
	case at.After(f.Answered):
		skew = at.Sub(f.Answered)
	}
	return findingIf(
		warning(
			fmt.Sprintf(
				"the clocks of slurmctld and this host differ by %s; if the difference reaches 300 s, munge "+
					"will reject credentials, and all prolog requests and publications will fail",
				skew.Round(time.Second),
			),
			"run `timedatectl` on both hosts, and set up clock synchronisation where it is missing",
		),
		skew > maxSkew,
	)
}

// isolation checks whether a job can open a slice that belongs to another job of the same user. The device files'
// owners isolate users from each other. With a devices cgroup, the plugin also isolates a user's own jobs from each
// other.
func isolation(f *Facts) []Finding {
	const own = "other users cannot open a job's slice, but other jobs of the same user on this node can: "
	const trust = "if a user's jobs need not be isolated from each other, no action is necessary; otherwise, "
	switch {
	case !f.Config.Has("TaskPlugin", "task/cgroup") && !f.Config.Has("TaskPlugin", "cgroup"):
		return []Finding{warning(
			own+"Slurm does not confine tasks to a devices cgroup (TaskPlugin does not include task/cgroup)",
			trust+"set TaskPlugin=task/cgroup in slurm.conf and ConstrainDevices=yes in cgroup.conf, and restart "+
				"every slurmd and caelumd",
		)}
	case !f.Config.RelativeIndex():
		return []Finding{warning(
			own+"Slurm does not confine tasks to a devices cgroup (ConstrainDevices is not yes)",
			trust+"set ConstrainDevices=yes in cgroup.conf, and restart every slurmd and caelumd",
		)}
	case f.Confinement.Cgroup == 0:
		return []Finding{warning(
			own+"this host has no devices cgroup at the path that Slurm uses",
			trust+"mount the cgroup file system, or correct CgroupMountpoint in cgroup.conf",
		)}
	case f.Confinement.Cgroup == 1 || f.Confinement.Program:
		return nil
	case f.Confinement.Problem != "":
		return []Finding{warning(
			f.Confinement.Problem+", so it is unknown whether other jobs of the same user can open a job's slice",
			"run `caelum doctor` as root",
		)}
	case f.Confinement.Tasks:
		return []Finding{warning(
			own+"tasks are running, but the plugin's BPF program is not attached to the cgroup that contains all steps",
			trust+"find the reason in slurmd's log (`caelum: task: ... BPF`); if the kernel is too old, use a newer "+
				"kernel (Linux 6.18 works) or cgroup v1",
		)}
	}
	return []Finding{note(
		"it is not known yet whether other jobs of the same user can open a job's slice, because the plugin attaches " +
			"its BPF program when the first task after a boot starts; run `caelum doctor` again while a job is running",
	)}
}
