package jobsubmit

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/predict"
)

// What README.md says becomes of a request, written down once more and without regard to speed.

const (
	oracleTable = "caelum-decisions 1 1\npartition gpu\npartition gpu-long\nprofile 1g.5gb\nprofile 1g.5gb+me\nprofile 2g.10gb\nprofile 7g.40gb\n" +
		"default 2g.10gb\nmax_nodes 2\n"
	oracleMaxNodes = 2
)

var (
	oracleProfiles = []string{"1g.5gb", "1g.5gb+me", "2g.10gb", "7g.40gb"}
	gresWord       = regexp.MustCompile(`(?s)gres[:/]([^:=]+)(.*)$`)
	typeWord       = regexp.MustCompile(`(?s)^:([^:=]*[A-Za-z][^:=]*)(.*)$`)
	countWord      = regexp.MustCompile(`^[:=]([0-9]+)$`)
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
	key           string
	sized         bool // the profile is the predicted one
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

func oracle(q fields, option, predicted string) outcome {
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
			o.refused = o.refused || !slices.Contains(oracleProfiles, profile)
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
	o.sized = !typed && option == ""
	if !typed {
		if option != "" {
			predicted = option
			o.refused = o.refused || !slices.Contains(oracleProfiles, option)
		}
		o.added = append(o.added, fmt.Sprintf("mig:%s:%d", predicted, slots.all()))
	}
	account, named := q["account"].(string)
	if !named {
		account = text(q, "default_account")
	}
	uid, _ := q["user_id"].(float64)
	o.key = predict.Key(predict.KeyInput{
		UID: uint32(uid), Account: account[:min(len(account), 256)], JobName: text(q, "name"), Script: text(q, "script"),
		GPUs: slots.all(), Nodes: nodes, Tasks: tasks, CPUsPerTask: set(q, "cpus_per_task"),
	})
	o.hold = q["priority"] != float64(0) &&
		(text(q, "req_nodes") != "" || text(q, "exc_nodes") != "" || text(q, "reservation") != "" || nodes > oracleMaxNodes)
	return o
}
