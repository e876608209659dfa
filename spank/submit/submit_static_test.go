package jobsubmit

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"caelum/internal/controller/decisions"
)

// This file specifies the requests for static MIG devices and for GPUs that Caelum does not manage.

var deviceWord = regexp.MustCompile(`(?:^|[_.-])([0-9]+g\.[0-9]+gb[a-z0-9.+-]*)$`)

// lower converts the ASCII letters of a text to lower case.
func lower(text string) string {
	return string(slices.Collect(func(yield func(byte) bool) {
		for i := range len(text) {
			c := text[i]
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			if !yield(c) {
				return
			}
		}
	}))
}

// device returns the profile that the type of a static MIG device states, and the longest GPU model in the type. The
// profile is empty for any other type.
func device(kind string, d *decisions.Table) (profile, model string) {
	if d == nil || len(kind) > 128 || len(d.Models[kind]) > 0 {
		return "", ""
	}
	if profile = d.Aliases[kind]; profile == "" {
		m := deviceWord.FindStringSubmatch(lower(kind))
		if m == nil {
			return "", ""
		}
		profile = m[1]
	}
	for _, name := range slices.Sorted(maps.Keys(d.Models)) {
		if len(name) > len(model) && strings.Contains(lower(kind), lower(name)) {
			model = name
		}
	}
	return profile, model
}

// rewritten is a list of GRES in which GPUs replace static MIG devices.
type rewritten struct {
	text     string
	profiles sum  // of the devices
	mixed    bool // the list also requests other GPUs
}

// rewrite replaces the static MIG devices in a list. If there are none, the profiles of the result are empty.
func rewrite(list string, d *decisions.Table) (w rewritten) {
	entries := entriesOf(list)
	gpus, ok := sumOf(entries, "gpu", d)
	if !ok {
		return w
	}
	w.profiles.count = map[string]int{}
	models := map[string]int{}
	for _, kind := range gpus.types {
		profile, model := device(kind, d)
		if profile == "" {
			w.mixed = true
			continue
		}
		w.profiles.add(profile, gpus.count[kind])
		models[model] += gpus.count[kind]
	}
	var texts []string
	for _, e := range entries {
		profile, model := device(e.kind, d)
		if e.name != "gpu" || e.count == 0 || profile == "" {
			texts = append(texts, e.text)
		} else if n := models[model]; n > 0 {
			models[model] = 0
			head := e.text[:strings.Index(e.text, e.name+":"+e.kind)] + "gpu"
			if model != "" {
				head += ":" + model
			}
			texts = append(texts, fmt.Sprintf("%s:%d", head, n))
		}
	}
	w.text = strings.Join(texts, ",")
	return w
}

func (s *sum) add(kind string, n int) {
	if !slices.Contains(s.types, kind) {
		s.types = append(s.types, kind)
	}
	s.count[kind] += n
}

var repeats = map[string]string{ // the variables in which sbatch repeats a request, with the missing prefix
	"SLURM_GPUS": "gres:gpu:", "SLURM_GPUS_PER_NODE": "gres:gpu:", "SLURM_GPUS_PER_SOCKET": "gres:gpu:",
	"SLURM_GPUS_PER_TASK": "gres:gpu:", "SLURM_TRES_PER_TASK": "",
}

var (
	markWord    = regexp.MustCompile(`^[A-Za-z0-9_.+-]+$`)
	untypedWord = regexp.MustCompile(`^(gres[:/]gpu)([:=]?[0-9]*)$`)
	typedWord   = regexp.MustCompile(`gres[:/]gpu:([^,:=]+)`)
)

// marked reports whether the plugin removed a type from a job.
func marked(q fields) bool { return markWord.MatchString(option(q, "static")) }

// restored returns the requests into which the script puts the type back that the plugin removed.
func restored(q fields) fields {
	changed := fields{}
	if plain := requestOf(q, nil); plain.understood && !plain.asks || !marked(q) {
		return changed
	}
	for _, per := range pers {
		list, _ := q["tres_per_"+per].(string)
		entries := strings.Split(list, ",")
		for i, e := range entries {
			entries[i] = untypedWord.ReplaceAllString(e, "${1}:"+option(q, "static")+"${2}")
		}
		if typed := strings.Join(entries, ","); typed != list && len(list) <= maxTRES {
			changed["tres_per_"+per] = typed
		}
	}
	return changed
}

// translate replaces the static MIG devices in a job, or in an update of a job. It returns the changed fields, the
// profile of the devices that the job does not count per node, and whether the request is rejected.
func translate(q fields, d *decisions.Table, submitted bool) (changed fields, profile string, refused bool) {
	changed = fields{}
	all := sum{count: map[string]int{}}
	var types []string
	for _, per := range pers {
		w := rewrite(text(q, "tres_per_"+per), d)
		if len(w.profiles.types) == 0 || per != "node" && !submitted {
			continue
		}
		refused = refused || w.mixed
		prefix := prefixOf(fields{"tres_per_node": w.text})
		for _, name := range w.profiles.types {
			all.add(name, 1)
			if per == "node" {
				w.text += fmt.Sprintf(",%smig:%s:%d", prefix, name, w.profiles.count[name])
			} else {
				profile = name
			}
		}
		for _, m := range typedWord.FindAllStringSubmatch(text(q, "tres_per_"+per), -1) {
			types = append(types, m[1])
		}
		changed["tres_per_"+per] = w.text
		refused = refused || len(w.text) > maxTRES
	}
	if len(changed) == 0 || !submitted {
		return changed, "", refused
	}
	refused = refused || profile != "" && len(all.types) > 1 || text(q, "script") == "" && !marked(q)
	if marked(q) {
		return changed, profile, refused
	}
	if len(types) > 0 {
		changed["environ.CAELUM_STATIC_TYPES"] = strings.Join(types, ",")
	}
	for name, prefix := range repeats {
		value, set := q["environ."+name].(string)
		w := rewrite(prefix+strings.ReplaceAll(value, ",", ","+prefix), d)
		if set && len(value) <= maxTRES && len(w.profiles.types) > 0 && !w.mixed {
			if prefix != "" {
				w.text = strings.ReplaceAll(w.text, prefix, "")
			}
			changed["environ."+name] = w.text
		}
	}
	return changed, profile, refused
}

// with returns a copy of the fields with some changes.
func (q fields) with(changed fields) fields {
	q = maps.Clone(q)
	maps.Copy(q, changed)
	return q
}

// foreign reports whether a table has no GPUs of a type, so that such GPUs have no slices.
func foreign(kind string, d *decisions.Table) bool {
	profile, _ := device(kind, d)
	return profile != "" || kind != "" && len(d.Models) > 0 && len(d.Models[kind]) == 0
}

// managed returns the counts without the GPUs that Caelum does not manage, and whether there are any of these.
func (s sum) managed(d *decisions.Table) (left sum, dropped bool) {
	left.count = map[string]int{}
	for _, kind := range s.types {
		if foreign(kind, d) {
			dropped = true
		} else {
			left.add(kind, s.count[kind])
		}
	}
	return left, dropped
}
