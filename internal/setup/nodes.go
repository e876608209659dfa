package setup

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/slurm"
)

// hardware lists the keys of a NodeName line that have the same value for a catalogue node as for the real nodes. CPUs
// and Procs are the same parameter, as are Feature and Features.
var hardware = []string{"CPUs", "Procs", "Boards", "SocketsPerBoard", "Sockets", "CoresPerSocket", "ThreadsPerCore",
	"RealMemory", "TmpDisk", "Feature", "Features"}

// gpuNodes holds the names of the nodes that have GPUs but are not managed by Caelum.
type gpuNodes []string

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
		m.problem(l, fmt.Sprintf("the line describes %s, which is in --nodes, and %s, which is not; split the line",
			in[0], out[0]))
		return hosts, false, false
	}
	return hosts, len(in) > 0, len(in) == 0
}

// nodes changes the Gres= value of the managed nodes and adds the catalogue nodes to the nodes and partitions. It
// returns the other nodes that have GPUs.
func (m *merger) nodes(lines []line) (others gpuNodes) {
	generated, _ := m.generated("nodes")
	gres, catalogue := generated[0].value("Gres"), generated[1]
	defaults, seen, parts := map[string]word{}, map[string]bool{}, map[string]string{}
	var first, last *line
	for i, l := range lines {
		if !l.is("NodeName") {
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
		hosts, inside, apart := m.overlap(l, l.value("NodeName"))
		if apart && strings.Contains(strings.ToLower(effective["gres"].value), "gpu") && !isCatalogue(l) {
			others = append(others, hosts...)
		}
		for _, h := range hosts {
			seen[h] = true
		}
		if !inside {
			continue
		}
		m.realNode(l, effective["gres"].value, gres)
		has := hardwareOf(effective)
		if first == nil {
			first, parts = &lines[i], has
		} else if !maps.Equal(parts, has) {
			m.problem(l, fmt.Sprintf("the hardware or the features differ from those of the nodes in line %d of %s; "+
				"run setup once for each kind of node", first.number, first.in.path))
		}
		last = &lines[i]
	}
	for _, h := range slices.Sorted(maps.Keys(m.managed)) {
		if !seen[h] {
			m.Problems = append(m.Problems, Problem{m.SlurmConf, 0, "there is no NodeName line for " + h +
				"; correct --nodes"})
			return others
		}
	}
	if last != nil {
		m.partitions(lines, m.catalogue(lines, *last, catalogue, parts), parts["Feature"]+","+parts["Features"])
	}
	return others
}

// realNode sets Gres= in a line that describes managed nodes. It keeps all GRES except gpu and mig.
func (m *merger) realNode(l line, site, gres string) {
	list := items(gres)
	for _, item := range items(site) {
		name, _, _ := strings.Cut(strings.ToLower(item), ":")
		switch {
		case name == "mps" || name == "shard":
			m.problem(l, "Gres= contains "+name+", which Caelum does not manage; remove it")
		case name == "mig" && !slices.Contains(list, item):
			m.problem(l, "Gres= already contains gres/mig with other counts; to change the profiles, follow "+
				"\"New GPUs or a change to profiles\" in docs/install.md")
			return
		case name != "gpu" && name != "mig":
			list = append(list, item)
		}
	}
	value := strings.Join(list, ",")
	count := 0
	for _, w := range l.words {
		if strings.EqualFold(w.key, "Gres") {
			count++
		}
	}
	switch w, ok := l.get("Gres"); {
	case count > 1:
		m.problem(l, "the line contains Gres= more than once; combine the values")
	case ok && sameItems(w.value, value):
	case ok:
		m.set(l, w, value)
	default:
		l.in.extend(l, " Gres="+value)
	}
}

func sameItems(a, b string) bool {
	x, y := items(a), items(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// hardwareOf returns the words of a node's line that its catalogue node also needs.
func hardwareOf(effective map[string]word) map[string]string {
	parts := map[string]string{}
	for _, key := range hardware {
		if w, ok := effective[strings.ToLower(key)]; ok {
			parts[key] = w.value
		}
	}
	return parts
}

// catalogueName matches the NodeName of catalogue nodes.
var catalogueName = regexp.MustCompile(`^mig-catalog(?:\[(\d+)-(\d+)\]|(\d+))$`)

func isCatalogue(l line) bool { return catalogueName.MatchString(l.value("NodeName")) }

// catalogue adds the catalogue nodes below the last line of the managed nodes, where the same NodeName=DEFAULT line
// applies. It returns their NodeName. If slurm.conf already contains catalogue nodes with the same GRES and hardware,
// no nodes are added. The number of the first catalogue node is higher than the numbers of all existing catalogue
// nodes.
func (m *merger) catalogue(lines []line, after, want line, parts map[string]string) string {
	next := 1
	for _, l := range lines {
		if !l.is("NodeName") || !isCatalogue(l) {
			continue
		}
		if sameItems(l.value("Gres"), want.value("Gres")) && l.value("Feature")+l.value("Features") ==
			parts["Feature"]+parts["Features"] {
			return l.value("NodeName")
		}
		numbers := catalogueName.FindStringSubmatch(l.value("NodeName"))
		for _, text := range numbers[1:] {
			if n, err := strconv.Atoi(text); err == nil {
				next = max(next, n+1)
			}
		}
	}
	count := 1
	if numbers := catalogueName.FindStringSubmatch(want.value("NodeName")); numbers != nil {
		count, _ = strconv.Atoi(numbers[2])
	}
	name := fmt.Sprintf("mig-catalog[%d-%d]", next, next+count-1)
	text := "NodeName=" + name
	for _, w := range want.words[1:] {
		if w.key != "CPUs" && w.key != "RealMemory" && w.key != "Gres" {
			text += " " + w.key + "=" + w.value
		}
	}
	for _, key := range hardware {
		if value := parts[key]; value != "" {
			text += " " + key + "=" + quoted(value)
		}
	}
	after.in.insert(after, text+" Gres="+want.value("Gres"))
	return name
}

func quoted(value string) string {
	if strings.ContainsAny(value, " \t") {
		return `"` + value + `"`
	}
	return value
}
