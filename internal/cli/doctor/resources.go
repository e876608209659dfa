package doctor

import (
	"fmt"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// checkedNodes returns this node or, if this host is not a GPU node, all nodes that Caelum manages.
func (f *Facts) checkedNodes() []slurm.Node {
	if !f.Controller && f.Node.Name != "" {
		return []slurm.Node{f.Node}
	}
	return slices.DeleteFunc(slices.Clone(f.Nodes), func(n slurm.Node) bool { return !n.Managed() })
}

// resources compares the GRES, hardware and features of the managed nodes with those of the catalogue nodes. While no
// node offers a slice of the requested profile, slurmctld accepts a request only if a catalogue node satisfies all of
// it.
func resources(f *Facts) []Finding {
	var found []Finding
	for _, n := range f.checkedNodes() {
		var missing []string
		closest := ""
		for _, c := range f.Nodes {
			if !f.isCatalogue(c) || !shareAPartition(n, c) {
				continue
			}
			if lacks := lacksResources(c, n); closest == "" || len(lacks) < len(missing) {
				closest, missing = c.Name, lacks
			}
		}
		switch {
		case closest == "":
			found = append(found, note("no catalogue node shares a partition with "+n.Name+", so their resources were "+
				"not compared"))
		case len(missing) > 0:
			found = append(found, warning(
				fmt.Sprintf("no catalogue node has all resources of %s (the closest, %s, lacks %s): slurmctld rejects "+
					"jobs that request these resources while their slices are not on offer",
					n.Name, closest, strings.Join(missing, ", ")),
				"run `caelum setup` again, or in slurm.conf, give a catalogue node the Gres=, the hardware and the "+
					"Features= of the node; then restart slurmctld",
			))
		}
	}
	return found
}

// lacksResources lists the resources of a real node of which a catalogue node has fewer. gres/mig is compared by the
// "profiles" check.
func lacksResources(catalogue, node slurm.Node) (missing []string) {
	has := func(want slurm.GRES) bool {
		return slices.ContainsFunc(catalogue.Gres, func(g slurm.GRES) bool {
			return g.Name == want.Name && g.Type == want.Type && g.Count >= want.Count
		})
	}
	for _, g := range node.Gres {
		if g.Name != "mig" && !has(g) {
			missing = append(missing, g.String())
		}
	}
	for _, c := range []struct {
		name             string
		wanted, provided int
	}{
		{"CPUs", node.CPUs, catalogue.CPUs},
		{"RealMemory", node.Memory, catalogue.Memory},
		{"TmpDisk", node.TmpDisk, catalogue.TmpDisk},
		{"Sockets", node.Sockets, catalogue.Sockets},
		{"CoresPerSocket", node.CoresPerSocket, catalogue.CoresPerSocket},
		{"ThreadsPerCore", node.ThreadsPerCore, catalogue.ThreadsPerCore},
	} {
		if c.wanted > c.provided && c.provided > 0 || c.wanted > 0 && c.provided == 0 && c.name == "TmpDisk" {
			missing = append(missing, fmt.Sprintf("%s=%d", c.name, c.wanted))
		}
	}
	for _, feature := range difference(node.Features, catalogue.Features) {
		missing = append(missing, "Features="+feature)
	}
	return missing
}

func shareAPartition(a, b slurm.Node) bool {
	return slices.ContainsFunc(a.Partitions, func(p string) bool { return slices.Contains(b.Partitions, p) })
}

// mixedPartitions checks the GPU nodes that Caelum does not manage but that share a partition with managed nodes. A job
// that requests a GPU without its type also requests a slice, which it could never be allocated there unless the node
// has fixed gres/mig counts.
func mixedPartitions(f *Facts) []Finding {
	var found []Finding
	var whole []string
	managed := f.checkedNodes()
	for _, n := range f.Nodes {
		if n.Managed() || f.isCatalogue(n) || n.Gres.Total("gpu") == 0 {
			continue
		}
		i := slices.IndexFunc(managed, func(m slurm.Node) bool { return shareAPartition(n, m) })
		if i < 0 {
			continue
		}
		var profiles []string
		for _, g := range managed[i].Gres.Named("mig") {
			if !isClosed(g) {
				profiles = append(profiles, g.Type)
			}
		}
		if lacks := difference(profiles, types(n)); len(lacks) > 0 {
			found = append(found, warning(
				fmt.Sprintf("%s shares a partition with %s, but Caelum does not manage it, and it has no gres/mig "+
					"counts of %s: jobs that request a GPU without its type cannot start there",
					n.Name, managed[i].Name, strings.Join(lacks, ", ")),
				"run `caelum setup` again, which adds the counts to the node's Gres= in slurm.conf; restart slurmctld "+
					"and the node's slurmd",
			))
		} else {
			whole = append(whole, n.Name)
		}
	}
	return append(found, findingIf(note("only some GPU nodes of the partitions are converted: a job that requests a "+
		"GPU without its type gets a whole GPU on "+slurm.FoldHosts(whole)+", and a slice on the other nodes"),
		len(whole) > 0)...)
}
