package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"caelum/internal/node/api"
	"caelum/internal/node/inventory"
	"caelum/internal/slurm"
)

const slurmConfig = "drain the node and wait until it is empty; put the lines that `caelum slurm-config` prints into " +
	"slurm.conf and gres.conf; stop slurmd, restart slurmctld and start slurmd"

func nodeState(f *Facts) []Finding {
	var bad []string
	for _, s := range f.Node.States {
		switch s {
		case "DOWN", "DRAIN", "DRAINED", "DRAINING", "NOT_RESPONDING", "INVALID_REG", "FAIL", "UNKNOWN":
			bad = append(bad, s)
		}
	}
	reason := ""
	if f.Node.Reason != "" {
		reason = " (" + f.Node.Reason + ")"
	}
	return findingIf(warning(
		fmt.Sprintf("%s is %s%s: slurmctld starts no jobs on this node", f.Node.Name, strings.Join(bad, "+"), reason),
		fmt.Sprintf("fix the cause, then run `scontrol update nodename=%s state=resume`", f.Node.Name),
	), len(bad) > 0)
}

func isClosed(g slurm.GRES) bool { return g.Name == "mig" && g.Type == "closed" }

func closed(f *Facts) []Finding {
	return findingIf(
		fault(
			fmt.Sprintf("slurmctld's record of %s has no gres/mig:closed: the agent cannot publish "+
				"offers", f.Node.Name),
			slurmConfig,
		),
		!slices.ContainsFunc(f.Node.Gres, isClosed),
	)
}

func total(f *Facts) []Finding {
	gpus, mig, closed := f.Node.Gres.Total("gpu"), f.Node.Gres.Total("mig"), 0
	if i := slices.IndexFunc(f.Node.Gres, isClosed); i >= 0 {
		closed = f.Node.Gres[i].Count
	}
	configured := f.Node.MIGTotal
	if can := f.agentSlots(); can > 0 && inventory.Slots(f.Node, can) == can {
		gpus = can // without the GPUs that Slurm allocates without slices
	}
	switch {
	case cmp.Or(configured, mig) < inventory.Total(gpus):
		return []Finding{fault(fmt.Sprintf("gres/mig adds up to %d on %s, but the node's %d slots need %d: "+
			"the agent cannot publish all of its offers",
			cmp.Or(configured, mig), f.Node.Name, gpus, inventory.Total(gpus)), slurmConfig)}
	case configured == 0:
		return []Finding{note(fmt.Sprintf("gres/mig adds up to %d on %s; the sum was not compared with slurm.conf, "+
			"because AccountingStorageTRES does not include gres/mig", mig, f.Node.Name))}
	case mig == configured:
		return nil
	case closed == configured: // slurmd has re-registered since the agent's last pass
		return []Finding{warning(fmt.Sprintf(
			"gres/mig adds up to %d on %s, but to %d in slurm.conf: slurmd has restarted, and the agent has not "+
				"published offers since then",
			mig, f.Node.Name, configured,
		), "rerun `caelum doctor` after the agent's poll_interval; if the warning remains, find the cause with "+
			"`journalctl -u caelumd`")}
	}
	return []Finding{fault(fmt.Sprintf("gres/mig adds up to %d on %s, but to %d in slurm.conf: slurmctld will drain "+
		"the node when its slurmd restarts",
		mig, f.Node.Name, configured),
		"run `systemctl restart caelumd`; if the error remains, find the cause with `journalctl -u caelumd`")}
}

// excess reports slices that slurmctld counts as used even though no job holds them. Updating the node's counts does
// not clear this excess.
func excess(f *Facts) []Finding {
	if len(f.Agent.Excess) == 0 {
		return nil
	}
	list := func(of map[string]int) string {
		var all []string
		for _, profile := range slices.Sorted(maps.Keys(of)) {
			all = append(all, fmt.Sprintf("%d of %s", of[profile], profile))
		}
		return strings.Join(all, ", ")
	}
	text := fmt.Sprintf(
		"slurmctld counts as used some slices of %s that no job holds: %s (after a restart or `scontrol "+
			"reconfigure`, it counts the slices of a multi-node job once per node)",
		f.Node.Name, list(f.Agent.Excess),
	)
	const clear = "to clear the surplus, restart slurmctld while no multi-node job is running on this node"
	if len(f.Agent.ExcessShort) > 0 {
		return []Finding{fault(text+"; the agent cannot raise the total of gres/mig to compensate for "+
			list(f.Agent.ExcessShort)+": jobs wait even though slices are free", clear)}
	}
	return []Finding{warning(
		text+"; the agent has raised the totals of these profiles by the same numbers, but --exclusive jobs cannot "+
			"start on this node",
		"no action is necessary unless --exclusive jobs must run on this node; "+clear,
	)}
}

// agentSlots returns the number of slots that the agent manages.
func (f *Facts) agentSlots() (count int) {
	for _, g := range f.Agent.GPUs {
		count += len(g.Slots)
	}
	return count
}

func slots(f *Facts) []Finding {
	can, broken := f.agentSlots(), slices.ContainsFunc(f.Agent.GPUs, func(g api.GPU) bool { return g.Problem != "" })
	has := f.Node.Gres.Total("gpu")
	if inventory.Slots(f.Node, can) == can {
		return nil
	}
	switch {
	case has < can:
		return []Finding{fault(
			fmt.Sprintf(
				"gres/gpu is %d on %s, but the GPUs hold up to %d slices: slurmctld can never allocate some of the "+
					"slices",
				has, f.Node.Name, can,
			),
			slurmConfig,
		)}
	case has > can && !broken: // slurm.conf may be correct if the missing slots belong to an unusable GPU
		return []Finding{fault(
			fmt.Sprintf(
				"gres/gpu is %d on %s, but the GPUs hold only %d slices: slurmctld starts jobs that cannot get "+
					"slices",
				has, f.Node.Name, can,
			),
			slurmConfig,
		)}
	}
	return nil
}

func exclusive(f *Facts) []Finding {
	var found []Finding
	for _, p := range f.Partitions {
		if p.Exclusive && slices.Contains(f.Node.Partitions, p.Name) {
			found = append(found, warning(
				fmt.Sprintf(
					"partition %s has OverSubscribe=EXCLUSIVE: each of its jobs occupies the whole node %s, "+
						"even if it requests only a slice",
					p.Name, f.Node.Name,
				),
				fmt.Sprintf(
					"remove OverSubscribe=EXCLUSIVE from partition %s, or remove %s from the partition",
					p.Name, f.Node.Name,
				),
			))
		}
	}
	return found
}
