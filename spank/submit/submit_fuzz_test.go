package jobsubmit

import (
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"caelum/internal/controller/decisions"
	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// maker generates job descriptions from valid and invalid words, and from raw.
type maker struct {
	*rand.Rand
	raw string
}

// newMaker seeds the generator with both arguments, so that every change to an argument leads to a different job. The
// fuzzing engine changes numbers only slightly.
func newMaker(seed uint64, raw string) maker {
	h := fnv.New64a()
	io.WriteString(h, raw)
	return maker{rand.New(rand.NewPCG(seed, h.Sum64())), raw}
}

func (m maker) one(words ...string) string { return words[m.IntN(len(words))] }

func (m maker) number() float64 {
	few := []float64{0, 1, 2, 3, 4, 6, 8, 65533, 65534, 65535, 4294967293, 4294967294, 4294967295}
	return few[m.IntN(len(few))]
}

func (m maker) tres() string {
	var all []string
	for range 1 + m.IntN(3) {
		prefix := m.one("gres:", "gres:", "gres/", "", m.raw)
		name := m.one("gpu", "gpu", "gpu", "mig", "mig", "net", "Gpu", "shard", "shard", m.raw)
		kind := m.one("", "", "", ":a100", ":h100", ":v100", ":1g.5gb", ":2g.10gb", ":1g.5gb+me", ":closed", ":9g",
			":x(", ":a100_1g.5gb", ":H100.4G.20GB", ":l40s", ":l40s_1f.11gb", ":2f.22gb",
			":9g.99gb", ":10gb", ":a100_x", ":"+m.raw)
		count := m.one("", ":1", ":2", ":3", ":4", "=2", ":0", ":0", ":no_consume:1", ":007", ":65533", ":65534", ":1k",
			":100G", ":128KiB", "=1000MB", ":107374182400", ":2ki", ":-1", ":"+m.raw)
		all = append(all, prefix+name+kind+count)
	}
	return strings.Join(all, m.one(",", ",", ",,"))
}

// job generates a job. Each field has a low probability, so that most of them are usually empty.
func (m maker) job() fields {
	q := fields{"user_id": float64(m.Uint32()), "priority": 4294967294.0, "uid": 1001.0}
	some := func(odds int, name string, value func() any) {
		if m.IntN(odds) == 0 {
			q[name] = value()
		}
	}
	for _, per := range []string{"node", "job", "socket", "task"} {
		some(map[string]int{"node": 2}[per]+2, "tres_per_"+per, func() any { return m.tres() })
	}
	for _, name := range []string{
		"min_nodes", "max_nodes", "num_tasks", "ntasks_per_node", "ntasks_per_tres", "sockets_per_node",
		"cpus_per_task", "min_cpus",
	} {
		some(3, name, func() any { return m.number() })
	}
	if m.IntN(3) > 0 {
		m.plain(q)
	}
	for _, name := range []string{
		"name", "script", "account", "default_account", "comment", "wckey", "features", "licenses",
	} {
		some(3, name, func() any { return m.one("train", "#!/bin/sh\n", m.raw, strings.Repeat(m.raw, 1+m.IntN(40))) })
	}
	some(2, "argc", func() any { return float64(m.arguments(q)) })
	for _, name := range []string{"req_nodes", "exc_nodes", "reservation"} {
		some(8, name, func() any { return m.one("", "n1", m.raw, strings.Repeat("n1,", 683)) })
	}
	some(4, "shared", func() any { return []float64{0, 1, 65534}[m.IntN(3)] })
	some(8, "min_mem_per_node", func() any { return []float64{0, 1000}[m.IntN(2)] })
	some(8, "min_mem_per_cpu", func() any { return m.number() })
	some(6, "mem_per_tres", func() any { return m.one("gres:gpu:1000", "gres/gpu=77", "", "gres:gpu:0", m.raw) })
	some(6, "cpus_per_tres", func() any {
		return m.one("gres:gpu:4", "gres/gpu:16", "gres/gpu=3", "gres:gpu:0", "gres:gpu:65534", "gres:net:4", "gpu:4",
			"gres:gpu:4,gres:mig:4", m.raw)
	})
	for _, name := range slices.Sorted(maps.Keys(repeats)) {
		some(6, "environ."+name, func() any {
			return m.one("2", "a100_1g.5gb:2", "10gb:1,1g.5gb:1", "1g.5gb,a100:1", "cpu=2,gres/gpu:1g.5gb=1",
				"cpu=2,gres/shard=3", "gres/shard:l40s:9", m.raw)
		})
	}
	some(4, "partition", func() any { return m.one("", "gpu", "cpu", "gpu-long,cpu", ",gpu", "gp.", "gpu,gpu", m.raw) })
	some(8, "priority", func() any { return m.number() })
	some(3, "time_limit", func() any { return float64(m.IntN(120)) })
	some(9, "time_limit", func() any { return m.number() })
	some(4, "admin_comment", func() any { return m.one("JS1:abc", "caelum:held", m.raw) })
	for i, name := range []string{"mig", "mig_mem", "mig_grow", "static"} {
		some(4, fmt.Sprint("env.", i+1), func() any {
			values := map[string][]string{
				"mig": {"1g.5gb", "1G.5GB", "1f.11gb", "auto", "off", "", "closed"},
				"mig_mem": {"", "0", "1", "4864", "8G", "9856m", "10092544K", "1T", "8GB", "8GiB", "8iB", "8B", "4g",
					"11G", "40G", "44G"},
				"mig_grow": {"off", "oom", "forecast", "OOM", ""},
				"static":   {"1g.5gb", "a100_1g.5gb", "9g.99gb", "a100", "x(", "10gb"},
			}[name]
			prefix := m.one("_SLURM_SPANK_OPTION_caelum_", "SLURM_SPANK__SLURM_SPANK_OPTION_caelum_", "X")
			return prefix + name + "=" + m.one(append(values, m.raw)...)
		})
	}
	for name, value := range q { // C strings contain no NUL
		if s, ok := value.(string); ok {
			q[name] = strings.ReplaceAll(s, "\x00", "")
		}
	}
	return q
}

// arguments adds the script and its arguments to a job, and returns their number.
func (m maker) arguments(q fields) int {
	n := 1 + []int{0, 1, 2, 3, 6, 63, 64, 65, 70}[m.IntN(9)]
	for i := range n {
		q[fmt.Sprint("argv.", i)] = m.one("", "train", "64", "64", "-b8", "--batch=64.5", "2000", "--x=a=9", "-b-1",
			"1e3", strings.Repeat("=1", m.IntN(200)), "123456789012.123456", "1234567890123", "n=1.1234567", "#",
			"\xff=7", strings.Repeat("x", m.IntN(300)), m.raw, m.raw+"=3")
	}
	return n + m.IntN(9)/8 // one argument may be missing
}

// plain replaces the request of a job by a valid one for a few GPUs, which several nodes may have to share.
func (m maker) plain(q fields) {
	for _, name := range []string{
		"tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task", "min_nodes", "max_nodes", "num_tasks",
		"ntasks_per_node", "ntasks_per_tres", "cpus_per_tres",
	} {
		delete(q, name)
	}
	prefix := m.one("gres:", "gres/")
	for range 1 + m.IntN(5)/4 {
		kind := m.one("", "", "", "", ":a100", ":h100", ":v100", ":l40s", ":1g.5gb", ":a100_1g.5gb", ":H100.4G.20GB",
			":10gb", ":l40s_1f.11gb")
		per := m.one("job", "job", "task", "task", "node", "socket")
		q["tres_per_"+per] = fmt.Sprint(prefix, "gpu", kind, m.one(":", ":", "="), 1+m.IntN(9))
	}
	q["script"] = "#!/bin/sh\n"
	if m.IntN(9) == 0 {
		per := m.one("node", "node", "task")
		delete(q, "tres_per_job")
		delete(q, "tres_per_task")
		q["tres_per_"+per] = prefix + m.one("", "net:1,"+prefix) + "shard" +
			m.one("", "", ":l40s", ":a100", ":v100") + m.one(":", "=") + fmt.Sprint(m.IntN(9))
	}
	if m.IntN(9) == 0 {
		q["tres_per_node"] = prefix + "mig" + m.one(":1g.5gb", ":2g.10gb", "") + fmt.Sprint(":", 1+m.IntN(4))
	}
	for _, field := range []struct {
		name string
		most int
	}{{"min_nodes", 4}, {"max_nodes", 9}, {"num_tasks", 9}, {"ntasks_per_node", 4}, {"ntasks_per_tres", 2}} {
		if m.IntN(2) == 0 && (field.name == "num_tasks" || m.IntN(2) == 0) {
			q[field.name] = float64(1 + m.IntN(field.most))
		}
	}
	if m.IntN(6) == 0 { // nodes with different numbers of GPUs
		tasks := 2 + m.IntN(7)
		for _, name := range []string{"tres_per_node", "tres_per_socket", "tres_per_task", "ntasks_per_tres"} {
			delete(q, name)
		}
		q["tres_per_job"] = fmt.Sprint(prefix, "gpu:", tasks*(1+m.IntN(2)))
		q["num_tasks"], q["min_nodes"] = float64(tasks), float64(1+m.IntN(4))
	}
	if m.IntN(3) == 0 {
		q["cpus_per_tres"] = fmt.Sprint(prefix, "gpu:", 1+m.IntN(16))
	}
}

// option returns the argument of --mig (name mig), --mig-mem (mig_mem) or --mig-grow (mig_grow) of a generated job, or
// the type that the plugin removed (static).
func option(q fields, name string) string {
	for _, assignment := range []string{text(q, "env.1"), text(q, "env.2"), text(q, "env.3"), text(q, "env.4")} {
		for _, prefix := range []string{"_SLURM_SPANK_OPTION_caelum_", "SLURM_SPANK__SLURM_SPANK_OPTION_caelum_"} {
			if v, ok := strings.CutPrefix(assignment, prefix+name+"="); ok {
				return v
			}
		}
	}
	return ""
}

// learned returns learned lines for the job with the given stamp and for other jobs.
func (m maker) learned(s stamp) string {
	fingerprint := s.fingerprint
	if fingerprint == "" {
		fingerprint = "fedcba9876543210"
	}
	var b strings.Builder
	for _, of := range []string{
		fmt.Sprintf("key %d:%s", s.uid, s.key), "key 8:" + s.key,
		fmt.Sprintf("user %d:%s", s.uid, fingerprint), "user 8:" + fingerprint, "site " + fingerprint,
		fmt.Sprintf("name %d:%s", s.uid, s.name), "name 8:" + s.name, fmt.Sprint("owner ", s.uid), "owner 8",
	} {
		if m.IntN(2) == 0 {
			fmt.Fprintln(&b, of, m.one("1g.5gb", "2g.10gb", "4g.20gb", "7g.40gb", "1f.11gb"),
				m.one("", "60", "999999999", "60 0", "1 7", "999999999 50", "3600 100", "1000-1300", "1000-3600 80",
					"999999999-999999999 100", "1-1 0", "2000-2100 30", "1200-1201 95"))
		}
	}
	if m.IntN(2) == 0 {
		fmt.Fprintf(&b, "args %d:%s %s %s *=7g.40gb\n", s.uid, s.key, m.one("1", "1", "2", "4"),
			m.one("64=1g.5gb", "8=1g.5gb 64=2g.10gb 2000.5=4g.20gb", "0=2g.10gb 999999999999.999999=1g.5gb"))
	}
	return b.String()
}

// tables writes tables with increasing generations, because the script does not read a table that has the same
// generation and size as the previous one.
type tables struct {
	path       string
	generation int
}

// site returns a table without its first line.
func (m maker) site() string {
	_, body, _ := strings.Cut(oracleTable, "\n")
	for _, profile := range []string{"1g.5gb", "2g.10gb", "4g.20gb", "7g.40gb", "1f.11gb", "2f.22gb", "full"} {
		if m.IntN(3) == 0 {
			body += "profile " + profile + " 50000 " + m.one("1", "2", "3", "4", "6", "1000") + "\n"
		}
	}
	body += m.one("", "", "max_cpus 4\n", "max_cpus 12\n", "max_cpus 64\n")
	body += m.one("", "", "per_gpu gpu 16 120000\n", "per_gpu gpu 0 7\nper_gpu gpu-long 3 0\n")
	body += m.one("", "alias 10gb 2g.10gb\nalias a100_x 1g.5gb\n")
	body += m.one("", "shard 2 1g.5gb\nshard 4 1f.11gb\nshard 8 full\nshard l40s:2 1f.11gb\nshard l40s:4 full\n"+
		"shard v100:65534 2g.10gb\n")
	body += m.one("", "", "", "", "bypass cpu\n")
	if m.IntN(6) == 0 {
		body = modelLines.ReplaceAllString(body, "")
	}
	return body
}

var modelLines = regexp.MustCompile(`(?m)^model .*\n`)

func (w *tables) write(tb testing.TB, body string) decisions.Table {
	tb.Helper()
	w.generation++
	text := fmt.Sprintf("caelum-decisions 1 %d\n%s", w.generation, body)
	writeTable(tb, w.path, text)
	d, err := decisions.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func managed(partition string) bool {
	return partition == "" || len(partition) > maxPartitions ||
		slices.ContainsFunc(strings.Split(partition, ","), func(p string) bool { return p == "gpu" || p == "gpu-long" })
}

func writeTable(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
}

func seeds(f *testing.F) {
	for i, raw := range []string{
		"", "gpu", "gres:gpu:1", "\x1b[2J", "a b", "%s%n", "caelum:held", ",gres:mig:7g.40gb:1", "é\xff\n",
		strings.Repeat("9", 400),
	} {
		for k := range 5 {
			f.Add(uint64(5*i+k), raw)
		}
	}
}

// FuzzSubmit checks for every request and every table that both Lua versions return the answer that README.md
// specifies. The user's own request must remain unchanged. The script may write only tres_per_node, admin_comment and
// priority. A script that rejects a job must print one printable line and change nothing.
func FuzzSubmit(f *testing.F) {
	seeds(f)
	lua, path := both(f)
	table := tables{path: path}
	f.Fuzz(func(t *testing.T, seed uint64, raw string) {
		m := newMaker(seed, raw)
		given, site := m.job(), m.site()
		d := table.write(t, site)
		q := given.with(restored(given))
		o := oracle(q, d, nil)
		if o.stamp.key != "" {
			d = table.write(t, site+m.learned(o.stamp))
			o = oracle(q, d, nil)
		}
		got := afterRestored(t, given, askBoth(t, lua, "submit", given))
		want := reply{}
		switch {
		case namesMany(q), !managed(text(q, "partition")) && lacksSlots(q):
			checkRefusal(t, q, got)
			return
		case o.none:
			want = reply{messages: unused(q, noGPU, false), writes: hide(q, d)}
		case !managed(text(q, "partition")):
			want.messages = unused(q, "the job's partition has no MIG slices", false)
		case d.Bypass != "":
			checkBypass(t, q, d, got)
			return
		case o.foreign:
			want.writes = hide(q, d)
		case o.beyond != nil:
			want.writes = o.beyond
		case o.unavailable && got.rc == noSuchNode:
			if len(got.writes) > 0 || len(got.messages) > 0 {
				t.Fatalf("%v\nmust be refused without any other effect: %+v", q, got)
			}
			return
		case o.refused || o.unavailable:
			checkRefusal(t, q, got)
			return
		default:
			want = o.accepted(q)
		}
		if !got.equal(want) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", q, got, want)
		}
		if !o.none && !o.foreign && o.beyond == nil {
			checkSlices(t, q, d, got)
		}
		for _, w := range got.writes { // the agents must be able to parse accepted requests
			if w.field != "tres_per_node" {
				continue
			}
			for _, e := range entriesOf(w.value.(string)) {
				if _, err := slurm.ParseGRES(e.text); err != nil && e.name != "" {
					t.Fatalf("%v\n%v", q, err)
				}
			}
		}
	})
}

// namesMany reports whether a request has a list of nodes that is too long.
func namesMany(q fields) bool {
	return max(len(text(q, "req_nodes")), len(text(q, "exc_nodes"))) > 2048
}

// maxPartitions is the length of a list of partitions that the script still reads.
const maxPartitions = 1024

// afterRestored checks the writes with which the script puts a type back that the plugin removed, and returns the
// answer without them.
func afterRestored(t *testing.T, q fields, got reply) reply {
	t.Helper()
	want := restored(q)
	if namesMany(q) {
		want = nil
	}
	for i := range len(want) {
		if i >= len(got.writes) || want[got.writes[i].field] != got.writes[i].value {
			t.Fatalf("%v\ngot %+v, want the writes %v first", q, got, want)
		}
	}
	got.writes = append([]write(nil), got.writes[len(want):]...)
	return got
}

// noSuchNode is the error for a job that needs more slices than a node has.
const noSuchNode = 2014

// checkBypass checks a submission to a managed partition while new jobs are sent to another partition.
func checkBypass(t *testing.T, q fields, d decisions.Table, got reply) {
	t.Helper()
	o := options{}
	for _, per := range pers {
		o[per] = entriesOf(text(q, "tres_per_"+per))
	}
	if hasShards(q, text(q, "partition"), &d) {
		checkRefusal(t, q, got)
		return
	}
	if r := requestOf(q, &d); r.understood && r.mig["node"].all() == 0 {
		devices := false
		for _, per := range pers {
			devices = devices || len(rewrite(text(q, "tres_per_"+per), &d).profiles.types) > 0
		}
		want := []write{{"partition", d.Bypass}}
		if r.foreign && !devices || !r.asks {
			want = nil
		}
		if got.rc != 0 || !reflect.DeepEqual(got.writes, want) {
			t.Fatalf("%v\ngot %+v, want the writes %+v", q, got, want)
		}
		return
	}
	checkRefusal(t, q, got)
}

// checkSlices checks that a submitted job has as many slices as GPUs on every node or, if the nodes have different
// numbers of GPUs, at least as many slices as GPUs on the node with the most.
func checkSlices(t *testing.T, q fields, d decisions.Table, got reply) {
	t.Helper()
	after := afterwards(asRecord(q), got)
	tasksPerNode := set(q, "ntasks_per_node")
	for _, w := range got.writes {
		if w.field == "ntasks_per_node" {
			tasksPerNode = int(w.value.(float64))
		}
	}
	valid := after.typed(&d) || after.enough(tasksPerNode, &d)
	if managed(text(q, "partition")) && len(got.writes) > 0 && !valid {
		t.Fatalf("%v\npasses and leaves %+v\n%+v", q, after, got)
	}
}

// asRecord returns the options of a job as those of a record.
func asRecord(q fields) fields {
	record := fields{}
	for _, per := range pers {
		if list, ok := q["tres_per_"+per]; ok {
			record["record.tres_per_"+per] = strings.ReplaceAll(list.(string), "gres:", "gres/")
		}
	}
	return record
}

const noGPU = "the job requests no GPU: add --gres=gpu:1 or --gpus=1"

// unused returns the message about the options of a job that have no effect, or nothing if it has none.
func unused(q fields, why string, onlyGrow bool) []string {
	var names []string
	for _, o := range []struct{ name, field, none string }{
		{"--mig", "mig", "auto"}, {"--mig-mem", "mig_mem", ""}, {"--mig-grow", "mig_grow", "off"},
	} {
		if v := option(q, o.field); v != "" && v != o.none && (!onlyGrow || o.name == "--mig-grow") {
			names = append(names, o.name)
		}
	}
	verb := " has"
	switch len(names) {
	case 0:
		return nil
	case 1:
	default:
		verb = " have"
	}
	return []string{"caelum: " + strings.Join(names, ", ") + verb + " no effect, because " + why}
}

// accepted returns the answer to a submission that gets slices.
func (o outcome) accepted(q fields) (r reply) {
	var tags []string
	if had, ok := q["admin_comment"].(string); ok {
		tags = append(tags, had)
	}
	tags = append(tags, "caelum:key="+o.stamp.key)
	if o.stamp.fingerprint != "" {
		tags = append(tags, "caelum:work="+o.stamp.fingerprint)
	}
	if o.stamp.numbers != "" {
		tags = append(tags, "caelum:args="+o.stamp.numbers)
	}
	if share := strings.Repeat("cpus", min(o.each, 1)) + strings.Repeat("memory", min(o.mib, 1)); share != "" {
		tags = append(tags, "caelum:share="+share)
	}
	if o.sized != "" {
		tags = append(tags, "caelum:sized="+o.sized, "caelum:by="+o.by)
	}
	if o.sized != "" {
		tags = append(tags, strings.Fields(growTag(o.grow))...)
	}
	if o.insteadOf != "" {
		tags = append(tags, "caelum:instead-of="+o.insteadOf)
	}
	if o.runs != "" {
		tags = append(tags, "caelum:runs="+o.runs)
	}
	if o.busy != "" {
		tags = append(tags, "caelum:busy="+o.busy)
	}
	if o.hold {
		tags = append(tags, "caelum:held")
	}
	r.writes = append(wanted(q, o), write{"admin_comment", strings.Join(tags, " ")})
	if o.hold {
		r.writes = append(r.writes, write{"priority", 0.0})
	}
	if why := sizeMessages[o.by]; o.warning != "" {
		r.messages = []string{o.warning}
	} else if why != "" {
		larger := ""
		if o.insteadOf != "" {
			larger = "; larger than " + o.insteadOf + ", so that the job ends within its time limit"
		}
		r.messages = []string{"caelum: " + o.sized + ", " + why + larger}
	} else if o.sized == "" {
		r.messages = unused(q, "the job names its profile", o.onlyGrow)
	}
	if o.rounded != "" {
		r.messages = append(r.messages, o.rounded)
	}
	return r
}

var (
	stamps   = regexp.MustCompile(`caelum:(key|work)=([0-9a-fA-F]+)`)
	argsWord = regexp.MustCompile(`caelum:args=([0-9.,]+)`)
)

// stampOf returns the stamp in the record of a pending job.
func stampOf(q fields) stamp {
	uid, _ := q["record.user_id"].(float64)
	s := stamp{uid: uint32(uid), name: predict.NameHash(text(q, "record.name"))}
	for _, m := range stamps.FindAllStringSubmatch(text(q, "record.admin_comment"), -1) {
		if m[1] == "key" && s.key == "" {
			s.key = m[2]
		} else if m[1] == "work" && s.fingerprint == "" {
			s.fingerprint = m[2]
		}
	}
	if m := argsWord.FindStringSubmatch(text(q, "record.admin_comment")); m != nil {
		s.numbers = m[1]
	}
	return s
}

// submitted sets the fields of a record as they are after a submission.
func (m maker) submitted(record fields) {
	record["tres_per_node"] = m.one(
		"gres:gpu:1,gres:mig:2g.10gb:1", "gres/gpu:1,gres/mig:2g.10gb:1", "gres:gpu:a100:2,gres:mig:1g.5gb:2",
		"gres:gpu:1", "gres/gpu:2", "gres/gpu:v100:1", "gres/gpu:1g.5gb:1",
	)
	record["admin_comment"] = m.one(
		"caelum:key=0123456789abcdef",
		"x caelum:key=0123456789abcdef caelum:held",
		"caelum:key=1 caelum:work=fedcba9876543210",
		"caelum:key=0123456789abcdef caelum:work=fedcba9876543210 caelum:args="+
			m.one("9,64", "64.5", ",,2", "1.2.3", m.raw),
		m.raw,
	)
	record["partition"] = m.one("gpu", "cpu", "cpu,gpu-long")
	for _, per := range []string{"job", "socket", "task"} {
		if m.IntN(3) > 0 {
			delete(record, "tres_per_"+per)
		}
	}
}

// uneven sets the fields of a record as they are after the submission of a job whose nodes have different numbers of
// GPUs.
func (m maker) uneven(record fields) {
	for _, per := range pers {
		delete(record, "tres_per_"+per)
	}
	prefix := m.one("gres:", "gres/")
	record["tres_per_node"] = prefix + m.one("mig:1g.5gb:2", "mig:2g.10gb:4", "net:1,"+prefix+"mig:1g.5gb:2")
	record["tres_per_task"] = prefix + m.one("gpu:1", "gpu:a100:1", "gpu=2")
	if m.IntN(2) == 0 {
		record["tres_per_job"] = prefix + m.one("gpu:3", "gpu:a100:3", "gpu:6")
	}
}

// change generates an update of a pending job, and the job's record. Half of the records look as they do after a
// submission.
func (m maker) change() fields {
	q, record := m.job(), m.job()
	for _, name := range []string{"num_tasks", "ntasks_per_node", "ntasks_per_tres", "sockets_per_node"} {
		delete(record, name) // a job record does not have this field
	}
	if m.IntN(2) == 0 {
		m.submitted(record)
	}
	if m.IntN(8) == 0 {
		record["tres_per_task"] = m.one("gres:gpu:1,gres:mig:1g.5gb:1", "gres/gpu:1,gres/mig:1g.5gb:0")
	} else if m.IntN(6) == 0 {
		m.uneven(record)
	}
	if _, named := record["partition"]; !named {
		record["partition"] = "gpu" // every record has a partition
	}
	if m.IntN(2) == 0 {
		q = fields{"user_id": q["user_id"], "uid": q["uid"], "priority": q["priority"]}
		for _, name := range []string{"partition", "tres_per_node", "min_nodes"} {
			if m.IntN(2) == 0 {
				q[name] = map[string]any{
					"partition": m.one("gpu", "cpu", "gpu,cpu"), "min_nodes": m.number(),
					"tres_per_node": m.one("", "gres:gpu:2", "gres/gpu:2", "gres:gpu:0", "gres:net:1",
						"gres:gpu:1,gres:mig:2g.10gb:0", "gres/mig:1g.5gb:1", "gres/gpu:v100:1",
						"gres/gpu:a100_1g.5gb:2", "gres/shard:2", "gres/shard:l40s:3", "gres:shard:9"),
				}[name]
			}
		}
	}
	if m.IntN(8) == 0 {
		q["nice"] = []float64{2147483653, 4294967294}[m.IntN(2)] // a nice value of 5; not set
	}
	if m.IntN(8) == 0 {
		record["job_state"] = []float64{0, 1, 2, 256, 1024, 32768}[m.IntN(6)]
	}
	if m.IntN(4) == 0 {
		record["tres_fmt_req_str"] = m.one("cpu=1,node=1,billing=1", "cpu=1,gres/gpu=1", "gres/mig:2g.10gb=1", m.raw)
	}
	if m.IntN(8) == 0 {
		q["uid"] = 0.0
		if m.IntN(2) == 0 {
			q = fields{"uid": 0.0, "admin_comment": "caelum:convert" + m.one("", " num_tasks=4 cpus_per_task=2",
				" num_tasks=4 ntasks_per_tres=2 shared=0", " ntasks_per_node=2 sockets_per_node=2 named=1", " "+m.raw)}
			record["min_nodes"] = float64(1 + m.IntN(4)) // every record has a number of nodes
		}
	}
	delete(q, "env.1")
	delete(q, "env.2")
	for name, value := range record {
		if strings.HasPrefix(name, "env.") {
			q[name] = value
			continue
		}
		if s, ok := value.(string); ok {
			value = strings.ReplaceAll(s, "\x00", "")
		}
		q["record."+name] = value
	}
	return q
}

// FuzzModify checks the updates of pending jobs by users. After an update, a job in a managed partition must have one
// typed slice per GPU slot, or must have no GPU and never have had one. The user's own request must remain unchanged,
// and the script may write only tres_per_node. The script must not change root's updates.
func FuzzModify(f *testing.F) {
	seeds(f)
	lua, path := both(f)
	table := tables{path: path}
	f.Fuzz(func(t *testing.T, seed uint64, raw string) {
		m := newMaker(seed, raw)
		q := m.change()
		stamped := stampOf(q)
		site := strings.ReplaceAll(m.site(), "bypass cpu\n", "")
		learned := stamp{stamped.uid, "0123456789abcdef", "fedcba9876543210", "", stamped.name}
		d := table.write(t, site+m.learned(learned))
		got := askBoth(t, lua, "modify", q)
		if strings.HasPrefix(text(q, "admin_comment"), "caelum:convert") && q["uid"] == 0.0 {
			checkConversion(t, q, got)
			return
		} else if q["uid"] == 0.0 {
			if !reflect.DeepEqual(got, reply{}) {
				t.Fatalf("%v\nroot's update: %+v", q, got)
			}
			return
		}
		before, after := recorded(q), afterwards(q, got)
		want, known := after.expected(q, d, &stamped, before)
		if got.rc == -1 {
			checkRefusal(t, q, got)
			if known && !want.refused {
				t.Fatalf("%v\nis refused: %q", q, got.messages)
			}
			return
		}
		if known && want.refused {
			t.Fatalf("%v\npasses: %+v", q, got)
		}
		if known {
			if r := (reply{writes: append(want.writes, concealed(q, before, after)...)}); !got.equal(r) {
				t.Fatalf("%v\ngot  %+v\nwant %+v", q, got, r)
			}
		}
		for _, w := range got.writes {
			if !slices.Contains([]string{
				"tres_per_node", "gres", "cpus_per_tres", "min_nodes", "max_nodes", "min_cpus", "exc_nodes",
			}, w.field) {
				t.Fatalf("%v\nwrites %+v", q, w)
			}
		}
		valid := after.typed(&d) || after.foreign(&d) ||
			before.uneven(&d) && reflect.DeepEqual(after, before) && !reshapes(q)
		if managed(partitionAfter(q)) && touches(q) && !valid && (before.asks(&d) || after.asks(&d)) {
			t.Fatalf("%v\npasses and leaves %+v\n%+v", q, after, got)
		}
	})
}

var reasonTag = regexp.MustCompile(`(^|[ -~]) *caelum:unconverted=[!-~]+$`)

// checkConversion checks the answer to `caelum convert-jobs`: the script adds slices, or only holds the job and writes
// a reason without spaces, or changes nothing.
func checkConversion(t *testing.T, q fields, got reply) {
	t.Helper()
	job := fields{}
	for _, w := range got.writes {
		if w.field == "gres" {
			w = write{"tres_per_node", "gres:" + strings.ReplaceAll(w.value.(string), ",", ",gres:")}
		}
		job[w.field] = w.value
	}
	comment, added := text(job, "admin_comment"), text(job, "tres_per_node")
	mig, _ := sumOf(entriesOf(added), "mig", nil)
	ok := mig.all() > 0
	if strings.Contains(comment, "caelum:unconverted=") {
		ok = len(job) == 2 && job["priority"] == 0.0 && reasonTag.MatchString(comment)
	} else if added == "" {
		ok = len(job) == 1 && comment == ""
	}
	if got.rc != 0 || len(got.messages)+len(got.log) > 0 || !ok {
		t.Fatalf("%v\nis converted to %+v", q, got)
	}
}

// equal reports whether two answers have the same effects. The order of the writes is not significant.
func (r reply) equal(other reply) bool {
	final := func(writes []write) map[string]any {
		all := map[string]any{}
		for _, w := range writes {
			all[w.field] = w.value
		}
		return all
	}
	return r.rc == other.rc && slices.Equal(r.messages, other.messages) && slices.Equal(r.log, other.log) &&
		reflect.DeepEqual(final(r.writes), final(other.writes))
}

func askBoth(t *testing.T, lua [2]*process, word string, q fields) reply {
	t.Helper()
	old, latest := lua[0].ask(t, word, q), lua[1].ask(t, word, q)
	if !old.equal(latest) {
		t.Fatalf("%v\n%s %+v\n%s %+v", q, lua[0].name, old, lua[1].name, latest)
	}
	if len(old.log) > 0 {
		t.Fatalf("%v\nlogged %q", q, old.log)
	}
	return old
}

func checkRefusal(t *testing.T, q fields, got reply) {
	t.Helper()
	if got.rc != -1 || len(got.writes) > 0 || len(got.messages) != 1 ||
		!strings.HasPrefix(got.messages[0], "caelum: ") ||
		strings.ContainsFunc(got.messages[0], unicode.IsControl) {
		t.Fatalf("%v\nmust be refused without any other effect: %+v", q, got)
	}
}

// wanted returns the expected writes to the request fields.
func wanted(q fields, o outcome) (all []write) {
	for name, value := range o.changed {
		all = append(all, write{name, value})
	}
	q = q.with(o.changed)
	if o.cpus != "" {
		all = append(all, write{"cpus_per_tres", o.cpus})
	}
	prefix := prefixOf(q)
	if o.each > 0 && prefix != "" {
		all = append(all, write{"cpus_per_tres", fmt.Sprintf("%[1]sgpu:%[2]d,%[1]smig:%[2]d", prefix, o.each)})
	}
	if o.mib > 0 && prefix != "" {
		all = append(all, write{"mem_per_tres", fmt.Sprintf("%sgpu:%d", prefix, o.mib)})
	}
	if o.minNodes > 0 {
		all = append(all, write{"min_nodes", float64(o.minNodes)})
	}
	if o.tasksPerNode > 0 {
		all = append(all, write{"ntasks_per_node", float64(o.tasksPerNode)})
	}
	if o.maxNodes > 0 {
		all = append(all, write{"max_nodes", float64(o.maxNodes)})
	}
	if len(o.added) == 0 {
		return all
	}
	if prefix == "" { // slurmctld adds its release's prefix to the gres field
		all = append(all, write{"gres", strings.Join(o.added, ",")})
		if len(o.kept) == 0 {
			return all
		}
		prefix = "gres:"
	} else if o.rounded != "" {
		all = append(all, write{"tres_per_job", ""})
	}
	entries := slices.Clone(o.kept)
	for _, a := range o.added {
		entries = append(entries, prefix+a)
	}
	return append(all, write{"tres_per_node", strings.Join(entries, ",")})
}

// prefixOf returns the prefix of a job's GRES, or "".
func prefixOf(q fields) string {
	for _, per := range pers {
		list := text(q, "tres_per_"+per)
		list = list[:min(len(list), maxTRES)]
		colon, slash := strings.Index(list, "gres:"), strings.Index(list, "gres/")
		switch {
		case colon >= 0 && (slash < 0 || colon < slash):
			return "gres:"
		case slash >= 0:
			return "gres/"
		}
	}
	return ""
}
