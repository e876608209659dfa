package setup

import (
	"fmt"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// trial takes the trial node out of its partitions, because jobs there request no slices and would get no GPU on the
// node, and adds a partition that contains only the node and its catalogue nodes. The new partition has the options of
// the first of the node's partitions, so that the same users may use it. trial returns all partitions as they are then.
func (m *merger) trial(lines []line, parts []partition, nodes []nodeLine, catalogues []string) []partition {
	trial := partition{name: m.Partition, hosts: map[string]bool{m.Nodes: true}}
	var left []string
	for i := range parts {
		p := &parts[i]
		if !p.hosts[m.Nodes] {
			continue
		}
		others := p.others(m.Nodes, nodes)
		switch same := slices.Contains(items(p.name), m.Partition); {
		case p.isDefault():
			delete(p.hosts, m.Nodes) // the partitions with this default get a list of their own
		case same && len(others) == 0:
			return parts // the files already contain the trial
		case same:
			m.problem(p.line, fmt.Sprintf("partition %s exists and has other nodes; choose another --partition",
				p.name))
		case len(others) == 0:
			m.problem(p.line, fmt.Sprintf("%s is the only node of partition %s, whose jobs could no longer start; "+
				"choose another node", m.Nodes, p.name))
		default:
			m.leave(p, others, lines)
			if left = append(left, p.name); len(left) == 1 {
				trial.line = p.line
			}
		}
	}
	if len(left) == 0 && len(m.Problems) == 0 {
		m.Problems = append(m.Problems, Problem{m.SlurmConf, 0, m.Nodes + " is in no partition, so setup does not " +
			"know the options of the trial's partition; add the node to one"})
	}
	if len(m.Problems) > 0 {
		return append(parts, trial)
	}
	text := "PartitionName=" + m.Partition + " Nodes=" + strings.Join(append([]string{m.Nodes}, catalogues...), ",")
	for _, w := range trial.words {
		switch strings.ToLower(w.key) {
		case "partitionname", "nodes", "default", "alternate":
		default:
			text += " " + w.key + "=" + quoted(w.value)
		}
	}
	trial.in.insert(trial.line, text)
	m.note("While the trial lasts, %s is only in partition %s, which has the options of %s, and not in %s. Their jobs "+
		"run on the other nodes and get whole GPUs as before, except jobs that name %[1]s (--nodelist), which cannot "+
		"run. `caelum setup --undo` takes this back.", m.Nodes, m.Partition, left[0], strings.Join(left, ", "))
	return append(parts, trial)
}

// others returns the real nodes of a partition except one.
func (p partition) others(node string, nodes []nodeLine) (hosts []string) {
	for _, l := range nodes {
		for _, h := range l.hosts {
			if p.hosts[h] && h != node {
				hosts = append(hosts, h)
			}
		}
	}
	return hosts
}

// leave removes the trial node from a partition. If the partition contains the node through ALL or a NodeSet, the list
// becomes that of the other nodes and of the catalogue nodes.
func (m *merger) leave(p *partition, others []string, lines []line) {
	list, named := slices.Clone(p.items), false
	for i, item := range list {
		hosts, err := slurm.ExpandHosts(item)
		if at := slices.Index(hosts, m.Nodes); err == nil && at >= 0 && !p.all {
			list[i], named = slurm.FoldHosts(slices.Delete(hosts, at, at+1)), true
		}
	}
	if !named {
		list = []string{slurm.FoldHosts(others)}
		for _, l := range lines {
			name := l.value("NodeName")
			if l.is("NodeName") && isCatalogue(l) && (p.all || slices.Contains(p.items, name)) {
				list = append(list, name)
			}
		}
		m.note("%s:%d: while the trial lasts, partition %s lists its nodes by name, so it does not include nodes that "+
			"you add to slurm.conf.", p.in.path, p.number, p.name)
	}
	value := strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), ",")
	if p.set {
		m.set(p.line, p.nodes, value)
	} else {
		p.in.extend(p.line, " Nodes="+value)
	}
	delete(p.hosts, m.Nodes)
	p.items, p.all = items(value), false
}
