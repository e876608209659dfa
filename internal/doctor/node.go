package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"caelum/internal/inventory"
	"caelum/internal/slurm"
)

const slurmConfig = "put the lines that `caelum slurm-config` prints into slurm.conf and gres.conf, with the node " +
	"drained and empty, and restart slurmctld and slurmd"

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
	return findingIf(warning(fmt.Sprintf("%s is %s%s: no job starts here", f.Node.Name, strings.Join(bad, "+"), reason),
		fmt.Sprintf("remove the cause, then run `scontrol update nodename=%s state=resume`", f.Node.Name),
	), len(bad) > 0)
}

func isClosed(g slurm.GRES) bool { return g.Name == "mig" && g.Type == "closed" }

func closed(f *Facts) []Finding {
	return findingIf(
		fault(
			fmt.Sprintf("%s has no gres/mig:closed in slurmctld: the agent publishes nothing", f.Node.Name),
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
	switch {
	case cmp.Or(configured, mig) < inventory.Total(gpus):
		return []Finding{fault(fmt.Sprintf("gres/mig adds up to %d on %s, but the node's %d slots need %d: "+
			"the agent cannot publish all of its offers",
			cmp.Or(configured, mig), f.Node.Name, gpus, inventory.Total(gpus)), slurmConfig)}
	case configured == 0:
		return []Finding{note(fmt.Sprintf("gres/mig adds up to %d on %s; not compared with slurm.conf, "+
			"because AccountingStorageTRES does not include gres/mig", mig, f.Node.Name))}
	case mig == configured:
		return nil
	case closed == configured: // slurmd has registered again since the agent's last pass
		return []Finding{warning(fmt.Sprintf(
			"gres/mig adds up to %d on %s, and slurm.conf has %d: "+
				"slurmd has restarted, and the agent has not published since",
			mig, f.Node.Name, configured,
		), "run `caelum doctor` again after the agent's poll_interval; then see `journalctl -u caelumd`")}
	}
	return []Finding{fault(fmt.Sprintf("gres/mig adds up to %d on %s, and slurm.conf has %d: "+
		"slurmctld drains the node when its slurmd restarts",
		mig, f.Node.Name, configured),
		"run `systemctl restart caelumd`; if the sum is still wrong, see `journalctl -u caelumd`")}
}

// excess reports slices that slurmctld counts as used although no job has them. An update of the node does not correct
// this count.
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
		"slurmctld counts slices of %s as used that no job holds: %s (at its restart and at `scontrol reconfigure` it "+
			"counts the slices of a job on several nodes once for each of these nodes)",
		f.Node.Name, list(f.Agent.Excess),
	)
	const clear = "to clear that count, restart slurmctld while no job on several nodes runs here"
	if len(f.Agent.ExcessShort) > 0 {
		return []Finding{fault(text+"; the agent cannot raise the total of gres/mig to compensate for "+
			list(f.Agent.ExcessShort)+": jobs wait although slices are free", clear)}
	}
	return []Finding{warning(
		text+"; the agent has raised its totals by the same number",
		"no action is necessary unless --exclusive jobs must run here; "+clear,
	)}
}

func slots(f *Facts) []Finding {
	can, broken := 0, false
	for _, g := range f.Agent.GPUs {
		can += len(g.Slots)
		broken = broken || g.Problem != ""
	}
	has := f.Node.Gres.Total("gpu")
	switch {
	case has < can:
		return []Finding{fault(
			fmt.Sprintf(
				"gres/gpu is %d on %s, and its GPUs hold up to %d slices: some slices can never be allocated",
				has, f.Node.Name, can,
			),
			slurmConfig,
		)}
	case has > can && !broken: // if a broken GPU explains the missing slots, slurm.conf need not be changed
		return []Finding{fault(
			fmt.Sprintf(
				"gres/gpu is %d on %s, and its GPUs hold only %d slices: slurmctld starts jobs that cannot get "+
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
					"partition %s has OverSubscribe=EXCLUSIVE: each of its jobs occupies the whole node %s, even "+
						"if it requests a slice",
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
