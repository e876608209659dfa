package doctor

import (
	"fmt"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// isCatalogue: another node, which has profiles of gres/mig and nothing to close them with.
func (f *Facts) isCatalogue(n slurm.Node) bool {
	return n.Name != f.Node.Name && sumOf(n.Gres, "mig") > 0 && !slices.ContainsFunc(n.Gres, isClosed)
}

// likenesses are the catalogue nodes that share a partition with this node.
func (f *Facts) likenesses() []slurm.Node {
	return slices.DeleteFunc(slices.Clone(f.Nodes), func(n slurm.Node) bool {
		return !f.isCatalogue(n) ||
			!slices.ContainsFunc(n.Partitions, func(p string) bool { return slices.Contains(f.Node.Partitions, p) })
	})
}

func catalogue(f *Facts) []Finding {
	var found []Finding
	some, reached := false, false
	for _, n := range f.Nodes {
		if !f.isCatalogue(n) {
			continue
		}
		some = true
		for _, p := range n.Partitions {
			reached = reached || slices.Contains(f.Node.Partitions, p)
		}
		if !n.Is("DOWN") {
			found = append(
				found,
				fault(
					fmt.Sprintf(
						"catalogue node %s is %s instead of DOWN: slurmctld may send jobs to it",
						n.Name,
						strings.Join(n.States, "+"),
					),
					fmt.Sprintf(
						"`scontrol update nodename=%s state=down reason=\"MIG catalogue\"`; its line in slurm.conf needs Port=1 and State=DOWN",
						n.Name,
					),
				),
			)
		}
	}
	switch {
	case !some:
		found = append(
			found,
			fault("there is no catalogue node: jobs whose slice is not on offer at their submission are refused",
				"put the mig-catalog lines of `caelum slurm-config` into slurm.conf and restart slurmctld"),
		)
	case !reached:
		found = append(
			found,
			fault(fmt.Sprintf(
				"no partition of %s (%s) has a catalogue node: jobs whose slice is not on offer at their submission are refused",
				f.Node.Name,
				strings.Join(f.Node.Partitions, ", "),
			), "add the catalogue nodes to the partition's Nodes= in slurm.conf"+reconfigure),
		)
	}
	return found
}

// features: a request with a constraint is accepted, while its slice is not on offer, only if a catalogue node meets
// it.
func features(f *Facts) []Finding {
	likenesses := f.likenesses()
	if len(likenesses) == 0 {
		return []Finding{note("there is no catalogue node to compare this node's features with")}
	}
	const next = "give the catalogue nodes the Features= of the real ones in slurm.conf" + reconfigure
	var found []Finding
	missing := f.Node.Features
	for _, n := range likenesses {
		if lacks := without(f.Node.Features, n.Features); len(lacks) < len(missing) {
			missing = lacks
		}
	}
	if len(missing) > 0 {
		found = append(
			found,
			concern(
				fmt.Sprintf(
					"no catalogue node has all features of %s, the nearest lacks %s: a job that asks for them is refused while its slice is not on offer",
					f.Node.Name,
					strings.Join(missing, ", "),
				),
				next,
			),
		)
	}
	var real []string
	for _, n := range f.Nodes {
		if !f.isCatalogue(n) {
			real = append(real, n.Features...)
		}
	}
	for _, n := range likenesses {
		if extra := without(n.Features, real); len(extra) > 0 {
			found = append(
				found,
				concern(
					fmt.Sprintf(
						"catalogue node %s has the features %s, which no real node has: a job that asks for them waits for ever instead of being refused",
						n.Name,
						strings.Join(extra, ", "),
					),
					next,
				),
			)
		} else if !slices.ContainsFunc(f.Nodes, func(r slurm.Node) bool { return !f.isCatalogue(r) && len(without(n.Features, r.Features)) == 0 }) {
			found = append(found, concern(fmt.Sprintf("catalogue node %s has the features %s, and no real node has all of them: a job that asks for them together waits for ever instead of being refused",
				n.Name, strings.Join(n.Features, ", ")), "give each catalogue node the Features= of one kind of real node in slurm.conf"+reconfigure))
		}
	}
	return found
}

// without is what of a list another one lacks.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

// again is what to do when the driver's profiles are not slurm.conf's.
const again = "`caelum slurm-config` again, and its lines into slurm.conf (with the node drained and empty; restart slurmctld) and into the decision table; jobs that wait for the old name: `scancel`, or `scontrol update job=ID gres=...`"

// profiles: their names drift with the driver's release, and slurm.conf does not follow.
func profiles(f *Facts) []Finding {
	var found []Finding
	if stale := f.Agent.Stale; len(stale) > 0 {
		found = append(
			found,
			fault(
				fmt.Sprintf(
					"slurm.conf gives %s %s, which its driver does not report (it has %s): jobs that ask for that wait for ever",
					f.Node.Name,
					strings.Join(stale, ", "),
					strings.Join(f.Agent.Profiles, ", "),
				),
				again,
			),
		)
	}
	var known []string
	likenesses := f.likenesses()
	for _, n := range likenesses {
		known = append(known, types(n)...)
	}
	if lacks := without(f.Agent.Profiles, known); len(likenesses) > 0 && len(lacks) > 0 {
		found = append(
			found,
			fault(
				fmt.Sprintf(
					"no catalogue node has %s, which %s has: jobs that ask for that are refused while it is not on offer",
					strings.Join(lacks, ", "),
					f.Node.Name,
				),
				again,
			),
		)
	}
	if f.Config.Values["AccountingStorageType"] == slurmdbd && f.Config.Has("AccountingStorageTRES", "gres/mig") {
		lacks := slices.DeleteFunc(
			slices.Clone(f.Agent.Profiles),
			func(p string) bool { return f.Config.Has("AccountingStorageTRES", "gres/mig:"+p) },
		)
		if len(lacks) > 0 {
			found = append(
				found,
				concern(
					fmt.Sprintf(
						"AccountingStorageTRES is without %s: sacct does not show of which size these slices are, and no limit can name them",
						strings.Join(lacks, ", "),
					),
					"put the AccountingStorageTRES of `caelum slurm-config` into slurm.conf and restart slurmctld",
				),
			)
		}
	}
	return found
}

// types are the profiles of gres/mig that a node has some of.
func types(n slurm.Node) []string {
	var all []string
	for _, g := range n.Gres {
		if g.Name == "mig" && g.Count > 0 && !isClosed(g) {
			all = append(all, g.Type)
		}
	}
	return all
}
