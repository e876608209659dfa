package jobsubmit

import (
	"cmp"
	"strings"

	"caelum/internal/controller/decisions"
)

// concealment describes the partitions of a job that have catalogue nodes (fuzz.lua): the largest numbers of real
// nodes, catalogue nodes and CPUs, and the lists of catalogue nodes.
type concealment struct {
	nodes, most, cpus int
	lists             []string
}

// catalogueOf returns nil if none of the partitions has catalogue nodes. q is the job with these partitions.
func catalogueOf(q fields, partitions string) *concealment {
	var h concealment
	seen := map[string]bool{}
	if q["no_parts"] != nil {
		return nil
	}
	partitions = cmp.Or(partitions, "gpu")
	for name := range strings.SplitSeq(partitions, ",") {
		p := map[string]concealment{
			"gpu":      {nodes: 3, most: 2, cpus: 320, lists: []string{"mig-catalog[1-2]"}},
			"gpu-long": {nodes: 1, most: 1, cpus: 128, lists: []string{"mig-catalog2"}},
			"cpu":      {nodes: 4, cpus: 256},
		}[name]
		if seen[name] {
			continue
		}
		seen[name] = true
		h.nodes, h.most, h.cpus = max(h.nodes, p.nodes), max(h.most, p.most), max(h.cpus, p.cpus)
		h.lists = append(h.lists, p.lists...)
	}
	if h.most == 0 || len(partitions) > maxPartitions {
		return nil
	}
	return &h
}

// beyond returns the changes to a job that needs more nodes or CPUs than there are, or nil. shares is true if the
// request counts GPUs per job or task.
func (h *concealment) beyond(q fields, maxCPUs int, shares bool) []write {
	if h == nil {
		return nil
	}
	nodes, tasks := set(q, "min_nodes"), set(q, "num_tasks")
	switch {
	case nodes > h.nodes && !shares && (tasks == 0 || tasks >= nodes+h.most):
		nodes += h.most
		all := []write{{"min_nodes", float64(nodes)}}
		if most := set(q, "max_nodes"); most > 0 {
			all = append(all, write{"max_nodes", float64(max(most, nodes))})
		}
		return all
	case nodes > h.nodes, maxCPUs > 0 && set(q, "min_cpus") > h.nodes*maxCPUs:
		return []write{{"min_cpus", float64(h.cpus + 1)}}
	}
	return nil
}

// exclude returns the exclusion of the catalogue nodes in addition to a job's own.
func (h *concealment) exclude(own string) write {
	lists := h.lists
	if own != "" {
		lists = append([]string{own}, lists...)
	}
	return write{"exc_nodes", strings.Join(lists, ",")}
}

// hide returns the changes to a new job without slices.
func hide(q fields, d decisions.Table) []write {
	h := catalogueOf(q, text(q, "partition"))
	if all := h.beyond(q, d.MaxCPUs, false); h == nil || all != nil {
		return all
	}
	return []write{h.exclude(text(q, "exc_nodes"))}
}

// concealed returns the changes to an update of a job that hide the catalogue nodes from it. before and after are the
// job's options.
func concealed(q fields, before, after options) []write {
	h := catalogueOf(q, partitionAfter(q))
	if all := h.beyond(q, 0, false); h == nil || all != nil {
		return all
	}
	own, excludes := q["exc_nodes"].(string)
	switch {
	case !after.asks(nil) && excludes:
		return []write{h.exclude(own)}
	case after.asks(nil) && !before.asks(nil) && !excludes:
		return []write{{"exc_nodes", ""}}
	}
	return nil
}
