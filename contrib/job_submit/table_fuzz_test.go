package jobsubmit

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"caelum/internal/predict"
)

// decisionTable is what a table says, by docs/internals.md.
type decisionTable struct {
	partitions, profiles map[string]bool
	keys                 map[string]string
	byDefault            string
	maxNodes             int
}

var (
	headLine    = regexp.MustCompile(`^caelum-decisions 1 [0-9]+$`)
	wordForm    = regexp.MustCompile(`^[a-z][a-z_]*$`)
	profileForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+-]*$`)
	keyForm     = regexp.MustCompile(`^[0-9a-f]{16}$`)
	nodesForm   = regexp.MustCompile(`^[0-9]{1,4}$`)
)

// readTable answers nil for a text that is no table.
func readTable(text string) *decisionTable {
	lines, whole := strings.CutSuffix(text, "\n")
	all := strings.Split(lines, "\n")
	if !whole || len(text) > 1<<20 || len(all) > 20000 || len(all[0]) > 63 || !headLine.MatchString(all[0]) {
		return nil
	}
	t := &decisionTable{partitions: map[string]bool{}, profiles: map[string]bool{}, keys: map[string]string{}, maxNodes: -1}
	for _, line := range all[1:] {
		line, _, _ = strings.Cut(line, "#")
		w := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\v\f\r", r) })
		if len(w) == 0 {
			continue
		}
		words := 2
		if w[0] == "key" {
			words = 3
		}
		if !strings.HasPrefix(line, w[0]) || !wordForm.MatchString(w[0]) || len(w) != words {
			return nil
		}
		switch v := w[1]; {
		case w[0] == "partition":
			t.partitions[v] = true
		case w[0] == "profile" && profileForm.MatchString(v) && v != "closed":
			t.profiles[v] = true
		case w[0] == "default" && t.byDefault == "":
			t.byDefault = v
		case w[0] == "max_nodes" && t.maxNodes < 0 && nodesForm.MatchString(v):
			t.maxNodes, _ = strconv.Atoi(v)
		case w[0] == "key" && keyForm.MatchString(v) && t.keys[v] == "":
			t.keys[v] = w[2]
		default:
			return nil
		}
	}
	for _, p := range append(slices.Collect(maps.Values(t.keys)), t.byDefault) {
		if !t.profiles[p] {
			return nil
		}
	}
	if t.maxNodes < 0 {
		t.maxNodes = 1
	}
	return t
}

// table makes a table of lines that belong there, some that do not, and raw.
func (m maker) table(key string) string {
	var b strings.Builder
	b.WriteString(m.one("caelum-decisions 1 7", "caelum-decisions 1 7", "caelum-decisions 1 7", "caelum-decisions 1 1", "caelum-decisions 2 7", m.raw) + "\n")
	all := []string{"partition gpu", "profile 1g.5gb", "profile 2g.10gb", "default " + m.one("1g.5gb", "2g.10gb", m.raw)}
	for range m.IntN(6) {
		profile := m.one("1g.5gb", "2g.10gb", "2g.10gb", "1g.5gb+me", m.raw)
		all = append(all, m.one(
			"partition long", "partition "+m.raw, "profile "+profile, "max_nodes "+m.one("0", "3", "9999", m.raw), "key "+key+" "+profile,
			"key "+m.one("0123456789abcdef", "0123456789ABCDEF", key, m.raw)+" "+profile, "# "+m.raw, "", "default 2g.10gb", m.raw,
			m.raw+strings.Repeat("x", m.IntN(3000))+" y z"))
	}
	if m.IntN(8) == 0 {
		m.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	}
	if m.IntN(8) == 0 {
		all = slices.Delete(all, 0, 1+m.IntN(len(all)))
	}
	for _, line := range all {
		space := m.one(" ", " ", " ", " ", "\t", "  ", "\r", "\v ")
		b.WriteString(strings.ReplaceAll(line, " ", space) + m.one("", "", "", " ", " # "+m.raw, "#") + "\n")
	}
	text := b.String()
	if m.IntN(8) == 0 {
		text = text[:m.IntN(len(text))]
	}
	if m.IntN(8) == 0 {
		i := m.IntN(len(text) + 1)
		text = text[:i] + m.raw + text[i:]
	}
	return text
}

// FuzzTable: a table that can be read is in force whole, and of one that cannot nothing is: the one before stays, and one line of the
// log says so; with none before, requests for GPUs are refused and others pass.
func FuzzTable(f *testing.F) {
	for i, raw := range []string{"", "#", "closed", "partition cpu", "3g.20gb", "key 0123456789abcdef 1g.5gb", "\x00", "\xff\xa0", "\n\n", strings.Repeat("x", 2000)} {
		for k := range 4 {
			f.Add(uint64(4*i+k), raw)
		}
	}
	key := predict.Key(predict.KeyInput{UID: 7, GPUs: 1, Nodes: 1})
	lua, path := both(f)
	f.Fuzz(func(t *testing.T, seed uint64, raw string) {
		m := newMaker(seed, raw)
		text := raw
		if m.IntN(16) > 0 {
			text = m.table(key)
		}
		read := readTable(text)
		for _, l := range lua {
			before := m.IntN(2) == 0
			l.ask(t, "load", nil)
			if before {
				writeTable(t, path, oracleTable)
				l.ask(t, "submit", fields{"tres_per_node": "gres:gpu:1", "uid": 7.0, "user_id": 7.0})
			}
			writeTable(t, path, text)
			p := probe{t, l, text, key}
			// A table with the generation and the size of the one before is taken for that.
			switch same := before && strings.HasPrefix(text, "caelum-decisions 1 1\n") && len(text) == len(oracleTable); {
			case same:
				p.force(readTable(oracleTable), 0)
			case read != nil:
				p.force(read, 0)
			case before:
				p.force(readTable(oracleTable), 1)
			default:
				p.closed(path)
			}
		}
	})
}

// probe asks one Lua what table is in force.
type probe struct {
	*testing.T
	lua  *process
	text string
	key  string
}

func (p probe) submit(q fields) reply {
	p.Helper()
	q["uid"], q["user_id"], q["priority"] = 7.0, 7.0, 4294967294.0
	r := p.lua.ask(p.T, "submit", q)
	return r
}

// gives checks that a submission is given these slices; none: that it passes as it is; refused: that it is refused.
func (p probe) gives(q fields, want string) reply {
	p.Helper()
	r, got := p.submit(q), ""
	for _, w := range r.writes {
		if w.field == "tres_per_node" {
			_, got, _ = strings.Cut(w.value.(string), ",gres:")
		}
	}
	switch {
	case r.rc == -1:
		got = "refused"
	case len(r.writes) == 0:
		got = "none"
	}
	if got != want {
		p.Fatalf("%s, table %q\n%v: %s, want %s (%+v)", p.lua.name, p.text, q, got, want, r)
	}
	return r
}

func (p probe) force(d *decisionTable, logged int) {
	p.Helper()
	lines := 0
	count := func(r reply) {
		for _, l := range r.log {
			if !strings.Contains(l, "last good table") || strings.Contains(l, "unchanged") {
				p.Fatalf("%s, table %q\nlogged %q", p.lua.name, p.text, l)
			}
		}
		lines += len(r.log)
	}
	profile := d.byDefault
	if d.keys[p.key] != "" {
		profile = d.keys[p.key]
	}
	for _, partition := range append(slices.Sorted(maps.Keys(d.partitions))[:min(5, len(d.partitions))], "gpu", "cpu", "gp.") {
		want := "none"
		if slices.ContainsFunc(strings.Split(partition, ","), func(s string) bool { return d.partitions[s] }) {
			want = "mig:" + profile + ":1"
		}
		count(p.gives(fields{"tres_per_node": "gres:gpu:1", "partition": partition}, want))
	}
	if lines != logged {
		p.Fatalf("%s, table %q\n%d lines in the log, want %d", p.lua.name, p.text, lines, logged)
	}
	managed := ""
	for partition := range d.partitions {
		if !strings.Contains(partition, ",") {
			managed = partition
		}
	}
	if managed == "" {
		return
	}
	for _, name := range append(slices.Sorted(maps.Keys(d.profiles))[:min(5, len(d.profiles))], "9g.99gb", "closed") {
		want := "gpu:1"
		if !d.profiles[name] {
			want = "refused"
		}
		// Slurm's types have a letter, and its requests 1024 bytes.
		if strings.ContainsFunc(name, func(r rune) bool { return r > '9' }) && len(name) < 1000 {
			p.gives(fields{"tres_per_node": "gres:mig:" + name + ":1", "partition": managed}, want)
		}
	}
	for _, nodes := range []int{max(d.maxNodes, 1), d.maxNodes + 1} {
		r := p.submit(fields{"tres_per_node": "gres:gpu:1", "partition": managed, "min_nodes": float64(nodes)})
		held := slices.Contains(r.writes, write{"priority", 0.0})
		if held != (nodes > d.maxNodes) {
			p.Fatalf("%s, table %q\n%d nodes held: %v (%+v)", p.lua.name, p.text, nodes, held, r)
		}
	}
}

func (p probe) closed(path string) {
	p.Helper()
	r := p.gives(fields{"tres_per_node": "gres:gpu:1", "partition": "cpu"}, "refused")
	if len(r.log) != 1 || len(r.said) != 1 || !strings.Contains(r.said[0], path) {
		p.Fatalf("%s, table %q\n%+v", p.lua.name, p.text, r)
	}
	if again := p.gives(fields{"tres_per_node": "gres:gpu:1"}, "refused"); len(again.log) != 0 {
		p.Fatalf("%s, table %q\nlogged twice: %q", p.lua.name, p.text, again.log)
	}
	p.gives(fields{"tres_per_node": "gres:net:1"}, "none")
}
