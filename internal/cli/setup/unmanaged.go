package setup

import (
	"fmt"
	"slices"
	"strings"
)

// unmanaged gives the unmanaged GPU nodes that share a partition with managed nodes a fixed count of every profile: as
// many as the node has GPUs. A job that requests a GPU without its type (--gres=gpu:1), to which job_submit.lua adds a
// slice, can then also start on these nodes, where it gets a whole GPU. The counts need no line in gres.conf, and the
// nodes need no agent.
func (m *merger) unmanaged(parts []partition, nodes []nodeLine) {
	profiles := m.profilesOf(nodes)
	var all []string
	for _, l := range nodes {
		if !l.apart || l.caelum() || !slices.ContainsFunc(parts, func(p partition) bool {
			return !p.isDefault() && p.has(l) && p.managed(nodes)
		}) {
			continue
		}
		count := 0
		for _, g := range m.gpus(l) {
			count += g.count
		}
		if count == 0 {
			continue
		}
		m.mostGPUs = max(m.mostGPUs, count)
		list := slices.DeleteFunc(l.gres(), func(item string) bool { return gresName(item) == "mig" })
		for _, p := range profiles {
			list = append(list, fmt.Sprintf("mig:%s:%d", p, count))
		}
		if !sameItems(l.effective["gres"].value, strings.Join(list, ",")) {
			m.setItems(l, list)
			all = append(all, l.value("NodeName"))
		}
	}
	if len(all) > 0 {
		m.note("These GPU nodes are not converted, but share a partition with managed nodes: %s. So that jobs that "+
			"request a GPU without its type can still run there, where they get a whole GPU, setup adds gres/mig to "+
			"the nodes' Gres=, as many of each profile as the nodes have GPUs. Restart their slurmd after slurmctld, "+
			"and resume the nodes that slurmctld has drained.",
			strings.Join(all, ", "))
	}
}

// profilesOf returns the profiles of all managed nodes.
func (m *merger) profilesOf(nodes []nodeLine) []string {
	generated, _ := m.generated("nodes")
	lists := [][]string{items(generated[0].value("Gres"))}
	for _, l := range nodes {
		if l.caelum() && !l.inside {
			lists = append(lists, l.gres())
		}
	}
	var profiles []string
	for _, item := range slices.Concat(lists...) {
		parts := strings.Split(item, ":")
		if len(parts) == 3 && gresName(item) == "mig" && parts[1] != "closed" && !slices.Contains(profiles, parts[1]) {
			profiles = append(profiles, parts[1])
		}
	}
	return profiles
}
