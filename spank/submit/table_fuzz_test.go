package jobsubmit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"caelum/internal/controller/decisions"
	"caelum/internal/core/predict"
)

// script is the batch script of the jobs that probe a table.
const script = "#!/bin/sh\n"

var probed = predict.KeyInput{UID: 7, Script: script, GPUs: 1, Nodes: 1, Args: []string{"2000"}}

// probedStamp returns the stamp of the jobs that probe a table.
func probedStamp() stamp {
	return stamp{probed.UID, predict.Key(probed), predict.Fingerprint(probed), "2000", predict.NameHash(probed.JobName)}
}

// table generates a decision table with valid lines, invalid lines and raw.
func (m maker) table() string {
	var b strings.Builder
	const head = "caelum-decisions 1 7"
	b.WriteString(m.one(head, head, head, "caelum-decisions 1 1", "caelum-decisions 2 7", head+"\r", m.raw) + "\n")
	all := []string{
		"partition gpu" + m.one("", "", " grow=oom", " grow=forecast", " 2g.10gb grow=off", " grow=",
			" grow=oom 1g.5gb", " 1g.5gb grow=oom "+m.raw, " "+m.raw),
		"profile 1g.5gb" + m.one("", " 4864"),
		"profile 2g.10gb" + m.one("", " 9856"),
		"default " + m.one("1g.5gb", "2g.10gb", m.raw),
	}
	for range m.IntN(8) {
		profile := m.one("1g.5gb", "2g.10gb", "2g.10gb", "1g.5gb+me", m.raw)
		number := m.one("", "", " 60", " 999999999", " 0", " 060", " 1000000000", " 1e3", " 60 0",
			" 60 60", " 999999999 100", " 60 101", " 60 050", " 60 50%", " 60 60 60", " 60-70", " 60-70 80", " 60-59",
			" 60-60 0", " 60-070", " 60-", " 60-70-80", " 60-1000000000", " 60 "+m.raw, " "+m.raw)
		key, fingerprint := predict.Key(probed), predict.Fingerprint(probed)
		all = append(all, m.one(
			"partition long",
			"partition "+m.raw,
			"profile "+profile+number,
			"profile 2g.10gb 9728",
			"whole "+profile,
			"profile 2g.10gb "+m.one("9856 1", "9856 2", "50000 14", "9856 0", "9856 02", "9856 2 2", "9856 "+m.raw),
			"max_cpus "+m.one("1", "64", "999999999", "0", "064", "1000000000", m.raw)+m.one("", "", " x"),
			"alias "+m.one("x", "a100_10g", "10gb", m.raw)+" "+profile+m.one("", "", number),
			"shard "+m.one("", "", "a100:", "l40s:", "1x:", ":", m.raw+":")+m.one("1", "2", "8", "08", "0", m.raw)+
				" "+profile+m.one("", "", "", number),
			"model "+m.one("a100", m.raw)+" "+profile+m.one("", "", number),
			"grow "+m.one("off", "oom", "forecast", "OOM", "", m.raw),
			"max_nodes "+m.one("0", "3", "9999", m.raw),
			"bypass "+m.one("off", "off", "whole", "whole", "gpu", "a,b", m.raw)+m.one("", "", " x"),
			"key "+m.one("7:", "7:", "7:", "8:", "07:", "", m.raw)+
				m.one(key, key, "0123456789abcdef", "0123456789ABCDEF", m.raw)+" "+profile+number,
			"user "+m.one("7:", "7:", "8:", "07:", "-7:", ":", m.raw)+
				m.one(fingerprint, fingerprint, m.raw)+" "+profile+number,
			"site "+m.one(fingerprint, fingerprint, "0123456789abcdef", m.raw)+" "+profile+number,
			m.one(m.similar()+" "+profile+number, "args "+m.steps(key)),
			"# "+m.raw,
			"", " ",
			"default 2g.10gb",
			m.raw,
			m.raw+strings.Repeat("x", m.IntN(3000))+" y z",
		))
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

// similar generates the first two words of a name or owner line.
func (m maker) similar() string {
	none := predict.NameHash("") // the jobs that probe a table have no name
	return m.one("owner "+m.one("7", "7", "8", "07", "-7", "7:", m.raw),
		"name "+m.one("7:", "7:", "8:", "07:", ":", m.raw)+m.one(none, none, "0123456789abcdef", m.raw))
}

// steps generates an args line without its first word.
func (m maker) steps(key string) string {
	all := []string{
		m.one("7:", "7:", "7:", "8:", "07:", "", m.raw) + m.one(key, key, "0123456789abcdef", m.raw),
		m.one("1", "1", "1", "2", "4", "0", "5", "12", m.raw),
	}
	for range m.IntN(4) {
		all = append(all, m.one("8", "64", "1999.5", "2000", "2000.0", "02000", "3000", "999999999999.999999", "1e3",
			"5.", "1234567890123", "1.1234567", "*", m.raw)+m.one("=", "=", "=", "=", "", "==")+
			m.one("1g.5gb", "1g.5gb", "2g.10gb", "1g.5gb+me", m.raw))
	}
	if m.IntN(9) == 0 {
		for i := range 16 {
			all = append(all, fmt.Sprintf("%d=1g.5gb", 4000+i))
		}
	}
	return strings.Join(append(all, m.one("*=1g.5gb", "*=2g.10gb", "*=2g.10gb", "*=9g.99gb", "", m.raw)), " ")
}

// FuzzTable checks that the script uses all lines of a valid table, and none of an invalid one. After an invalid table,
// it must continue to use the previous table and log one line. Without a previous table, it must reject requests for
// GPUs and accept others.
func FuzzTable(f *testing.F) {
	for i, raw := range []string{
		"", "#", "closed", "partition cpu", "3g.20gb", "key 7:0123456789abcdef 1g.5gb", "\x00", "\xff\xa0", "\n\n",
		strings.Repeat("x", 2000),
	} {
		for k := range 4 {
			f.Add(uint64(4*i+k), raw)
		}
	}
	lua, path := both(f)
	f.Fuzz(func(t *testing.T, seed uint64, raw string) {
		m := newMaker(seed, raw)
		text := raw
		if m.IntN(16) > 0 {
			text = m.table()
		}
		read, why := decisions.Parse(text)
		if faults := decisions.Check(text); (len(faults) > 0) != (why != nil) {
			t.Errorf("Check returned %+v, and Parse returned %v for the table %q", faults, why, text)
		}
		base, _ := decisions.Parse(oracleTable)
		for _, l := range lua {
			before := m.IntN(2) == 0
			l.ask(t, "load", nil)
			if before {
				writeTable(t, path, oracleTable)
				l.ask(t, "submit", fields{"tres_per_node": "gres:gpu:1", "uid": 7.0, "user_id": 7.0})
			}
			writeTable(t, path, text)
			p := probe{t, l, text}
			// The script does not read a table that has the same generation and size as the previous one.
			sameHead := strings.HasPrefix(text, "caelum-decisions 1 1\n")
			switch same := before && sameHead && len(text) == len(oracleTable); {
			case same:
				p.force(base, nil)
			case why == nil:
				p.force(read, nil)
			case before:
				p.force(base, why)
			default:
				p.closed(path, why)
			}
		}
	})
}

// probe determines which table the script uses under one Lua version.
type probe struct {
	*testing.T
	lua  *process
	text string
}

// probedJob holds the fields of the probed job, which is submitted without catalogue nodes.
var probedJob = fields{
	"uid": 7.0, "user_id": 7.0, "priority": 4294967294.0, "script": script, "no_parts": 1.0,
	"argc": 2.0, "argv.0": "train.sh", "argv.1": "2000",
}

func (p probe) submit(q fields) reply {
	p.Helper()
	q = q.with(probedJob)
	if q["partition"] == nil {
		q["partition"] = "gpu"
	}
	r := p.lua.ask(p.T, "submit", q)
	return r
}

// gives checks the slices that a submission gets. If want is none, the script must accept the submission unchanged; if
// want is refused, it must reject it.
func (p probe) gives(q fields, want string) reply {
	p.Helper()
	r, got := p.submit(q), ""
	for _, w := range r.writes {
		switch w.field {
		case "tres_per_node":
			_, got, _ = strings.Cut(w.value.(string), ",gres:")
		case "partition":
			got += "to " + w.value.(string)
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

// force checks that the script uses a table. why is the expected error in the log, or nil.
func (p probe) force(d decisions.Table, why error) {
	p.Helper()
	known := learned(d, probedStamp())
	log := p.partitions(d, known)
	if text, remedy := d.IgnoredKeys(); why == nil && text != "" {
		says := ": " + text + "; " + remedy
		if len(log) != 1 || !strings.Contains(log[0], says) {
			p.Fatalf("%s, table %q\nlogged %q, want %q", p.lua.name, p.text, log, says)
		}
		log = nil
	}
	p.logged(log, why, "; the last valid table remains in use")
	managed := ""
	for _, partition := range d.Partitions {
		if !strings.Contains(partition, ",") {
			managed = partition
		}
	}
	if managed != "" && d.Bypass != "" {
		for _, name := range append(few(d.Names()), "9g.99gb") {
			if strings.ContainsFunc(name, func(r rune) bool { return r > '9' }) && len(name) < 1000 {
				p.gives(fields{"tres_per_node": "gres:gpu:1,gres:mig:" + name + ":1", "partition": managed}, "refused")
			}
		}
	} else if managed != "" {
		p.profiles(d, managed)
		p.sizes(d, managed, known)
		p.nodes(d, managed)
		p.places(d, managed)
		p.aliases(d, managed)
		p.shards(d, managed)
	}
}

// partitions checks that only jobs in the table's partitions get slices, and that these have the probed job's profile.
// It returns the logged lines.
func (p probe) partitions(d decisions.Table, known *predict.Line) (log []string) {
	p.Helper()
	profile, figures := cmp.Or(predicted(d, probedStamp(), known), d.Default), ""
	by := sourceOf(nil, d, probedStamp())
	if known != nil {
		if runs := runTimeOf(known); runs != "" {
			figures = " caelum:runs=" + runs
		}
		if busy := busyOf(known); busy != "" {
			figures += " caelum:busy=" + busy
		}
	}
	for _, partition := range append(few(d.Partitions), "gpu", "cpu", "gp.") {
		want := "none"
		if slices.ContainsFunc(
			strings.Split(partition, ","),
			func(s string) bool { return slices.Contains(d.Partitions, s) },
		) {
			if want = "mig:" + profile + ":1"; d.Bypass != "" {
				want = "to " + d.Bypass
			}
		}
		r := p.gives(fields{"tres_per_node": "gres:gpu:1", "partition": partition}, want)
		log = append(log, r.log...)
		mode, _ := grow(fields{"partition": partition}, d)
		tags := " caelum:sized=" + profile + " caelum:by=" + by + growTag(mode) + figures
		for _, w := range r.writes {
			if comment, ok := w.value.(string); ok && w.field == "admin_comment" &&
				!strings.HasSuffix(strings.TrimSuffix(comment, " caelum:held"), tags) {
				p.Fatalf("%s, table %q\n%s, want %s", p.lua.name, p.text, comment, tags)
			}
		}
	}
	return log
}

// profiles checks that a job can request the table's profiles, but no others.
func (p probe) profiles(d decisions.Table, partition string) {
	p.Helper()
	names := d.Names()
	for _, name := range append(few(names), "9g.99gb", "closed") {
		want := "gpu:1"
		if !slices.Contains(names, name) {
			want = "refused"
		}
		// A GRES type in Slurm has at least one letter, and a request at most 1024 bytes.
		if strings.ContainsFunc(name, func(r rune) bool { return r > '9' }) && len(name) < 1000 {
			p.gives(fields{"tres_per_node": "gres:mig:" + name + ":1", "partition": partition}, want)
		}
	}
}

// sizes checks the slices of jobs with --mig-mem, and with --mig=off.
func (p probe) sizes(d decisions.Table, partition string, known *predict.Line) {
	p.Helper()
	for _, mem := range []string{"", "4864", "9728", "9856", "60"} {
		option := "_SLURM_SPANK_OPTION_caelum_mig=off"
		if mem != "" {
			option = "_SLURM_SPANK_OPTION_caelum_mig_mem=" + mem
		}
		q := fields{"tres_per_node": "gres:gpu:1", "partition": partition, "env.1": option}
		profile, _, _, ok := size(q, d, predicted(d, probedStamp(), known), "")
		if !ok {
			p.gives(q, "refused")
		} else {
			p.gives(q, "mig:"+profile+":1")
		}
	}
}

// nodes checks that jobs on more than max_nodes nodes are held, and that no other jobs are.
func (p probe) nodes(d decisions.Table, partition string) {
	p.Helper()
	for _, nodes := range []int{max(d.MaxNodes, 1), d.MaxNodes + 1} {
		r := p.submit(fields{"tres_per_node": "gres:gpu:1", "partition": partition, "min_nodes": float64(nodes)})
		held := slices.Contains(r.writes, write{"priority", 0.0})
		if held != (nodes > d.MaxNodes) {
			p.Fatalf("%s, table %q\n%d nodes held: %v (%+v)", p.lua.name, p.text, nodes, held, r)
		}
	}
}

// places checks that the jobs of a partition do not request more slices or CPUs than a node has.
func (p probe) places(d decisions.Table, partition string) {
	p.Helper()
	for _, cpus := range []string{"", "3"} {
		q := fields{
			"tres_per_job": "gres:gpu:4", "partition": partition, "env.1": "_SLURM_SPANK_OPTION_caelum_mig=off",
		}.with(probedJob)
		if cpus != "" {
			q["cpus_per_tres"] = "gres:gpu:" + cpus
		}
		want := oracle(q, d, nil)
		r := p.submit(q)
		refused := want.refused || want.unavailable
		if refused != (r.rc != 0) || !refused && want.minNodes > 0 !=
			slices.Contains(r.writes, write{"min_nodes", float64(want.minNodes)}) {
			p.Fatalf("%s, table %q\n%v: %+v, want %+v", p.lua.name, p.text, q, r, want)
		}
	}
}

// aliases checks that jobs can request static MIG devices by the names in the table.
func (p probe) aliases(d decisions.Table, partition string) {
	p.Helper()
	for _, alias := range append(few(slices.Sorted(maps.Keys(d.Aliases))), "2g.10gb", "x_9g.99gb") {
		q := fields{"tres_per_node": "gres:gpu:" + alias + ":1", "partition": partition}.with(probedJob)
		want := oracle(q, d, nil)
		r := p.submit(q)
		refused := want.refused || want.unavailable
		if refused != (r.rc != 0) || want.foreign != (len(r.writes) == 0 && !refused) {
			p.Fatalf("%s, table %q\n%v: %+v, want %+v", p.lua.name, p.text, q, r, want)
		}
	}
}

// shards checks the slices of jobs that request shards.
func (p probe) shards(d decisions.Table, partition string) {
	p.Helper()
	for _, kind := range append(few(slices.Sorted(maps.Keys(d.Shards))), "a100") {
		for _, n := range []string{"1", "2", "3", "8", "9"} {
			list := strings.TrimSuffix("gres:shard:"+kind, ":") + ":" + n
			q := fields{"tres_per_node": list, "partition": partition}.with(probedJob)
			want := oracle(q.with(fields{"partition": "gpu"}), d, nil) // managed in every test
			r := p.submit(q)
			refused := want.refused || want.unavailable
			if refused != (r.rc != 0) || (want.none || want.foreign) != (len(r.writes) == 0 && !refused) {
				p.Fatalf("%s, table %q\n%v: %+v, want %+v", p.lua.name, p.text, q, r, want)
			}
		}
	}
}

// logged checks that the log has the expected line about the table, or no line.
func (p probe) logged(log []string, why error, then string) {
	p.Helper()
	if why == nil && len(log) == 0 || why != nil && len(log) == 1 && strings.HasSuffix(log[0], ": "+why.Error()+then) {
		return
	}
	p.Fatalf("%s, table %q\nlogged %q, want %v", p.lua.name, p.text, log, why)
}

func (p probe) closed(path string, why error) {
	p.Helper()
	r := p.gives(fields{"tres_per_node": "gres:gpu:1", "partition": "cpu"}, "refused")
	p.logged(r.log, why, "; requests for GPUs are refused")
	if len(r.messages) != 1 || !strings.Contains(r.messages[0], path) {
		p.Fatalf("%s, table %q\n%+v", p.lua.name, p.text, r)
	}
	if again := p.gives(fields{"tres_per_node": "gres:gpu:1"}, "refused"); len(again.log) != 0 {
		p.Fatalf("%s, table %q\nlogged twice: %q", p.lua.name, p.text, again.log)
	}
	p.gives(fields{"tres_per_node": "gres:net:1"}, "none")
}

// few returns the first elements of a list. Appending to the result does not change the list.
func few(list []string) []string { return slices.Clip(list[:min(5, len(list))]) }
