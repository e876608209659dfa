package setup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/slurm"
)

// gresConf replaces the lines of the managed nodes' GPUs in gres.conf. nodes are the lines of slurm.conf.
func (m *merger) gresConf(top *file, lines []line, nodes []nodeLine) {
	others := otherGPUs(nodes)
	m.sharedTypes(nodes)
	wanted, _ := m.generated("gres.conf")
	wanted = wanted[1:] // the first line is AutoDetect=off
	var own []string
	for _, w := range wanted {
		own = append(own, w.form())
	}
	off := "NodeName=" + m.Nodes + " AutoDetect=off"
	present := map[string]bool{}
	global := ""
	for _, l := range lines {
		if w, ok := l.get("AutoDetect"); ok && l.is("AutoDetect") {
			global = strings.ToLower(w.value)
		}
		switch form := l.form(); {
		case slices.Contains(own, form), form == "nodename="+m.Nodes+" autodetect=off":
			present[form] = true
		case m.replaces(l, others):
			m.lost(l)
			l.in.remove(l)
		default:
			m.matchFlags(l)
		}
	}
	m.keptWithoutLine(lines)
	switch {
	case global == "off" || present["nodename="+m.Nodes+" autodetect=off"]:
	case global == "" && len(others) == 0:
		top.tail = append(top.tail, "AutoDetect=off")
	default:
		top.tail = append(top.tail, off)
	}
	for i, w := range wanted {
		if !present[own[i]] {
			top.tail = append(top.tail, w.text)
		}
	}
}

// otherGPUs returns the lines of the nodes that have GPUs but are not in --nodes.
func otherGPUs(nodes []nodeLine) (others []nodeLine) {
	for _, l := range nodes {
		if l.apart && slices.ContainsFunc(l.gres(), isGPU) {
			others = append(others, l)
		}
	}
	return others
}

// replaces reports whether a line of gres.conf describes the GPUs of managed nodes and must therefore be replaced by
// Caelum's lines.
func (m *merger) replaces(l line, others []nodeLine) bool {
	name := strings.ToLower(l.value("Name"))
	nodes, limited := l.get("NodeName")
	_, detects := l.get("AutoDetect")
	if !slices.Contains([]string{"gpu", "mig", "mps", "shard"}, name) && !(limited && detects && name == "") {
		return false
	}
	if limited {
		_, inside, _ := m.overlap(l, nodes.value)
		if inside && (name == "mps" || name == "shard" && !m.replacesShards()) {
			m.problem(l, "Caelum does not manage gres/"+name+"; remove the line")
		}
		return inside && m.describesReplaced(l)
	}
	if _, kept := m.types.kept[l.value("Type")]; name == "gpu" && kept {
		return false
	}
	if names := m.users(l, others); len(names) > 0 {
		l.in.edits = append(l.in.edits, edit{l.from, l.from, "NodeName=" + strings.Join(names, ",") + " "})
		return false
	}
	if name == "mps" || name == "shard" && !m.replacesShards() {
		m.problem(l, "Caelum does not manage gres/"+name+"; remove the line")
	}
	return m.describesReplaced(l)
}

// users returns the NodeName expressions of the other nodes to which a line without NodeName= also applies. If the line
// has a type, these are the nodes with GPUs of this type. gresConf limits the line to these nodes.
func (m *merger) users(l line, others []nodeLine) (names []string) {
	kind := l.value("Type")
	for _, o := range others {
		gpus := m.gpus(o)
		has := func(g gpuItem) bool { return kind == "" || g.kind == "" || g.kind == kind }
		if !o.caelum() && slices.ContainsFunc(gpus, has) {
			names = append(names, o.value("NodeName"))
		}
	}
	return names
}

// describesReplaced reports whether Caelum replaces the resources that a line for managed nodes describes. It does not
// replace GPUs of other types. It reports a problem for a line that may describe GPUs of several types.
func (m *merger) describesReplaced(l line) bool {
	kind := l.value("Type")
	if !strings.EqualFold(l.value("Name"), "gpu") {
		return true
	}
	if kind != "" {
		named := func(s gpuItem) bool { return mig.TypeNames(kind, s.kind) }
		_, kept := m.types.kept[kind]
		return !kept && (m.types.replaced(kind) || m.types.untyped || slices.ContainsFunc(m.slots, named))
	}
	if len(m.types.kept) > 0 {
		m.problem(l, fmt.Sprintf("the line has no Type=, but slurm.conf also lists GPUs of the type %s, which Caelum "+
			"does not replace; write one line with Type= for each type",
			slices.Min(slices.Collect(maps.Keys(m.types.kept)))))
		return false
	}
	return true
}

// keptWithoutLine reports a problem for each type of GPUs that Caelum does not replace and that gres.conf does not
// name: without AutoDetect, slurmd would not find these GPUs.
func (m *merger) keptWithoutLine(lines []line) {
	for _, kind := range slices.Sorted(maps.Keys(m.types.kept)) {
		l := m.types.kept[kind]
		m.note("%s keeps its GPUs of the type %s, which Slurm allocates without slices. Set ConstrainDevices=yes in "+
			"cgroup.conf: otherwise, Slurm numbers them after the slots, and CUDA_VISIBLE_DEVICES of their jobs is "+
			"wrong.", l.value("NodeName"), kind)
		if !slices.ContainsFunc(lines, func(g line) bool { return g.value("Type") == kind && names(g, l.hosts) }) {
			m.problem(l.line, fmt.Sprintf("Gres= contains GPUs of the type %s, which Caelum does not replace, but "+
				"AutoDetect must be off on these nodes; add `NodeName=%s Name=gpu Type=%s File=/dev/nvidiaN "+
				"Flags=%s` to gres.conf", kind, l.value("NodeName"), kind, slotFlags))
		}
	}
}

// slotFlags is the value of Flags= in Caelum's lines.
const slotFlags = "nvidia_gpu_env"

// matchFlags gives the line of a type that Caelum does not replace the same Flags= as the slots: slurmd does not start
// if two lines for gres/gpu on the same node have different flags for environment variables (22.05.8).
func (m *merger) matchFlags(l line) {
	kept, ok := m.types.kept[l.value("Type")]
	if !ok || !strings.EqualFold(l.value("Name"), "gpu") || !names(l, kept.hosts) {
		return
	}
	flags, set := l.get("Flags")
	_, limited := l.get("NodeName")
	switch {
	case set && strings.EqualFold(flags.value, slotFlags):
	case !set && limited:
		l.in.extend(l, " Flags="+slotFlags)
	default:
		m.problem(l, fmt.Sprintf("slurmd requires the same flags in all lines for the GPUs of a node; write a line "+
			"with NodeName=%s and Flags=%s", kept.value("NodeName"), slotFlags))
	}
}

// names reports whether a line of gres.conf applies to one of the hosts.
func names(l line, hosts []string) bool {
	nodes, limited := l.get("NodeName")
	if !limited {
		return true
	}
	listed, _ := slurm.ExpandHosts(nodes.value)
	return slices.ContainsFunc(hosts, func(h string) bool { return slices.Contains(listed, h) })
}

// sharedTypes adds a note about each type of the managed GPUs that other nodes also have.
func (m *merger) sharedTypes(nodes []nodeLine) {
	for _, kind := range slices.Sorted(maps.Values(m.types.name)) {
		var unmanaged, other []string
		for _, l := range nodes {
			if !l.apart || !slices.ContainsFunc(m.gpus(l), func(g gpuItem) bool { return g.kind == kind }) {
				continue
			}
			if l.caelum() {
				other = append(other, l.value("NodeName"))
			} else {
				unmanaged = append(unmanaged, l.value("NodeName"))
			}
		}
		if len(unmanaged) > 0 {
			m.note("These nodes, which are not converted, also have GPUs of the type %s: %s. A job that requests "+
				"this type gets a slice on the converted nodes, but a whole GPU on these nodes.", kind,
				strings.Join(unmanaged, ", "))
		}
		if len(other) > 0 && !m.sameProfiles(nodes) {
			m.note("These nodes, which Caelum also manages, also have GPUs of the type %s, but with other profiles: "+
				"%s. A job that requests this type can get a slice on either GPU model. To let jobs choose the model, "+
				"give each model its own type.", kind, strings.Join(other, ", "))
		}
	}
}

// sameProfiles reports whether all managed nodes have the same profiles.
func (m *merger) sameProfiles(nodes []nodeLine) bool {
	return len(m.profilesOf(nodes)) == len(m.profiles)
}

// lost adds a note about the options of a removed line that Caelum's lines do not have.
func (m *merger) lost(l line) {
	var options []string
	for _, w := range l.words {
		switch key := strings.ToLower(w.key); {
		case key == "cores" || key == "links" || key == "flags" && !strings.EqualFold(w.value, slotFlags) &&
			!strings.EqualFold(w.value, "CountOnly"):
			options = append(options, w.key+"="+w.value)
		}
	}
	if len(options) > 0 {
		m.note("%s:%d: setup removes the line with %s. A slot can be a slice of any of the node's GPUs, so Slurm no "+
			"longer prefers the CPU cores or links of one GPU.", l.in.path, l.number, strings.Join(options, " "))
	}
}
