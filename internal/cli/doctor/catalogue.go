package doctor

import (
	"fmt"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// isCatalogue reports whether n is a catalogue node.
func (f *Facts) isCatalogue(n slurm.Node) bool { return n.Name != f.Node.Name && n.Catalogue() }

// catalogueNodes returns the catalogue nodes that share a partition with this node.
func (f *Facts) catalogueNodes() []slurm.Node {
	return slices.DeleteFunc(slices.Clone(f.Nodes), func(n slurm.Node) bool {
		return !f.isCatalogue(n) ||
			!slices.ContainsFunc(n.Partitions, func(p string) bool { return slices.Contains(f.Node.Partitions, p) })
	})
}

func catalogue(f *Facts) []Finding {
	var found []Finding
	exists, reached := false, false
	for _, n := range f.Nodes {
		if !f.isCatalogue(n) {
			continue
		}
		exists = true
		for _, p := range n.Partitions {
			reached = reached || slices.Contains(f.Node.Partitions, p)
		}
		found = append(found, catalogueState(n)...)
	}
	switch {
	case !exists:
		found = append(
			found,
			fault("slurm.conf contains no catalogue node: slurmctld rejects jobs whose slice is not on offer when "+
				"they are submitted",
				"put the mig-catalog lines of `caelum slurm-config` into slurm.conf and restart slurmctld"),
		)
	case !reached && f.Node.Name != "": // not on slurmctld's host
		found = append(
			found,
			fault(fmt.Sprintf(
				"no partition of %s (%s) contains a catalogue node: slurmctld rejects jobs whose slice is not on "+
					"offer when they are submitted",
				f.Node.Name, strings.Join(f.Node.Partitions, ", "),
			), "add the catalogue nodes to the partition's Nodes= in slurm.conf"+reconfigure),
		)
	}
	return found
}

// catalogueState reports a catalogue node that is not in the FUTURE state. A DOWN node does not run jobs either, but
// slurmdbd counts it as down, and sinfo shows it.
func catalogueState(n slurm.Node) []Finding {
	next := fmt.Sprintf("run `scontrol update nodename=%s state=future`, and replace the node's state in slurm.conf "+
		"with State=FUTURE; the node's line must also contain Port=1", n.Name)
	switch {
	case n.Is("FUTURE"):
		return nil
	case n.Is("DOWN"):
		return []Finding{warning(
			fmt.Sprintf("catalogue node %s is DOWN instead of FUTURE: sreport counts it as down, and sinfo shows it",
				n.Name), next)}
	}
	return []Finding{fault(
		fmt.Sprintf("catalogue node %s is %s instead of FUTURE: slurmctld may allocate it to jobs",
			n.Name, strings.Join(n.States, "+")), next)}
}

// features reports catalogue nodes with features that no real node has. While no node offers a slice of the requested
// profile, slurmctld accepts a request with a constraint if a catalogue node satisfies it.
func features(f *Facts) (found []Finding) {
	var real []string
	for _, n := range f.Nodes {
		if !f.isCatalogue(n) {
			real = append(real, n.Features...)
		}
	}
	for _, n := range f.catalogueNodes() {
		if extra := difference(n.Features, real); len(extra) > 0 {
			found = append(found, warning(
				fmt.Sprintf(
					"catalogue node %s has the features %s, which no real node has: jobs that request these "+
						"features wait forever instead of being rejected",
					n.Name, strings.Join(extra, ", "),
				),
				"in slurm.conf, give the catalogue nodes the Features= of the real nodes"+reconfigure,
			))
		} else if !slices.ContainsFunc(f.Nodes, func(r slurm.Node) bool {
			return !f.isCatalogue(r) && len(difference(n.Features, r.Features)) == 0
		}) {
			found = append(found, warning(fmt.Sprintf("catalogue node %s has the features %s, but no real node has "+
				"all of them: jobs that request all of these features wait forever instead of being rejected",
				n.Name, strings.Join(n.Features, ", ")),
				"in slurm.conf, give each catalogue node the Features= of one kind of real node"+reconfigure))
		}
	}
	return found
}

// difference returns the elements of list that are not in other.
func difference(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

// renewConfig is the remedy if the profiles in slurm.conf or in the decision table differ from those of the driver.
const renewConfig = "drain the node and wait until it is empty; replace the lines in slurm.conf and in the decision " +
	"table with the output of `caelum slurm-config`; restart slurmctld; cancel the jobs that are waiting for an old " +
	"profile, or change their profile with `scontrol update job=ID gres=...`"

// profiles compares the profiles in slurm.conf with those of the driver, because a new driver release can rename
// profiles.
func profiles(f *Facts) []Finding {
	var found []Finding
	if stale := f.Agent.Stale; len(stale) > 0 {
		found = append(found, fault(
			fmt.Sprintf(
				"slurm.conf gives %s the profiles %s, which the node's driver does not report (it reports %s): jobs "+
					"that request these slices wait forever",
				f.Node.Name, strings.Join(stale, ", "), strings.Join(f.Agent.Profiles, ", "),
			),
			renewConfig,
		))
	}
	var known []string
	catalogue := f.catalogueNodes()
	for _, n := range catalogue {
		known = append(known, types(n)...)
	}
	if lacks := difference(f.Agent.Profiles, known); len(catalogue) > 0 && len(lacks) > 0 {
		found = append(found, fault(
			fmt.Sprintf(
				"no catalogue node has slices of %s, but %s does: slurmctld rejects jobs that request them unless "+
					"one is on offer at that moment",
				strings.Join(lacks, ", "), f.Node.Name,
			),
			renewConfig,
		))
	}
	if f.Config.Values["AccountingStorageType"] == slurmdbd && f.Config.Has("AccountingStorageTRES", "gres/mig") {
		lacks := slices.DeleteFunc(
			slices.Clone(f.Agent.Profiles),
			func(p string) bool { return f.Config.Has("AccountingStorageTRES", "gres/mig:"+p) },
		)
		if len(lacks) > 0 {
			found = append(found, warning(
				fmt.Sprintf(
					"AccountingStorageTRES does not include %s: sacct does not show the size of these slices, "+
						"and limits cannot refer to them",
					strings.Join(lacks, ", "),
				),
				"set AccountingStorageTRES in slurm.conf to the value that `caelum slurm-config` prints, and restart "+
					"slurmctld",
			))
		}
	}
	return found
}

// types returns the gres/mig profiles of the node whose count is at least 1.
func types(n slurm.Node) []string {
	var all []string
	for _, g := range n.Gres {
		if g.Name == "mig" && g.Count > 0 && !isClosed(g) {
			all = append(all, g.Type)
		}
	}
	return all
}
