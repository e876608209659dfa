package setup

import (
	"fmt"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// partitions adds the catalogue nodes to the partitions that contain managed nodes, except those with Nodes=ALL, which
// already include the catalogue nodes. features lists the managed nodes' features.
func (m *merger) partitions(lines []line, catalogue, features string) {
	sets := nodeSets(lines, items(features))
	defaults, found := "", false
	for _, l := range lines {
		if !l.is("PartitionName") {
			continue
		}
		name := l.value("PartitionName")
		own, set := l.get("Nodes")
		list := defaults
		if set {
			list = own.value
		}
		managed, complete := m.contains(l, list, catalogue, sets)
		if strings.EqualFold(name, "DEFAULT") {
			defaults = list
		} else if managed && slices.Contains(items(name), m.Partition) {
			found = true
		} else if managed {
			m.note("The partition %s also contains managed nodes. Its jobs get no slices unless the decision table "+
				"contains the line `partition %s`.", name, name)
		}
		if set && managed && !complete {
			m.set(l, own, own.value+","+catalogue)
		}
	}
	if !found {
		text := fmt.Sprintf("there is no partition %s that contains the managed nodes; set --partition", m.Partition)
		m.Problems = append(m.Problems, Problem{m.SlurmConf, 0, text})
	}
}

// nodeSets returns the nodes of each NodeSet line. For a set that is defined by one of the features, it returns ALL,
// because the set includes both the managed nodes and the catalogue nodes.
func nodeSets(lines []line, features []string) map[string]string {
	sets := map[string]string{}
	for _, l := range lines {
		if !l.is("NodeSet") {
			continue
		}
		sets[l.value("NodeSet")] = l.value("Nodes")
		if feature, ok := l.get("Feature"); ok && slices.Contains(features, feature.value) {
			sets[l.value("NodeSet")] = "ALL"
		}
	}
	return sets
}

// contains reports whether a partition's list of nodes includes a managed node, and whether it includes the catalogue
// nodes.
func (m *merger) contains(l line, list, catalogue string, sets map[string]string) (managed, complete bool) {
	for _, item := range items(list) {
		complete = complete || item == catalogue
		if nodes, ok := sets[item]; ok {
			item = nodes
		}
		if strings.EqualFold(item, "ALL") {
			return true, true
		}
		hosts, err := slurm.ExpandHosts(item)
		if err != nil {
			m.problem(l, err.Error()+"; correct the list")
			return false, true
		}
		managed = managed || slices.ContainsFunc(hosts, func(h string) bool { return m.managed[h] })
	}
	return managed, complete
}
