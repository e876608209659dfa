package setup

import (
	"slices"
	"strings"
)

// gresConf replaces the lines of the managed nodes' GPUs in gres.conf. others lists the other nodes that have GPUs.
func (m *merger) gresConf(others gpuNodes) {
	top, lines := m.load(m.beside("gres.conf"))
	if top == nil {
		return
	}
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
			l.in.remove(l)
		}
	}
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

// replaces reports whether a line of gres.conf describes the GPUs of managed nodes and must therefore be replaced by
// Caelum's lines.
func (m *merger) replaces(l line, others gpuNodes) bool {
	name := strings.ToLower(l.value("Name"))
	nodes, limited := l.get("NodeName")
	_, detects := l.get("AutoDetect")
	if !slices.Contains([]string{"gpu", "mig", "mps", "shard"}, name) && !(limited && detects && name == "") {
		return false
	}
	if limited {
		_, inside, _ := m.overlap(l, nodes.value)
		if inside && (name == "mps" || name == "shard") {
			m.problem(l, "Caelum does not manage gres/"+name+"; remove the line")
		}
		return inside
	}
	if len(others) > 0 {
		m.problem(l, "the line applies to all nodes, including "+others[0]+", which is not in --nodes; begin the line "+
			"with NodeName=")
		return false
	}
	if name == "mps" || name == "shard" {
		m.problem(l, "Caelum does not manage gres/"+name+"; remove the line")
	}
	return true
}
