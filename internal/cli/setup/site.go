package setup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// nodeLine is a NodeName line of slurm.conf that describes real nodes.
type nodeLine struct {
	line
	hosts []string
	// inside is true if all of the hosts are managed, and apart is true if none of them are.
	inside, apart bool
	// effective holds the words that apply to the hosts, by key in lower case: those of the line, and those of the
	// NodeName=DEFAULT lines above it.
	effective map[string]word
}

// gres returns the elements of the value of Gres= that applies to the nodes.
func (l nodeLine) gres() []string { return items(l.effective["gres"].value) }

// features returns the features of the nodes.
func (l nodeLine) features() []string {
	return items(l.effective["feature"].value + "," + l.effective["features"].value)
}

// isManaged reports whether an element of Gres= is that of a node with the lines that Caelum needs.
func isManaged(item string) bool { return strings.HasPrefix(strings.ToLower(item), "mig:closed:") }

// caelum reports whether Caelum manages the nodes, or will manage them after the patch.
func (l nodeLine) caelum() bool { return l.inside || slices.ContainsFunc(l.gres(), isManaged) }

// nodeLines returns the lines of all real nodes.
func (m *merger) nodeLines(lines []line) (all []nodeLine) {
	defaults := map[string]word{}
	for _, l := range lines {
		if !l.is("NodeName") || isCatalogue(l) {
			continue
		}
		effective := maps.Clone(defaults)
		for _, w := range l.words[1:] {
			effective[strings.ToLower(w.key)] = w
		}
		if strings.EqualFold(l.value("NodeName"), "DEFAULT") {
			defaults = effective
			continue
		}
		n := nodeLine{line: l, effective: effective}
		n.hosts, n.inside, n.apart = m.overlap(l, l.value("NodeName"))
		all = append(all, n)
	}
	return all
}

// overlap expands the hostlist of a line. inside is true if all of these hosts are managed, and apart is true if none
// of them are. If the list cannot be expanded or contains both kinds, overlap reports a problem.
func (m *merger) overlap(l line, list string) (hosts []string, inside, apart bool) {
	hosts, err := slurm.ExpandHosts(list)
	if err != nil {
		m.problem(l, err.Error()+"; correct the list")
		return nil, false, false
	}
	var in, out []string
	for _, h := range hosts {
		if m.managed[h] {
			in = append(in, h)
		} else {
			out = append(out, h)
		}
	}
	if len(in) > 0 && len(out) > 0 {
		m.problem(l, fmt.Sprintf("the line describes %s, which is converted, and %s, which is not; split the line",
			in[0], out[0]))
		return hosts, false, false
	}
	return hosts, len(in) > 0, len(in) == 0
}

// gpuItem is an element of Gres= for gres/gpu. kind is its type, or empty.
type gpuItem struct {
	text, kind string
	count      int
}

// isGPU reports whether an element of Gres= is for gres/gpu.
func isGPU(item string) bool { return gresName(item) == "gpu" }

func gresName(item string) string {
	name, _, _ := strings.Cut(strings.ToLower(item), ":")
	return name
}

// gpus returns the elements of Gres= for gres/gpu. It reports a problem for an element that it cannot parse.
func (m *merger) gpus(l nodeLine) (all []gpuItem) {
	for _, item := range l.gres() {
		if !isGPU(item) {
			continue
		}
		name, rest, _ := strings.Cut(item, ":")
		if rest != "" {
			rest = ":" + rest
		}
		parsed, err := slurm.ParseGRES(strings.ToLower(name) + rest)
		if err != nil || len(parsed) != 1 {
			m.problem(l.line, "Gres= contains "+item+", which setup cannot read; correct it")
			continue
		}
		all = append(all, gpuItem{item, parsed[0].Type, parsed[0].Count})
	}
	return all
}
