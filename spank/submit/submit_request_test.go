package jobsubmit

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/controller/decisions"
	"caelum/internal/core/predict"
)

// This file parses requests according to the rules in README.md, with simple and slow code.

var (
	gresWord  = regexp.MustCompile(`(?s)gres[:/]([^:=]+)(.*)$`)
	typeWord  = regexp.MustCompile(`(?s)^:([^:=]*[A-Za-z][^:=]*)(.*)$`)
	countWord = regexp.MustCompile(`^[:=]([0-9]+)$`)
)

var (
	plainText  = regexp.MustCompile(`^[A-Za-z0-9._+:=/-]*$`)
	plainEntry = regexp.MustCompile(
		`^gres[:/]([A-Za-z][A-Za-z0-9_]*)(?::([A-Za-z0-9][A-Za-z0-9._+-]*?))??(?::no_consume)?` +
			`(?:[:=][0-9]+(?i:[kmgtp](?:i?b)?)?)?$`,
	)
	countLike = regexp.MustCompile(`^[0-9]+(?i:[kmgtp](?:i?b)?)?$`)
)

// readable reports whether the agents can parse an entry.
func (e entry) readable() bool {
	m := plainEntry.FindStringSubmatch(e.text)
	if m == nil {
		return plainText.MatchString(e.text) && !strings.Contains(e.text, "gres:") && !strings.Contains(e.text, "gres/")
	}
	return m[1] != "gres" && !countLike.MatchString(m[2])
}

type entry struct {
	text, name, kind string
	count            int    // -1: the count cannot be parsed
	number           string // the digits of the count, or "" if it cannot be parsed
}

// maxTRES is how many bytes of a list the script reads. slurmctld refuses a longer tres_per_node.
const maxTRES = 1024

func entriesOf(list string) (out []entry) {
	if len(list) > maxTRES {
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
				e.count, e.number = 1, "1"
			} else if c := countWord.FindStringSubmatch(rest); c != nil {
				e.number = c[1]
				if n, err := strconv.Atoi(c[1]); err == nil && n <= 65533 {
					e.count = n
				}
			}
		}
		out = append(out, e)
	}
	return out
}

// sum holds the counts of one GRES in a request, by type and in the order of the request. The
// type is "" for entries without a type.
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

// sumOf adds up the entries of one GRES. A GPU type that begins with a digit is valid only if it is the type of a
// static MIG device in table d, which may be nil.
func sumOf(list []entry, name string, d *decisions.Table) (s sum, ok bool) {
	s.count = map[string]int{}
	for _, e := range list {
		if e.name != name {
			continue
		}
		letter := e.kind == "" || ('a' <= e.kind[0]|0x20 && e.kind[0]|0x20 <= 'z')
		profile, _ := device(e.kind, d)
		if e.count < 0 || name == "gpu" && !letter && profile == "" {
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

// times returns n*factor/divisor for every type. It returns false if a result is not a whole number.
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

// share returns the counts divided among nodes and rounded up. even is true if nothing had to be rounded.
func (s sum) share(nodes int) (out sum, even bool) {
	out, even = sum{types: s.types, count: map[string]int{}}, true
	for kind, n := range s.count {
		out.count[kind] = (n + nodes - 1) / nodes
		even = even && n%nodes == 0
	}
	return out, even
}

// options lists the GRES requests of a job by "node", "job", "socket" and "task", as slurmctld stores them.
type options map[string][]entry

var pers = []string{"node", "job", "socket", "task"}

func text(q fields, name string) string {
	s, _ := q[name].(string)
	return s
}

// set returns the value of a numeric field, or 0 if the field is not set. Slurm treats 0 and the two highest 16-bit
// values as not set.
func set(q fields, name string) int {
	if v, ok := q[name].(float64); ok && v >= 1 && v <= 65533 {
		return int(v)
	}
	return 0
}

// request is the parsed request of a job.
type request struct {
	options    options
	gpu, mig   map[string]sum // by "node", "job", "socket" and "task"
	understood bool
	asks       bool // the job requests a GPU or a slice
	foreign    bool // all requested GPUs are of types that Caelum does not manage
	dropped    bool // the request counts such GPUs per node
	nodes      int

	tasks, perNode, perGPU int // numbers of tasks; 0: not set
}

// requestOf parses a request. If a table is given, the result does not contain the GPUs that Caelum does not manage.
func requestOf(q fields, d *decisions.Table) request {
	r := request{
		options: options{}, gpu: map[string]sum{}, mig: map[string]sum{}, understood: true,
		tasks: set(q, "num_tasks"), perNode: set(q, "ntasks_per_node"), perGPU: set(q, "ntasks_per_tres"),
	}
	for _, per := range pers {
		r.options[per] = entriesOf(text(q, "tres_per_"+per))
		var ok1, ok2 bool
		r.gpu[per], ok1 = sumOf(r.options[per], "gpu", d)
		r.mig[per], ok2 = sumOf(r.options[per], "mig", d)
		if !ok1 || !ok2 || per != "node" && r.mig[per].all() > 0 {
			r.understood = false
		}
		r.asks = r.asks || r.gpu[per].all() > 0 || r.mig[per].all() > 0
	}
	if d != nil {
		r.drop(d)
	}
	minNodes := set(q, "min_nodes")
	r.nodes = max(minNodes, 1)
	if minNodes == 0 && r.tasks > 0 && r.perNode > 0 {
		r.nodes = (r.tasks + r.perNode - 1) / r.perNode
	}
	if r.perGPU > 0 && (r.tasks >= r.perGPU || r.tasks == 0 && minNodes > 0) {
		r.asks = true
	}
	return r
}

// unreadable reports whether the request has an entry that the agents cannot parse.
func (r request) unreadable() bool {
	for _, list := range r.options {
		if slices.ContainsFunc(list, func(e entry) bool { return !e.readable() }) {
			return true
		}
	}
	return false
}

// drop removes the GPUs that Caelum does not manage.
func (r *request) drop(d *decisions.Table) {
	left := r.mig["node"].all() > 0
	for _, per := range pers {
		var dropped bool
		r.gpu[per], dropped = r.gpu[per].managed(d)
		r.foreign = r.foreign || dropped
		r.dropped = r.dropped || dropped && per == "node"
		left = left || r.gpu[per].all() > 0
	}
	r.foreign = r.foreign && !left
}

// slots is the distribution of a job's GPUs over its nodes.
type slots struct {
	perNode sum  // if the nodes have different numbers, the largest number on a node
	total   *sum // nil if the request counts the GPUs of each node or socket
	each    *sum // the GPUs per task of the request; nil if they are of several models
	even    bool // all nodes have the same number
}

func untyped(n int) sum { return sum{[]string{""}, map[string]int{"": n}} }

// slots returns the distribution of the GPUs over the nodes that the request names. ok is false if there is none.
func (r request) slots(sockets int) (s slots, ok bool) {
	switch {
	case r.gpu["node"].all() > 0 || r.dropped && r.mig["node"].all() > 0:
		return slots{perNode: r.gpu["node"], even: true}, true
	case r.gpu["job"].all() > 0:
		total, of := r.gpu["job"], r.gpu["task"].all()
		if s.total = &total; of > 0 && total.all()%of > 0 {
			return s, false
		}
	case r.gpu["socket"].all() > 0:
		s.perNode, ok = r.gpu["socket"].times(sockets, 1)
		s.even = true
		return s, ok && sockets > 0
	case r.gpu["task"].all() > 0:
		n := r.perNode * r.nodes
		if n == 0 {
			n = max(r.tasks, 0)
		}
		if n == 0 {
			n = r.nodes
		}
		total, _ := r.gpu["task"].times(n, 1)
		s.total = &total
	case r.mig["node"].all() > 0:
		return slots{perNode: untyped(r.mig["node"].all()), even: true}, true
	default:
		n := r.nodes
		if r.tasks > 0 {
			n = r.tasks / r.perGPU
		}
		total := untyped(n)
		s.total = &total
	}
	s.perNode, s.even = s.total.share(r.nodes)
	of := r.gpu["task"]
	if of.all() == 0 {
		return s, true
	}
	if kind := s.total.types[0]; of.count[kind] == of.all() {
		s.each = &of
	}
	if s.even {
		return s, true
	} else if s.each == nil {
		return s, false
	}
	most := (s.total.all() + r.nodes*of.all() - 1) / (r.nodes * of.all())
	s.perNode, _ = of.times(most, 1)
	return s, true
}

// placement is the distribution of a new job's GPUs and slices.
type placement struct {
	gpus    sum  // per node; if the nodes have different numbers, the largest number on a node
	perTask bool // the nodes have different numbers of GPUs, and the job keeps its GPUs per task
	rounded bool // the nodes have more GPUs than the job requested
	nodes   int

	tasksPerNode, maxNodes int // the numbers that the job gets; 0: unchanged
}

// place returns the placement on the smallest number of nodes, but at least the given number, of which none has more
// than most GPUs. ok is false if there is none, or none with equal numbers if these are necessary.
func (r request) place(s slots, most, least, maxNodes int, later bool, h *concealment) (p placement, ok bool) {
	limit := 65533
	if maxNodes > 0 {
		limit = maxNodes
	}
	if h != nil {
		limit = min(limit, h.nodes)
	}
	if r.tasks > 0 {
		limit = min(limit, r.tasks)
	} else if r.perNode > 0 && r.gpu["task"].all() > 0 {
		limit = min(limit, r.nodes)
	} else if r.perNode > 0 && !later {
		limit = min(limit, r.nodes*r.perNode)
	}
	limit = max(limit, r.nodes)
	// fewest returns the smallest number of nodes for tasks that each have the given number of GPUs.
	fewest := func(unit int) int {
		for n := least; n <= limit && unit <= most; n++ {
			if n*(most/unit*unit) >= s.total.all() {
				return n
			}
		}
		return 0
	}
	unit := max(r.gpu["task"].all(), 1)
	if p.nodes = fewest(unit); p.nodes == 0 {
		return p, false
	}
	even := false
	switch p.gpus, even = s.total.share(p.nodes); {
	case even && p.gpus.all()%unit == 0:
	case r.gpu["task"].all() == 0:
		if p.rounded = true; maxNodes == 0 || maxNodes > p.nodes {
			p.maxNodes = p.nodes
		}
	case s.each == nil:
		return p, false
	default:
		p.perTask = true
		tasks := s.total.all() / unit
		perNode := (tasks + p.nodes - 1) / p.nodes
		p.gpus, _ = s.each.times(perNode, 1)
		if r.perNode == 0 || r.perNode > perNode {
			p.tasksPerNode = perNode
		}
	}
	return p, p.gpus.all() <= most
}

// stamp returns the stamp of a job at its submission.
func (r request) stamp(q fields, gpus int) stamp {
	account, named := q["account"].(string)
	if !named {
		account = text(q, "default_account")
	}
	uid, _ := q["user_id"].(float64)
	in := predict.KeyInput{
		UID: uint32(uid), Account: account[:min(len(account), 256)],
		JobName: text(q, "name"), Script: text(q, "script"),
		GPUs: gpus, Nodes: r.nodes, Tasks: r.tasks, CPUsPerTask: set(q, "cpus_per_task"),
	}
	if argc, _ := q["argc"].(float64); in.Script != "" {
		for i := 1; i < int(argc); i++ {
			in.Args = append(in.Args, text(q, fmt.Sprint("argv.", i)))
		}
	}
	return stamp{in.UID, predict.Key(in), predict.Fingerprint(in), strings.Join(predict.Numbers(in.Args), ","),
		predict.NameHash(in.JobName)}
}
