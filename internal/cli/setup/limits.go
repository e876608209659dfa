package setup

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/core/mig"
)

// limits adds notes about the site's settings whose values apply to each GPU. With Caelum, they apply to each slice, so
// that values for whole GPUs are too large. Only the site can decide how to change weights. For DefCpuPerGPU and
// DefMemPerGPU, limits adds lines to the decision table, with which jobs get the share of their slices.
func (m *merger) limits(lines []line, parts []partition, nodes []nodeLine) {
	global := map[string]int{}
	for _, l := range lines {
		if describesObject(l) {
			continue
		}
		perGPU(l, global)
		if w, ok := l.get("PriorityWeightTRES"); ok {
			m.weights(l, w, "gives a job with a slice as much priority as one with a whole GPU", nil)
		}
	}
	defaults := maps.Clone(global)
	var of []string
	for _, p := range parts {
		if p.isDefault() {
			defaults = maps.Clone(global)
			perGPU(p.line, defaults)
		} else if p.managed(nodes) {
			own := maps.Clone(defaults)
			perGPU(p.line, own)
			for _, name := range items(p.name) {
				if cpus, mib := own["defcpupergpu"], own["defmempergpu"]; cpus > 0 || mib > 0 {
					m.perGPU = append(m.perGPU, fmt.Sprintf("per_gpu %s %d %d", name, cpus, mib))
					of = append(of, name)
				}
			}
		}
		if w, ok := p.get("TRESBillingWeights"); ok && (p.managed(nodes) || p.isDefault()) {
			m.weights(p.line, w, "of partition "+p.name+" bills a slice as a whole GPU", m.typesIn(p, nodes))
		}
	}
	if len(of) > 0 {
		m.note("DefCpuPerGPU or DefMemPerGPU apply to these partitions: %s. With the per_gpu lines of the decision "+
			"table, a job gets the share of its slice instead of the value for a whole GPU. If you change a value, "+
			"change the line as well.", strings.Join(of, ", "))
	}
}

// perGPU sets the values of DefCpuPerGPU and DefMemPerGPU, which JobDefaults can also contain, by key in lower case.
func perGPU(l line, values map[string]int) {
	settings := slices.Clone(l.words)
	if w, ok := l.get("JobDefaults"); ok {
		for _, item := range items(w.value) {
			key, value, _ := strings.Cut(item, "=")
			settings = append(settings, word{key: key, value: value})
		}
	}
	for _, w := range settings {
		n, err := strconv.Atoi(w.value)
		if key := strings.ToLower(w.key); err == nil && (key == "defcpupergpu" || key == "defmempergpu") {
			values[key] = n
		}
	}
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

// share returns the share of a GPU that a profile occupies: the larger one of its shares of the compute slices and of
// the memory of the whole GPU's profile. For a fraction of a GPU without MIG, it is the share of the units.
func (m *merger) share(profile string) float64 {
	if units := m.units[profile]; units > 0 {
		return float64(mig.Units(profile)) / float64(units)
	}
	compute, gb := mig.Claims(profile)
	most, all := mig.Claims(m.wholeProfile)
	if compute == 0 || most == 0 {
		return 1
	}
	return max(float64(compute)/float64(most), gb/all)
}
