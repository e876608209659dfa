package setup

import (
	"slices"
	"strings"
)

// setGres changes the Gres= value of the managed nodes.
func (m *merger) setGres(nodes []nodeLine) {
	seen := map[string]bool{}
	generated, _ := m.generated("nodes")
	for _, l := range nodes {
		for _, h := range l.hosts {
			seen[h] = true
		}
		if l.inside {
			m.realNode(l, generated[0].value("Gres"))
		}
	}
	for h := range m.managed {
		if !seen[h] {
			m.absent = append(m.absent, h)
		}
	}
	if len(m.absent) > 0 {
		text := "there is no NodeName line for " + slices.Min(m.absent) + "; correct the name"
		m.Problems = append(m.Problems, Problem{m.SlurmConf, 0, text})
	}
}

// realNode sets Gres= in a line that describes managed nodes. It keeps all GRES except those that Caelum replaces.
func (m *merger) realNode(l nodeLine, gres string) {
	list := sumTypes(items(gres))
	for _, item := range l.gres() {
		switch name := gresName(item); {
		case name == "mps" || name == "shard" && !m.replacesShards():
			m.problem(l.line, "Gres= contains "+name+", which Caelum does not manage; remove it")
		case name == "mig" && slices.ContainsFunc(l.gres(), isManaged) && !slices.Contains(list, item):
			m.problem(l.line, "Gres= already contains gres/mig with other counts; to change the profiles, follow "+
				"\"New GPUs or a change to profiles\" in docs/install.md")
			return
		}
	}
	m.setItems(l, append(list, m.others(l)...))
}

// others returns the elements of Gres= that Caelum does not replace.
func (m *merger) others(l nodeLine) (all []string) {
	for _, item := range l.gres() {
		if name := gresName(item); name != "gpu" && name != "mig" && (name != "shard" || !m.replacesShards()) {
			all = append(all, item)
		}
	}
	for _, g := range m.gpus(l) {
		if _, kept := m.types.kept[g.kind]; kept {
			all = append(all, g.text)
		}
	}
	return all
}

// setItems sets the Gres= value of a line.
func (m *merger) setItems(l nodeLine, list []string) {
	value := strings.Join(list, ",")
	count := 0
	for _, w := range l.words {
		if strings.EqualFold(w.key, "Gres") {
			count++
		}
	}
	switch w, ok := l.get("Gres"); {
	case count > 1:
		m.problem(l.line, "the line contains Gres= more than once; combine the values")
	case ok && sameItems(w.value, value):
	case ok:
		m.set(l.line, w, value)
	default:
		l.in.extend(l.line, " Gres="+value)
	}
}

func sameItems(a, b string) bool {
	x, y := items(a), items(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
