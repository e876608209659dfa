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

// hardware lists the keys of a NodeName line that have the same value for a catalogue node as for the real nodes,
// because they decide which requests a node can satisfy. CPUs and Procs are the same parameter, as are Feature and
// Features.
var hardware = []string{"CPUs", "Procs", "Boards", "SocketsPerBoard", "Sockets", "CoresPerSocket", "ThreadsPerCore",
	"RealMemory", "TmpDisk", "CoreSpecCount", "CpuSpecList", "MemSpecLimit", "Feature", "Features"}

// kind is a group of managed nodes with the same hardware, features and GRES. Each kind has its own catalogue nodes.
type kind struct {
	lines []line
	last  nodeLine          // the last of these lines
	parts map[string]string // the words for the catalogue nodes, by key
	gres  string            // the value of Gres= for the catalogue nodes
}

// kinds returns the kinds of the managed nodes.
func (m *merger) kinds(nodes []nodeLine) (all []kind) {
	generated, _ := m.generated("nodes")
	most := withEquivalents(sumTypes(items(generated[1].value("Gres"))), m.profilesOf(nodes))
	for _, l := range nodes {
		if !l.inside {
			continue
		}
		k := kind{[]line{l.line}, l, l.hardware(), strings.Join(append(slices.Clone(most), m.others(l)...), ",")}
		same := func(o kind) bool { return maps.Equal(o.parts, k.parts) && sameItems(o.gres, k.gres) }
		i := slices.IndexFunc(all, same)
		if i < 0 {
			all = append(all, k)
		} else {
			all[i].lines, all[i].last = append(all[i].lines, l.line), l
		}
	}
	return all
}

// withEquivalents adds the profiles of the site's other GPU models to the Gres= of a catalogue node, if its own model
// has an equivalent profile, which the agents can offer under that name. The count is that of the equivalent profile.
func withEquivalents(list, profiles []string) []string {
	all := slices.Clone(list)
	for _, profile := range profiles {
		compute, gb := mig.Claims(profile)
		own := func(item string) bool { return strings.HasPrefix(item, "mig:"+profile+":") }
		if compute == 0 || !mig.Plain(mig.Profile{Name: profile}) || slices.ContainsFunc(list, own) {
			continue
		}
		for _, item := range list { // from small to large
			gres, count, _ := cutLast(item)
			name, isSlice := strings.CutPrefix(gres, "mig:")
			c, m := mig.Claims(name)
			if isSlice && (c >= compute && m >= gb && mig.Plain(mig.Profile{Name: name}) ||
				name == mig.Full && withoutMIG(list)) {
				all = append(all, "mig:"+profile+":"+count)
				break
			}
		}
	}
	return all
}

// withoutMIG reports whether the GPUs in the Gres= of a node do not support MIG.
func withoutMIG(list []string) bool {
	return !slices.ContainsFunc(list, func(item string) bool {
		parts := strings.Split(item, ":")
		return parts[0] == "mig" && parts[1] != mig.Full && parts[1] != "closed" && !mig.IsFraction(parts[1]) ||
			parts[0] == "gpu" && len(parts) > 2 && slices.ContainsFunc(mig.Models(), func(b *mig.Model) bool {
				return mig.TypeNames(parts[1], b.Type)
			})
	})
}

// hardware returns the words of a node's line that its catalogue node also needs.
func (l nodeLine) hardware() map[string]string {
	parts := map[string]string{}
	for _, key := range hardware {
		if w, ok := l.effective[strings.ToLower(key)]; ok {
			parts[key] = w.value
		}
	}
	return parts
}

// catalogueName matches the NodeName of catalogue nodes.
var catalogueName = regexp.MustCompile(`^mig-catalog(?:\[(\d+)-(\d+)\]|(\d+))$`)

func isCatalogue(l line) bool { return catalogueName.MatchString(l.value("NodeName")) }

// catalogues adds the catalogue nodes of each kind, and returns the kinds' NodeName expressions for them. If slurm.conf
// already contains catalogue nodes for a kind, it adds only their missing GRES.
func (m *merger) catalogues(lines []line, kinds []kind) (names []string) {
	next := 1
	var existing []line
	for _, l := range lines {
		if !l.is("NodeName") || !isCatalogue(l) {
			continue
		}
		existing = append(existing, l)
		for _, text := range catalogueName.FindStringSubmatch(l.value("NodeName"))[1:] {
			if n, err := strconv.Atoi(text); err == nil {
				next = max(next, n+1)
			}
		}
	}
	generated, _ := m.generated("nodes")
	want := generated[1]
	count := 1
	if numbers := catalogueName.FindStringSubmatch(want.value("NodeName")); numbers != nil {
		count, _ = strconv.Atoi(numbers[2])
	}
	all, others := assign(kinds, existing)
	for _, l := range all {
		if l.found != nil {
			names = append(names, l.found.value("NodeName"))
			m.setItems(nodeLine{line: *l.found}, items(l.gres))
			continue
		}
		name := fmt.Sprintf("mig-catalog[%d-%d]", next, next+count-1)
		next += count
		names = append(names, name)
		l.last.in.insert(l.last.line, l.text(name, want))
	}
	for _, l := range others { // the catalogue nodes of other GPU models
		m.setItems(nodeLine{line: l}, withEquivalents(items(l.value("Gres")), m.profiles))
	}
	return names
}

// assigned is a kind with its existing line of catalogue nodes, or nil if it has none.
type assigned struct {
	kind
	found *line
}

// assign assigns the existing lines of catalogue nodes to the kinds: first those with all GRES, then those that lack
// some, which earlier releases wrote. It also returns the lines that belong to none of the kinds.
func assign(kinds []kind, existing []line) (all []assigned, others []line) {
	for _, k := range kinds {
		all = append(all, assigned{k, nil})
	}
	for _, complete := range []bool{true, false} {
		for i := range all {
			at := slices.IndexFunc(existing, func(l line) bool {
				return all[i].has(l) && (!complete || sameItems(l.value("Gres"), all[i].gres))
			})
			if all[i].found == nil && at >= 0 {
				l := existing[at]
				all[i].found, existing = &l, slices.Delete(existing, at, at+1)
			}
		}
	}
	return all, existing
}

// has reports whether an existing line describes catalogue nodes of the kind. The line may lack GRES.
func (k kind) has(l line) bool {
	for _, item := range items(l.value("Gres")) {
		if !slices.Contains(items(k.gres), item) {
			return false
		}
	}
	for _, key := range hardware {
		if w, ok := l.get(key); ok && w.value != k.parts[key] {
			return false
		}
	}
	return l.value("Feature")+l.value("Features") == k.parts["Feature"]+k.parts["Features"]
}

// text returns the line of the kind's catalogue nodes. want is the line that `caelum slurm-config` prints.
func (k kind) text(name string, want line) string {
	text := "NodeName=" + name
	for _, w := range want.words[1:] {
		if w.key != "CPUs" && w.key != "RealMemory" && w.key != "Gres" {
			text += " " + w.key + "=" + w.value
		}
	}
	for _, key := range hardware {
		if value := k.parts[key]; value != "" {
			text += " " + key + "=" + quoted(value)
		}
	}
	return text + " Gres=" + k.gres
}

func quoted(value string) string {
	if strings.ContainsAny(value, " \t") {
		return `"` + value + `"`
	}
	return value
}
