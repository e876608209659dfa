package jobsubmit

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/predict"
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
	count            int // -1: the count cannot be parsed
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
	nodes      int

	tasks, perNode, perGPU int // numbers of tasks; 0: not set
}

func requestOf(q fields) request {
	r := request{
		options: options{}, gpu: map[string]sum{}, mig: map[string]sum{}, understood: true,
		tasks: set(q, "num_tasks"), perNode: set(q, "ntasks_per_node"), perGPU: set(q, "ntasks_per_tres"),
	}
	for _, per := range pers {
		r.options[per] = entriesOf(text(q, "tres_per_"+per))
		var ok1, ok2 bool
		r.gpu[per], ok1 = sumOf(r.options[per], "gpu")
		r.mig[per], ok2 = sumOf(r.options[per], "mig")
		if !ok1 || !ok2 || per != "node" && r.mig[per].all() > 0 {
			r.understood = false
		}
		r.asks = r.asks || r.gpu[per].all() > 0 || r.mig[per].all() > 0
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

// slots returns the GPUs per node. even is false if the GPUs cannot be divided evenly among the nodes.
func (r request) slots(sockets int) (slots sum, even bool) {
	untyped := func(n int) sum { return sum{[]string{""}, map[string]int{"": n}} }
	switch {
	case r.gpu["node"].all() > 0:
		return r.gpu["node"], true
	case r.gpu["job"].all() > 0:
		return r.gpu["job"].times(1, r.nodes)
	case r.gpu["socket"].all() > 0:
		slots, even = r.gpu["socket"].times(sockets, 1)
		return slots, even && sockets > 0
	case r.gpu["task"].all() > 0:
		n := r.tasks
		if r.perNode > 0 {
			n = r.perNode * r.nodes
		} else if r.tasks == 0 {
			n = r.nodes
		}
		return r.gpu["task"].times(n, r.nodes)
	case r.mig["node"].all() > 0:
		return untyped(r.mig["node"].all()), true
	case r.tasks > 0:
		return untyped(r.tasks/r.perGPU).times(1, r.nodes)
	default:
		return untyped(r.nodes).times(1, r.nodes)
	}
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
	return stamp{in.UID, predict.Key(in), predict.Fingerprint(in)}
}
