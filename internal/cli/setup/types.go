package setup

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/core/mig"
)

// gpuTypes describes the types of gres/gpu on the managed nodes. Jobs request the site's types, so Caelum keeps them.
type gpuTypes struct {
	// name maps each type in the inventory to the site's type for the same GPUs. It contains no type if the site's
	// GPUs have no types.
	name map[string]string
	// static holds the types of MIG instances with a fixed layout, which the slots replace.
	static map[string]bool
	// untyped is true if a line's GPUs have no type. The line then describes all GPUs of its nodes.
	untyped bool
	// kept maps each type of GPUs that Caelum does not replace to a line that has it.
	kept map[string]nodeLine
}

// replaced reports whether Caelum's slots replace the GPUs of a type.
func (t gpuTypes) replaced(kind string) bool {
	return t.static[kind] || slices.Contains(slices.Collect(maps.Values(t.name)), kind)
}

// whole is the type that docs/configure/isolation.md recommends for a GPU that Caelum does not manage.
const whole = "whole"

// staticName matches the types of MIG instances that end in the name of a profile: 1g.5gb, a100_3g.20gb,
// nvidia_h100_80gb_hbm3_1g.10gb.
var staticName = regexp.MustCompile(`(?i)(?:^|[^a-z0-9.])([0-9]+g\.[0-9]+gb(?:[+.-][a-z0-9.]+)*)$`)

// sizeName matches the types that end in a number of gigabytes: a100_10g, a100_80gb.
var sizeName = regexp.MustCompile(`(?i)[^0-9.]([0-9]+)gb?$`)

// findTypes determines the types of gres/gpu on the managed nodes from their lines in slurm.conf and gres.conf.
func (m *merger) findTypes(nodes []nodeLine, gres []line) {
	m.types = gpuTypes{name: map[string]string{}, static: map[string]bool{}, kept: map[string]nodeLine{}}
	var first *nodeLine
	for i, l := range nodes {
		if !l.inside {
			continue
		}
		all := m.gpus(l)
		name, kept, ok := m.match(l, all, m.evidence(l, gres))
		if !ok || len(all) == 0 {
			continue
		}
		for _, kind := range kept {
			if _, has := m.types.kept[kind]; !has {
				m.types.kept[kind] = l
			}
		}
		switch {
		case len(name) == 0:
		case first == nil:
			m.types.name, first = name, &nodes[i]
		case !maps.Equal(m.types.name, name):
			m.problem(l.line, fmt.Sprintf("the GPU types differ from those of the nodes in line %d of %s; run setup "+
				"once for each type", first.number, first.in.path))
		}
	}
	for kind := range m.types.kept {
		if m.types.replaced(kind) {
			delete(m.types.kept, kind)
		}
	}
	m.renameSections()
}

// evidence is what gres.conf shows about the types of gres/gpu on a node.
type evidence struct {
	types            []string // all types, without duplicates
	slots, instances map[string]bool
}

// evidence returns what gres.conf shows about the types on the nodes of a line of slurm.conf.
func (m *merger) evidence(l nodeLine, gres []line) evidence {
	e := evidence{slots: map[string]bool{}, instances: map[string]bool{}}
	for _, g := range gres {
		kind := g.value("Type")
		if kind == "" || !strings.EqualFold(g.value("Name"), "gpu") || !names(g, l.hosts) {
			continue
		}
		if !slices.Contains(e.types, kind) {
			e.types = append(e.types, kind)
		}
		files := g.value("File") + g.value("MultipleFiles")
		e.slots[kind] = e.slots[kind] || strings.Contains(files, "/caelum/slot")
		e.instances[kind] = e.instances[kind] || strings.Contains(files, "nvidia-cap")
	}
	return e
}

// match assigns the types of one line of slurm.conf to the types in the inventory. It returns the types of the GPUs
// that Caelum does not replace. If it cannot decide, it reports a problem.
func (m *merger) match(l nodeLine, all []gpuItem, e evidence) (name map[string]string, kept []string, ok bool) {
	name = map[string]string{}
	var full []gpuItem // the types of whole GPUs
	untyped := false
	several := slices.ContainsFunc(all, func(g gpuItem) bool { return g.kind != all[0].kind })
	for _, g := range all {
		switch {
		case g.kind == "":
			untyped = true
		case m.isStatic(g, several, e):
			m.types.static[g.kind] = true
		case !slices.ContainsFunc(full, func(f gpuItem) bool { return f.kind == g.kind }):
			full = append(full, g)
		}
	}
	m.types.untyped = m.types.untyped || untyped
	if untyped && len(full) == 0 { // slurmd then uses the types in gres.conf
		for _, kind := range e.types {
			if !m.isStatic(gpuItem{kind: kind}, len(e.types) > 1, e) {
				full = append(full, gpuItem{kind: kind})
			}
		}
		if len(full) > 1 {
			full = nil
		}
	}
	for _, slots := range m.slots {
		found := m.narrow(slots, full, e)
		if len(found) > 1 {
			m.problem(l.line, fmt.Sprintf("Gres= contains GPUs of the types %s, and setup cannot determine which of "+
				"them are the %s GPUs of the inventory; give these GPUs one type whose name contains %s",
				strings.Join(kindsOf(found), " and "), slots.kind, slots.kind))
			return nil, nil, false
		}
		if len(found) == 1 {
			name[slots.kind] = found[0].kind
			m.compareCounts(l, slots, found[0], e)
		}
	}
	for _, f := range full {
		if !slices.Contains(slices.Collect(maps.Values(name)), f.kind) {
			kept = append(kept, f.kind)
		}
	}
	return name, kept, true
}

// narrow returns the types that can be the site's type for an inventory's slots. If there are several, it applies these
// rules in this order, as long as a rule leaves a type: the slots' device files in gres.conf, the name of the type, and
// the number of GPUs.
func (m *merger) narrow(slots gpuItem, full []gpuItem, e evidence) []gpuItem {
	rules := []func(gpuItem) bool{
		func(g gpuItem) bool { return g.kind != whole },
		func(g gpuItem) bool { return e.slots[g.kind] },
		func(g gpuItem) bool { return mig.TypeNames(g.kind, slots.kind) },
		func(g gpuItem) bool { return len(m.slots) == 1 && g.count == m.gpuCount() },
		func(g gpuItem) bool { return strings.EqualFold(g.kind, slots.kind) },
	}
	for _, rule := range rules {
		var left []gpuItem
		for _, g := range full {
			if rule(g) {
				left = append(left, g)
			}
		}
		if len(full) > 1 && len(left) > 0 {
			full = left
		}
	}
	return full
}

// compareCounts adds a note if the inventory has fewer GPUs of a type than the line of the nodes.
func (m *merger) compareCounts(l nodeLine, slots, has gpuItem, e evidence) {
	n := m.gpuCount()
	if len(m.slots) == 1 && n > 0 && has.count > n && has.count != slots.count && !e.slots[has.kind] {
		m.note("%s:%d: each node has %d GPUs of the type %s, but the inventory has %d. Caelum offers only the GPUs of "+
			"the inventory, so check that it comes from one of these nodes and that MIG mode is on for all GPUs.",
			l.in.path, l.number, has.count, has.kind, n)
	}
}

// gpuCount returns the number of GPUs in the inventory: the number of slices of the whole-GPU profile that a catalogue
// node has. The result is too large if the site does not offer that profile.
func (m *merger) gpuCount() int { return m.most[m.wholeProfile] }

// isStatic reports whether a type names MIG instances with a fixed layout. several is true if the node has other types.
func (m *merger) isStatic(g gpuItem, several bool, e evidence) bool {
	if e.slots[g.kind] {
		return false
	}
	return staticName.MatchString(g.kind) || e.instances[g.kind] ||
		(several || g.count > m.gpuCount()) && len(m.ofSize(g.kind)) > 0
}

// ofSize returns the profiles, without that of a whole GPU, whose memory is the number of gigabytes that ends a type.
func (m *merger) ofSize(kind string) (profiles []string) {
	size := sizeName.FindStringSubmatch(kind)
	for _, p := range m.profiles {
		if size != nil && strings.HasSuffix(p, "."+size[1]+"gb") && p != m.wholeProfile {
			profiles = append(profiles, p)
		}
	}
	return profiles
}

// aliases returns the alias lines for the static types whose names do not state a profile. If the profile is not known,
// it adds a note with the possible lines.
func (m *merger) aliases() (lines []string) {
	for _, kind := range slices.Sorted(maps.Keys(m.types.static)) {
		if staticName.MatchString(kind) {
			continue
		}
		profiles := m.ofSize(kind)
		if len(profiles) == 1 {
			lines = append(lines, "alias "+kind+" "+profiles[0])
			continue
		}
		if len(profiles) == 0 {
			profiles = m.profiles
		}
		m.note("The name of the GPU type %s, which stands for MIG instances, does not state their profile. For jobs "+
			"that request this type, add one of these lines to the decision table: alias %s %s.", kind, kind,
			strings.Join(profiles, ", alias "+kind+" "))
	}
	return lines
}

func kindsOf(all []gpuItem) (names []string) {
	for _, g := range all {
		names = append(names, g.kind)
	}
	return names
}

// renameSections replaces the inventory's types with the site's types in the lines to be merged.
func (m *merger) renameSections() {
	sections := maps.Clone(m.Sections)
	var gres, types, models []string
	for _, s := range m.slots {
		name, ok := m.types.name[s.kind]
		if !ok {
			continue
		}
		gres = append(gres, "gpu:"+s.kind+":", "gpu:"+name+":")
		types = append(types, " Type="+s.kind+" ", " Type="+name+" ")
		models = append(models, "\nmodel "+s.kind+" ", "\nmodel "+name+" ")
	}
	sections["nodes"] = strings.NewReplacer(gres...).Replace(sections["nodes"])
	sections["gres.conf"] = strings.NewReplacer(types...).Replace(sections["gres.conf"])
	sections["decisions"] = strings.NewReplacer(models...).Replace(sections["decisions"])
	m.Sections = sections
}

// sumTypes adds up the elements of the same type in a list for Gres=, which exist if the site has one type for several
// GPU models.
func sumTypes(list []string) (all []string) {
	at := map[string]int{}
	for _, item := range list {
		name, count, ok := cutLast(item)
		n, err := strconv.Atoi(count)
		if i, has := at[name]; has && ok && err == nil {
			_, old, _ := cutLast(all[i])
			sum, _ := strconv.Atoi(old)
			all[i] = name + ":" + strconv.Itoa(sum+n)
			continue
		}
		at[name] = len(all)
		all = append(all, item)
	}
	return all
}

// cutLast cuts a string at its last colon.
func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
