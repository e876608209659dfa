package jobsubmit

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/decisions"
	"caelum/internal/predict"
)

// What README.md says becomes of a request, written down once more and without regard to speed.

// oracleTable is what the jobs of the fuzz targets are submitted under; learned lines may follow.
const oracleTable = "caelum-decisions 1 1\npartition gpu\npartition gpu-long\nprofile 1g.5gb 4864\nprofile 1g.5gb+me 4864\nprofile 2g.10gb 9856\nprofile 4g.20gb\n" +
	"profile 7g.40gb 40192\nmodel h100 1g.5gb\nmodel h100 4g.20gb\nmodel h100 7g.40gb\nmodel a100 1g.5gb\ndefault 2g.10gb\nmax_nodes 2\n"

var (
	gresWord    = regexp.MustCompile(`(?s)gres[:/]([^:=]+)(.*)$`)
	typeWord    = regexp.MustCompile(`(?s)^:([^:=]*[A-Za-z][^:=]*)(.*)$`)
	profileWord = regexp.MustCompile(`^([0-9]+)g\.([0-9]+)gb$`)
	countWord   = regexp.MustCompile(`^[:=]([0-9]+)$`)
	sizeWord    = regexp.MustCompile(`^([0-9]{1,9})([kKmMgGtT]?)$`)
)

type entry struct {
	text, name, kind string
	count            int // -1: not understood
}

func entriesOf(list string) (out []entry) {
	if len(list) > 1024 {
		return nil
	}
	for _, text := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		e := entry{text: text, count: -1}
		if m := gresWord.FindStringSubmatch(text); m != nil {
			e.name = m[1]
			rest := m[2]
			if k := typeWord.FindStringSubmatch(rest); k != nil {
				e.kind, rest = k[1], k[2]
			}
			if rest == "" {
				e.count = 1
			} else if c := countWord.FindStringSubmatch(rest); c != nil {
				if n, err := strconv.Atoi(c[1]); err == nil && n <= 65533 {
					e.count = n
				}
			}
		}
		out = append(out, e)
	}
	return out
}

// sum is one GRES of a request: counts by type, "" for none, in the order in which they came.
type sum struct {
	types []string
	count map[string]int
}

func (s sum) all() (n int) {
	for _, c := range s.count {
		n += c
	}
	return n
}

func sumOf(list []entry, name string) (s sum, ok bool) {
	s.count = map[string]int{}
	for _, e := range list {
		if e.name != name {
			continue
		}
		letter := e.kind == "" || ('a' <= e.kind[0]|0x20 && e.kind[0]|0x20 <= 'z')
		if e.count < 0 || name == "gpu" && !letter {
			return s, false
		}
		if e.count > 0 {
			if !slices.Contains(s.types, e.kind) {
				s.types = append(s.types, e.kind)
			}
			s.count[e.kind] = e.count
		}
	}
	return s, true
}

// times is n*factor/divisor of every type, if that comes out even.
func (s sum) times(factor, divisor int) (sum, bool) {
	out := sum{types: s.types, count: map[string]int{}}
	for kind, n := range s.count {
		if n*factor%divisor != 0 {
			return out, false
		}
		out.count[kind] = n * factor / divisor
	}
	return out, true
}

// outcome of a request: none asks for no GPU, else it is refused, or its per-node string, key and hold are these.
type outcome struct {
	none, refused bool
	kept, added   []string
	stamp         stamp
	sized         string // the profile, where nobody named it
	runs          int    // seconds that it is expected to run; 0: nobody knows
	told          string // what the user is told
	hold          bool
}

func text(q fields, name string) string {
	s, _ := q[name].(string)
	return s
}

// set is a number that is there, as Slurm means it: 0 and the two highest of 16 bits are not.
func set(q fields, name string) int {
	if v, ok := q[name].(float64); ok && v >= 1 && v <= 65533 {
		return int(v)
	}
	return 0
}

// stamp is by what a job's earlier runs are found.
type stamp struct {
	uid       uint32
	key, work string // no work: it has no script
}

// learned is what a table says of a job's work; nil: nothing.
func learned(d decisions.Table, s stamp) *decisions.Learned {
	l, ok := d.Key[s.key]
	if !ok && s.work != "" {
		if l, ok = d.User[fmt.Sprintf("%d:%s", s.uid, s.work)]; !ok {
			l, ok = d.Site[s.work]
		}
	}
	if !ok {
		return nil
	}
	return &l
}

// size is the profile of untyped slices; sized: nobody named it. Not ok: it is refused.
func size(q fields, d decisions.Table, known *decisions.Learned) (profile string, sized bool, told string, ok bool) {
	mig, mem := option(q, "mig"), option(q, "mig_mem")
	has := map[string]int{}
	for _, p := range d.Profiles {
		has[p.Name] = p.MiB
	}
	named := mig
	switch mig {
	case "auto":
		named = ""
	case "off":
		named = d.Whole
	}
	if _, listed := has[named]; named != "" && !listed {
		return "", false, "", false
	}
	sized = named == "" || mig == "off"
	switch {
	case mem == "" && named != "":
		return named, sized, "", true
	case mem == "" && known != nil:
		return known.Profile, true, "", true
	case mem == "":
		return d.Default, true, "", true
	}
	m := sizeWord.FindStringSubmatch(mem)
	if m == nil || strings.Trim(m[1], "0") == "" {
		return "", false, "", false
	}
	n, _ := strconv.Atoi(m[1])
	kib := n << map[string]int{"k": 0, "": 10, "m": 10, "g": 20, "t": 30}[strings.ToLower(m[2])]
	enough := func(p string) bool { return has[p]<<10 >= kib }
	if named != "" {
		return named, sized, "", enough(named)
	}
	for _, p := range d.Profiles {
		if enough(p.Name) && (profile == "" || p.MiB < has[profile]) {
			profile = p.Name
		}
	}
	if known != nil && has[profile] < has[known.Profile] {
		told = fmt.Sprintf("caelum: --mig-mem=%s gives %s, and by its earlier runs this job needs %s", mem, profile, known.Profile)
	}
	return profile, true, told, profile != ""
}

// onModel is the profile that Caelum chose, or what the model that the request names has in its place.
func onModel(d decisions.Table, models []string, profile string) string {
	if len(models) != 1 || len(d.Models[models[0]]) == 0 {
		return profile
	}
	of := d.Models[models[0]]
	if slices.Contains(of, profile) {
		return profile
	}
	promises := func(name string) (compute, gb int) {
		if m := profileWord.FindStringSubmatch(name); m != nil {
			compute, _ = strconv.Atoi(m[1])
			gb, _ = strconv.Atoi(m[2])
		}
		return compute, gb
	}
	if compute, gb := promises(profile); compute > 0 {
		for _, name := range of {
			if c, m := promises(name); c >= compute && m >= gb {
				return name
			}
		}
	}
	return of[len(of)-1]
}

// oracle says what becomes of a job under a table. stamped is what a waiting job has; nil: it is submitted only now.
func oracle(q fields, d decisions.Table, stamped *stamp) outcome {
	lists, gpu, mig := map[string][]entry{}, map[string]sum{}, map[string]sum{}
	asks, understood := false, true
	for _, per := range []string{"node", "job", "socket", "task"} {
		lists[per] = entriesOf(text(q, "tres_per_"+per))
		var ok1, ok2 bool
		gpu[per], ok1 = sumOf(lists[per], "gpu")
		mig[per], ok2 = sumOf(lists[per], "mig")
		if !ok1 || !ok2 || per != "node" && mig[per].all() > 0 {
			understood = false
		}
		asks = asks || gpu[per].all() > 0 || mig[per].all() > 0
	}
	tasks, perNode, perGPU, minNodes := set(q, "num_tasks"), set(q, "ntasks_per_node"), set(q, "ntasks_per_tres"), set(q, "min_nodes")
	nodes := max(minNodes, 1)
	if minNodes == 0 && tasks > 0 && perNode > 0 {
		nodes = (tasks + perNode - 1) / perNode
	}
	if perGPU > 0 && (tasks >= perGPU || tasks == 0 && minNodes > 0) {
		asks = true
	}
	if !understood {
		return outcome{refused: true}
	}
	if !asks {
		return outcome{none: true}
	}

	slots, even := gpu["node"], true
	switch {
	case slots.all() > 0:
	case gpu["job"].all() > 0:
		slots, even = gpu["job"].times(1, nodes)
	case gpu["socket"].all() > 0:
		sockets := set(q, "sockets_per_node")
		slots, even = gpu["socket"].times(sockets, 1)
		even = even && sockets > 0
	case gpu["task"].all() > 0:
		n := tasks
		if perNode > 0 {
			n = perNode * nodes
		} else if tasks == 0 {
			n = nodes
		}
		slots, even = gpu["task"].times(n, nodes)
	case mig["node"].all() > 0:
		slots = sum{[]string{""}, map[string]int{"": mig["node"].all()}}
	default:
		n := nodes
		if tasks > 0 {
			n = tasks / perGPU
		}
		slots, even = sum{[]string{""}, map[string]int{"": n}}.times(1, nodes)
	}
	if !even {
		return outcome{refused: true}
	}

	o := outcome{}
	slices_, typed := mig["node"], false
	for _, profile := range slices_.types {
		if profile != "" {
			typed = true
			o.refused = o.refused || !slices.Contains(d.Names(), profile)
		}
	}
	o.refused = o.refused || typed && slices_.count[""] > 0 || slices_.all() > 0 && slices_.all() != slots.all()
	for _, e := range lists["node"] {
		if e.name != "mig" || e.kind != "" {
			o.kept = append(o.kept, e.text)
		}
	}
	if gpu["node"].all() == 0 {
		for _, kind := range slots.types {
			colon := ""
			if kind != "" {
				colon = ":"
			}
			o.added = append(o.added, fmt.Sprintf("gpu:%s%s%d", kind, colon, slots.count[kind]))
		}
	}
	account, named := q["account"].(string)
	if !named {
		account = text(q, "default_account")
	}
	uid, _ := q["user_id"].(float64)
	in := predict.KeyInput{
		UID: uint32(uid), Account: account[:min(len(account), 256)], JobName: text(q, "name"), Script: text(q, "script"),
		GPUs: slots.all(), Nodes: nodes, Tasks: tasks, CPUsPerTask: set(q, "cpus_per_task"),
	}
	o.stamp = stamp{in.UID, predict.Key(in), predict.Work(in)}
	if stamped != nil {
		o.stamp = *stamped
	}
	known := learned(d, o.stamp)
	if known != nil {
		o.runs = known.Seconds
	}
	if !typed {
		profile, sized, told, ok := size(q, d, known)
		o.refused = o.refused || !ok
		if sized {
			profile = onModel(d, slots.types, profile)
			o.sized = profile
		}
		o.told = told
		o.added = append(o.added, fmt.Sprintf("mig:%s:%d", profile, slots.all()))
	}
	o.hold = q["priority"] != float64(0) &&
		(text(q, "req_nodes") != "" || text(q, "exc_nodes") != "" || text(q, "reservation") != "" || nodes > d.MaxNodes)
	return o
}
