package setup

import (
	"regexp"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// parallel matches the keys of a NodeName line that have one value for each node.
var parallel = regexp.MustCompile(`(?i)^(NodeName|NodeAddr|NodeHostname|BcastAddr|Port)$`)

// splitLines splits each line of a file that describes both managed and other nodes into a line for the other nodes and
// a copy for the managed nodes. It replaces f.old, and adds a note for each line. Lines that it cannot split stay.
func (m *merger) splitLines(f *file) {
	for _, l := range parse(f) {
		hosts, err := slurm.ExpandHosts(l.value("NodeName"))
		isManagedHost := func(h string) bool { return m.managed[h] }
		if err != nil || l.open || !slices.ContainsFunc(hosts, isManagedHost) || l.is("PartitionName") ||
			slices.ContainsFunc(items(l.value("Gres")), isManaged) {
			continue
		}
		others, ok1 := l.only(hosts, func(h string) bool { return !m.managed[h] })
		managed, ok2 := l.only(hosts, isManagedHost)
		if !ok1 || !ok2 {
			continue
		}
		part := file{old: f.old[:l.to], edits: managed}
		f.insert(l, string(part.result()[l.from:]))
		f.edits = append(f.edits, others...)
		m.note("%s:%d: setup splits the line, because it describes converted nodes and others.", f.path, l.number)
	}
	f.added = nil
	slices.SortStableFunc(f.edits, func(x, y edit) int { return x.from - y.from })
	shift := 0
	for _, e := range f.edits {
		if e.from == e.to { // an inserted line
			f.added = append(f.added, span{e.from + shift, e.from + shift + len(e.text)})
		}
		shift += len(e.text) - (e.to - e.from)
	}
	f.old, f.edits = f.result(), nil
}

// only returns the edits that limit a line for the given hosts to those for which keep returns true. ok is false if the
// line cannot be limited, or need not be, because keep returns the same value for all hosts.
func (l line) only(hosts []string, keep func(string) bool) (edits []edit, ok bool) {
	for _, w := range l.words {
		if !parallel.MatchString(w.key) {
			continue
		}
		values, err := slurm.ExpandHosts(w.value)
		if err == nil && len(values) == 1 && !strings.EqualFold(w.key, "NodeName") {
			continue
		}
		if err != nil || len(values) != len(hosts) || w.split {
			return nil, false
		}
		var kept []string
		for i, h := range hosts {
			if keep(h) {
				kept = append(kept, values[i])
			}
		}
		if len(kept) == 0 || len(kept) == len(hosts) {
			return nil, false
		}
		edits = append(edits, edit{w.from, w.to, slurm.FoldHosts(kept)})
	}
	return edits, true
}
