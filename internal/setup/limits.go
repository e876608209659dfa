package setup

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// limits adds notes about the site's settings whose values apply to each GPU. With Caelum, they apply to each slice, so
// that values for whole GPUs are too large. Only the site can decide how to change them.
func (m *merger) limits(lines []line, parts []partition, nodes []nodeLine) {
	for _, l := range lines {
		if describesObject(l) {
			continue
		}
		m.perGPU(l, "", nodes)
		if w, ok := l.get("PriorityWeightTRES"); ok {
			m.weights(l, w, "gives a job with a slice as much priority as one with a whole GPU", nil)
		}
	}
	for _, p := range parts {
		if !p.managed(nodes) && !p.isDefault() {
			continue
		}
		m.perGPU(p.line, " of partition "+p.name, nodes)
		if w, ok := p.get("TRESBillingWeights"); ok {
			m.weights(p.line, w, "of partition "+p.name+" bills a slice as a whole GPU", m.typesIn(p, nodes))
		}
	}
}

// perGPU adds notes about DefCpuPerGPU and DefMemPerGPU, which JobDefaults can also contain.
func (m *merger) perGPU(l line, of string, nodes []nodeLine) {
	settings := slices.Clone(l.words)
	if w, ok := l.get("JobDefaults"); ok {
		for _, item := range items(w.value) {
			key, value, _ := strings.Cut(item, "=")
			settings = append(settings, word{key: key, value: value})
		}
	}
	for _, w := range settings {
		has, unit := 0, "CPUs"
		switch strings.ToLower(w.key) {
		case "defcpupergpu":
			has = smallest(nodes, nodeLine.cpus)
		case "defmempergpu":
			has, unit = smallest(nodes, func(l nodeLine) int { return l.integer("RealMemory") }), "MiB"
		default:
			continue
		}
		each, err := strconv.Atoi(w.value)
		slots := m.slotCount()
		switch {
		case err != nil || each <= 0 || has > 0 && each*slots <= has:
		case has == 0:
			m.note("%s:%d: %s=%s%s applies to each slice. A node has %d slots; write a value with which all of them "+
				"fit.", l.in.path, l.number, w.key, w.value, of, slots)
		default:
			m.note("%s:%d: %s=%s%s applies to each slice. With %d %s and %d slots per node, only %d slices of a node "+
				"can be in use at the same time; write %s=%d.", l.in.path, l.number, w.key, w.value, of, has, unit,
				slots, has/each, w.key, max(has/slots, 1))
		}
	}
}

func (m *merger) slotCount() (count int) {
	for _, s := range m.slots {
		count += s.count
	}
	return count
}

// smallest returns the smallest positive value of a number among the lines of the managed nodes, or 0.
func smallest(nodes []nodeLine, of func(nodeLine) int) (least int) {
	for _, l := range nodes {
		if n := of(l); l.inside && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// number returns the value of a key that applies to the nodes, or 0 if there is none.
func (l nodeLine) integer(key string) int {
	n, _ := strconv.Atoi(l.effective[strings.ToLower(key)].value)
	return n
}

// cpus returns the number of CPUs of a node, or 0 if its line does not state it.
func (l nodeLine) cpus() int {
	if n := max(l.integer("CPUs"), l.integer("Procs")); n > 0 {
		return n
	}
	sockets := max(l.integer("Sockets"), l.integer("SocketsPerBoard")*max(l.integer("Boards"), 1))
	return sockets * max(l.integer("CoresPerSocket"), 1) * max(l.integer("ThreadsPerCore"), 1)
}

// weights adds a note if a list of TRES weights contains a weight for the GPUs that Caelum manages. others lists the
// types of other GPUs to which a weight without a type also applies.
func (m *merger) weights(l line, w word, effect string, others []string) {
	list := items(w.value)
	bySize := func(item string) bool { return strings.HasPrefix(strings.ToLower(item), "gres/mig:") }
	if slices.ContainsFunc(list, bySize) {
		return
	}
	for _, item := range list {
		key, value, _ := strings.Cut(item, "=")
		weight, err := strconv.ParseFloat(value, 64)
		_, kind, typed := strings.Cut(key, ":")
		if gres, _, _ := strings.Cut(strings.ToLower(key), ":"); gres != "gres/gpu" || err != nil || weight == 0 ||
			typed && !m.types.replaced(kind) {
			continue
		}
		var instead []string
		for _, p := range m.profiles {
			instead = append(instead, "GRES/mig:"+p+"="+rounded(weight*m.share(p)))
		}
		for _, other := range others {
			if !typed {
				instead = append(instead, fmt.Sprintf("GRES/gpu:%s=%s", other, value))
			}
		}
		m.note("%s:%d: %s with %s %s. To weight slices by their size, replace %s with %s.", l.in.path, l.number, w.key,
			item, effect, item, strings.Join(instead, ","))
	}
}

// rounded formats a number with at most two digits after the decimal point.
func rounded(n float64) string { return strconv.FormatFloat(math.Round(n*100)/100, 'f', -1, 64) }

// typesIn returns the types of the GPUs in a partition that Caelum does not manage.
func (m *merger) typesIn(p partition, nodes []nodeLine) (types []string) {
	for _, l := range nodes {
		if !p.has(l) || !l.apart || l.caelum() {
			continue
		}
		for _, g := range m.gpus(l) {
			if g.kind != "" && !slices.Contains(types, g.kind) {
				types = append(types, g.kind)
			}
		}
	}
	return types
}

// profileName matches a profile, and its numbers of compute slices and of gigabytes.
var profileName = regexp.MustCompile(`^([0-9]+)g\.([0-9]+)gb`)

// share returns the share of a GPU that a profile occupies: the larger one of its shares of the compute slices and of
// the memory of the whole GPU's profile.
func (m *merger) share(profile string) float64 {
	p, all := profileName.FindStringSubmatch(profile), profileName.FindStringSubmatch(m.wholeProfile)
	if p == nil || all == nil {
		return 1
	}
	ratio := func(i int) float64 {
		part, _ := strconv.ParseFloat(p[i], 64)
		sum, _ := strconv.ParseFloat(all[i], 64)
		return part / sum
	}
	return max(ratio(1), ratio(2))
}
