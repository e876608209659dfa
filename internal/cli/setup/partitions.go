package setup

import (
	"fmt"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// partition is a PartitionName line of slurm.conf.
type partition struct {
	line
	name  string
	nodes word            // the line's Nodes=
	set   bool            // true if the line contains Nodes=
	items []string        // the elements of Nodes=, which can come from a PartitionName=DEFAULT line
	all   bool            // true if the partition contains every node
	hosts map[string]bool // the partition's real nodes
}

// has reports whether the partition contains one of the nodes of a line.
func (p partition) has(l nodeLine) bool {
	return slices.ContainsFunc(l.hosts, func(h string) bool { return p.hosts[h] })
}

// managed reports whether the partition contains a node that Caelum manages.
func (p partition) managed(nodes []nodeLine) bool {
	return slices.ContainsFunc(nodes, func(l nodeLine) bool { return l.caelum() && p.has(l) })
}

func (p partition) isDefault() bool { return strings.EqualFold(p.name, "DEFAULT") }

// partitionLines returns all partitions.
func (m *merger) partitionLines(lines []line, nodes []nodeLine) (all []partition) {
	sets := nodeSets(lines, nodes)
	var defaults []string
	for _, l := range lines {
		if !l.is("PartitionName") {
			continue
		}
		p := partition{line: l, name: l.value("PartitionName"), items: defaults, hosts: map[string]bool{}}
		if p.nodes, p.set = l.get("Nodes"); p.set {
			p.items = items(p.nodes.value)
		}
		if p.isDefault() {
			defaults = p.items
		}
		m.expand(&p, sets, nodes)
		all = append(all, p)
	}
	return all
}

// nodeSets returns the elements of each NodeSet line: its nodes, and the nodes with its feature.
func nodeSets(lines []line, nodes []nodeLine) map[string][]string {
	sets := map[string][]string{}
	for _, l := range lines {
		if !l.is("NodeSet") {
			continue
		}
		members := items(l.value("Nodes"))
		if feature, ok := l.get("Feature"); ok {
			for _, n := range nodes {
				if slices.Contains(n.features(), feature.value) {
					members = append(members, n.value("NodeName"))
				}
			}
		}
		for _, name := range items(l.value("NodeSet")) {
			sets[name] = append(sets[name], members...)
		}
	}
	return sets
}

// expand determines the nodes of a partition.
func (m *merger) expand(p *partition, sets map[string][]string, nodes []nodeLine) {
	for _, item := range p.items {
		members, isSet := sets[item]
		if !isSet {
			members = []string{item}
		}
		for _, member := range members {
			if strings.EqualFold(member, "ALL") {
				p.all = true
				continue
			}
			hosts, err := slurm.ExpandHosts(member)
			if err != nil {
				m.problem(p.line, err.Error()+"; correct the list")
				p.all = true
				return
			}
			for _, h := range hosts {
				p.hosts[h] = true
			}
		}
	}
	for _, l := range nodes {
		for _, h := range l.hosts {
			if p.all {
				p.hosts[h] = true
			}
		}
	}
}

// partitions adds the catalogue nodes of each kind to the partitions that contain nodes of the kind, except those with
// Nodes=ALL, which already include the catalogue nodes, and those with a NodeSet of the nodes' features.
func (m *merger) partitions(lines []line, parts []partition, nodes []nodeLine, kinds []kind, catalogues []string) {
	found := false
	for _, p := range parts {
		list, used := p.nodes.value, false
		for i, k := range kinds {
			used = used || slices.ContainsFunc(nodes, func(l nodeLine) bool { return k.includes(l) && p.has(l) })
			if slices.ContainsFunc(nodes, func(l nodeLine) bool { return k.includes(l) && p.has(l) }) && !p.all &&
				!slices.Contains(p.items, catalogues[i]) && !bySet(lines, p, k) {
				list += "," + catalogues[i]
			}
		}
		found = found || used && slices.Contains(items(p.name), m.Partition)
		if p.set && used {
			m.set(p.line, p.nodes, list)
		}
	}
	if !found && len(kinds) > 0 {
		text := fmt.Sprintf("there is no partition %s that contains the managed nodes; set --partition", m.Partition)
		m.Problems = append(m.Problems, Problem{m.SlurmConf, 0, text})
	}
}

// includes reports whether the nodes of a line are of the kind.
func (k kind) includes(l nodeLine) bool {
	return slices.ContainsFunc(k.lines, func(o line) bool { return o.in == l.in && o.from == l.from })
}

// bySet reports whether a partition contains the catalogue nodes of a kind through a NodeSet line for a feature.
func bySet(lines []line, p partition, k kind) bool {
	return slices.ContainsFunc(lines, func(l line) bool {
		feature, ok := l.get("Feature")
		return ok && l.is("NodeSet") && slices.Contains(k.last.features(), feature.value) &&
			slices.ContainsFunc(items(l.value("NodeSet")), func(s string) bool { return slices.Contains(p.items, s) })
	})
}
