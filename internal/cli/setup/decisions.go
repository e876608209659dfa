package setup

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/controller/decisions"
)

// decisions creates the decision table, or adds missing lines to it. All partitions that contain managed nodes become
// managed, because a job without a slice cannot run on a managed node.
func (m *merger) decisions(parts []partition, nodes []nodeLine) {
	f := m.open(m.Decisions)
	if f == nil {
		return
	}
	wanted := m.tableLines(parts, nodes)
	for _, l := range wanted {
		if words := strings.Fields(l); len(words) > 1 && words[0] == "partition" {
			m.Partitions = append(m.Partitions, words[1])
		}
	}
	if f.fresh {
		f.tail = wanted
		return
	}
	table, err := decisions.Parse(string(f.old))
	if err != nil {
		m.note("%s: job_submit.lua would reject this table: %v. Correct it, and run setup again.", f.path, err)
		return
	}
	var missing []string
	for _, l := range wanted[1:] {
		if lacks(table, strings.Fields(l)) {
			missing = append(missing, l)
		}
	}
	if len(missing) > 0 {
		m.extendTable(f, missing)
	}
}

// tableLines returns the lines of a new decision table.
func (m *merger) tableLines(parts []partition, nodes []nodeLine) (lines []string) {
	for l := range strings.Lines(m.Sections["decisions"]) {
		l = strings.TrimSuffix(l, "\n")
		words := strings.Fields(l)
		switch {
		case len(words) > 1 && words[0] == "partition":
			lines = append(lines, l)
			for _, name := range partitionNames(parts, nodes) {
				if name != m.Partition {
					lines = append(lines, strings.Join(append([]string{"partition", name}, words[2:]...), " "))
				}
			}
		case len(words) > 1 && words[0] == "default":
			lines = append(slices.Concat(lines, m.aliases(), m.shardLines(), m.perGPU), l)
		case len(words) == 4 && words[0] == "profile":
			most, _ := strconv.Atoi(words[3])
			words[3] = strconv.Itoa(max(most, m.mostGPUs))
			lines = append(lines, strings.Join(words, " "))
		case len(words) == 2 && words[0] == "max_cpus":
			if n := m.maxCPUs(nodes); n > 0 {
				lines = append(lines, fmt.Sprintf("max_cpus %d", n))
			}
		case !slices.Contains(lines, l):
			lines = append(lines, l)
		}
	}
	return lines
}

// partitionNames returns the names of the partitions that contain managed nodes.
func partitionNames(parts []partition, nodes []nodeLine) (names []string) {
	for _, p := range parts {
		if !p.isDefault() && p.managed(nodes) {
			names = append(names, items(p.name)...)
		}
	}
	return names
}

// lacks reports whether a table needs a line with the given words. Values for which the table has a line of its own,
// such as the default profile, are not changed.
func lacks(t decisions.Table, words []string) bool {
	switch words[0] {
	case "partition":
		return words[1] != t.Bypass && !slices.Contains(t.Partitions, words[1])
	case "profile":
		return !slices.ContainsFunc(t.Profiles, func(p decisions.Profile) bool {
			mib, most := 0, 0
			if len(words) > 2 {
				mib, _ = strconv.Atoi(words[2])
			}
			if len(words) > 3 {
				most, _ = strconv.Atoi(words[3])
			}
			return p.Name == words[1] && (mib == 0 || p.MiB > 0 && p.MiB <= mib) && p.Most >= most
		})
	case "model":
		return !slices.Contains(t.Models[words[1]], words[2])
	case "alias":
		return t.Aliases[words[1]] == ""
	case "shard":
		kind, count, typed := strings.Cut(words[1], ":")
		if !typed {
			kind, count = "", kind
		}
		n, _ := strconv.Atoi(count)
		return t.Shards[kind][n] == ""
	case "per_gpu":
		_, has := t.PerGPU[words[1]]
		return !has
	case "max_cpus":
		n, _ := strconv.Atoi(words[1])
		return t.MaxCPUs < n
	}
	return false
}

// maxCPUs returns the largest number of CPUs of a node with GPUs, or 0 if the line of such a node does not state it.
func (m *merger) maxCPUs(nodes []nodeLine) (most int) {
	for _, l := range nodes {
		if !l.caelum() && len(m.gpus(l)) == 0 {
			continue
		}
		n := l.count("cpus", l.count("procs", 0))
		if n == 0 {
			sockets := l.count("sockets", l.count("socketsperboard", 1)*l.count("boards", 1))
			n = sockets * l.count("corespersocket", 0) * l.count("threadspercore", 1)
		}
		if n == 0 {
			return 0
		}
		most = max(most, n)
	}
	return most
}

// count returns the value of a key that applies to the nodes, or otherwise if they have none.
func (l nodeLine) count(key string, otherwise int) int {
	if n, err := strconv.Atoi(l.effective[key].value); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// extendTable adds lines below the last of the table's own lines of the same kind, above the learned lines, and
// increases the generation, so that job_submit.lua reads the table again.
func (m *merger) extendTable(f *file, missing []string) {
	lines := parse(f)
	last := lines[0]
	for _, l := range lines {
		word, _, _ := strings.Cut(l.text, " ")
		if slices.Contains([]string{"partition", "profile", "model", "alias", "shard", "per_gpu", "default", "whole",
			"max_nodes", "max_cpus", "size_message"}, word) {
			last = l
		}
	}
	head, _, _ := bytes.Cut(f.old, []byte("\n"))
	at := bytes.LastIndexByte(head, ' ') + 1
	generation, err := strconv.ParseUint(string(head[at:]), 10, 63)
	if err != nil {
		m.Problems = append(m.Problems, Problem{f.path, 1, "the generation is too large; write a smaller number"})
		return
	}
	f.edits = append(f.edits, edit{at, len(head), fmt.Sprint(generation + 1)})
	f.insert(last, strings.Join(missing, f.eol()))
}
