package jobsubmit

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/controller/decisions"
)

// This file specifies the requests for static MIG devices, for shards and for GPUs that Caelum does not manage.

var deviceWord = regexp.MustCompile(`(?:^|[_.-])([0-9]+[fg]\.[0-9]+gb[a-z0-9.+-]*)$`)

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

// hasShards reports whether a request to the partitions names shards, and whether the table has lines for shards.
func hasShards(q fields, partition string, d *decisions.Table) bool {
	return managed(partition) && len(d.Shards) > 0 && slices.ContainsFunc(pers, func(per string) bool {
		list := text(q, "tres_per_"+per)
		list = list[:min(len(list), maxTRES)]
		return strings.Contains(list, "gres:shard") || strings.Contains(list, "gres/shard")
	})
}

// withShards returns the entries, with one GPU of the type shard:<type>:<number> in place of shards.
func withShards(list []entry, d *decisions.Table) []entry {
	for i, e := range list {
		if e.name == "shard" && e.count != 0 && d != nil && len(d.Shards) > 0 {
			list[i].name, list[i].kind, list[i].count = "gpu", "shard:"+e.kind+":"+e.number, 1
		}
	}
	return list
}

// enough returns the profile and the GPU model for a number of shards. The profile is empty if no line is large enough.
func enough(of, number string, d *decisions.Table) (profile, model string) {
	if n, err := strconv.Atoi(number); err == nil {
		for _, most := range slices.Sorted(maps.Keys(d.Shards[of])) {
			if profile == "" && n <= most {
				profile = d.Shards[of][most]
			}
		}
	}
	if len(d.Models) == 0 || len(d.Models[of]) > 0 {
		model = of
	}
	return profile, model
}

// device returns the profile that the type of a static MIG device or of shards states, and the longest GPU model in the
// type. The profile is empty for any other type.
func device(kind string, d *decisions.Table) (profile, model string) {
	if shard := strings.Split(kind, ":"); len(shard) == 3 {
		return enough(shard[1], shard[2], d)
	}
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
	tooMany  bool // the list requests more shards than a GPU has
}

// rewrite replaces the static MIG devices in a list. If there are none, the profiles of the result are empty.
func rewrite(list string, d *decisions.Table) (w rewritten) {
	entries := withShards(entriesOf(list), d)
	gpus, ok := sumOf(entries, "gpu", d)
	if !ok {
		return w
	}
	w.profiles.count = map[string]int{}
	models := map[string]int{}
	for _, kind := range gpus.types {
		profile, model := device(kind, d)
		if profile == "" {
			w.mixed, w.tooMany = true, w.tooMany || strings.Contains(kind, ":")
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
			head := gresHead.FindString(e.text)
			head = head[:len(head)-1] + "gpu"
			if model != "" {
				head += ":" + model
			}
			texts = append(texts, fmt.Sprintf("%s:%d", head, n))
		}
	}
	w.text = strings.Join(texts, ",")
	return w
}

// gresHead matches an entry up to the first letter of its GRES.
var gresHead = regexp.MustCompile(`(?s)^.*?gres[:/][^:=]`)

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
		refused = refused || w.tooMany && (per == "node" || submitted)
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
		if set && len(value) <= maxTRES && len(w.profiles.types) > 0 && !w.mixed && !w.tooMany {
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
