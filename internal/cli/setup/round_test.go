package setup

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawSite returns a random site with the managed nodes n1 and n2. Its files have random line endings, comments,
// continuation lines, spaces, quotes and keys in random case.
func drawSite(t *rapid.T) site {
	coin := func(label string) bool { return rapid.Bool().Draw(t, label) }
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	space := func() string { return pick("space", " ", "  ", "\t", " \\\n ", "\\\n\t") }
	pair := func(key, value string) string {
		if coin("lower") {
			key = strings.ToLower(key)
		}
		if coin("quotes") {
			value = `"` + value + `"`
		}
		return key + pick("equals", "=", " =", "= ") + value
	}
	end := func() string { return pick("end", "\n", " \n", " # comment\n", "# \\\n", "\n\n", "\n# Nodes=n1 \\\n") }
	parameters := []string{
		pair("ClusterName", "site"),
		pair("GresTypes", pick("types", "gpu", "mig,gpu", "craynetwork")),
		pair("PrologFlags", pick("flags", "X11", "alloc", "Contain,NoHold")),
		pair("BatchStartTimeout", pick("timeout", "10", "120", "600")),
		pair("SchedulerParameters", pick("scheduler", "bf_interval=5", "bf_continue", "batch_sched_delay=3,defer")),
		pair("AccountingStorageTRES", pick("tres", "gres/gpu", "gres/mig,gres/gpu:a100")),
		pair("JobSubmitPlugins", pick("plugins", "lua", "require_timelimit,lua", "job_submit/lua,all_partitions")),
		pair("PlugStackConfig", pick("plugstack", "/etc/slurm/plugstack.conf", "/etc/slurm/other.conf")),
	}
	var main, nodes strings.Builder
	for i, p := range parameters {
		if i == 6 || coin("set") {
			main.WriteString(p + end())
		}
	}
	if coin("default") {
		nodes.WriteString(pair("NodeName", "DEFAULT") + space() + pair("RealMemory", "9000") + end())
	}
	for _, name := range rapid.SampledFrom([][]string{
		{"n[1-2]"}, {"n1", "n2"}, {"n2,n1"}, {"n2", "c[1-9]", "n1"}, {"n[1-9]"}, {"n[2,5],c1", "n1"},
	}).Draw(t, "names") {
		nodes.WriteString(pair("NodeName", name) + space() + pair("CPUs", "8"))
		if strings.HasPrefix(name, "n") && coin("gres") {
			nodes.WriteString(space() + pair("Gres", pick("value", "gpu:2", "gpu:a100:2,fast:1")))
		}
		if coin("last") {
			nodes.WriteString(space() + pair("State", "UNKNOWN"))
		}
		nodes.WriteString(end())
	}
	partitions := pair("PartitionName", "gpu") + space() + pair("Nodes", pick("list", "n[1-2]", "n1,n2", "ALL")) + end()
	s := site{}
	if coin("include") {
		s["/etc/slurm/nodes.conf"] = nodes.String()
		main.WriteString("Include nodes.conf" + end() + partitions)
	} else {
		main.WriteString(nodes.String() + partitions)
	}
	s["/etc/slurm/slurm.conf"] = main.String()
	drawOthers(t, s)
	return s
}

// drawOthers adds random other files to a site, and changes the line endings of all files at random.
func drawOthers(t *rapid.T, s site) {
	coin := func(label string) bool { return rapid.Bool().Draw(t, label) }
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	optional := map[string][]string{
		"/etc/slurm/gres.conf": {"", "AutoDetect=nvml\n", "Name=gpu File=/dev/nvidia[0-1]\n# end\n",
			"NodeName=n1 Name=gpu Count=2\nNodeName=n2 Name=gpu \\\n Count=2\nName=fast Count=1\n"},
		"/etc/slurm/plugstack.conf": {"", "# nothing\n", "optional x.so a=b\n"},
		"/etc/slurm/job_submit.lua": {"", "return slurm.SUCCESS\n", "function f() end -- end\n",
			"#!lua\nlocal x = 1\n"},
	}
	for _, name := range []string{"/etc/slurm/gres.conf", "/etc/slurm/plugstack.conf", "/etc/slurm/job_submit.lua"} {
		if coin("exists") {
			s[name] = pick(name, optional[name]...)
		}
	}
	for _, name := range []string{"/etc/slurm/gres.conf", "/etc/slurm/plugstack.conf", "/etc/slurm/job_submit.lua",
		"/etc/slurm/slurm.conf", "/etc/slurm/nodes.conf"} {
		text, ok := s[name]
		if coin("no newline") && !strings.HasSuffix(strings.TrimRight(text, "\n"), `\`) {
			text = strings.TrimRight(text, "\n")
		}
		if coin("crlf") {
			text = strings.ReplaceAll(text, "\n", "\r\n")
		}
		if ok {
			s[name] = text
		}
	}
}

// TestRoundTrip checks with random sites that the patch and its inverse restore every file byte by byte, and that a
// second merge is empty.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSite(t)
		r, err := s.merge("n[1-2]", "gpu")
		if err != nil || len(r.Problems) > 0 {
			t.Fatalf("%v %v", err, r.Problems)
		}
		changed := s.check(t, r, "n[1-2]", "gpu")
		for name, text := range s {
			if strings.Count(text, "\r\n") == strings.Count(text, "\n") && strings.Contains(text, "\r\n") &&
				strings.Count(changed[name], "\r\n") != strings.Count(changed[name], "\n") {
				t.Fatalf("%s has different line endings than before: %q", name, changed[name])
			}
		}
	})
}

// TestRoundTripWithPatch checks with random sites that patch(1) produces the intended files, and that `patch -R` and
// the inverse restore the files.
func TestRoundTripWithPatch(t *testing.T) {
	hasPatch(t)
	for seed := range 40 {
		s := rapid.Custom(drawSite).Example(seed)
		r, err := s.merge("n[1-2]", "gpu")
		if err != nil || len(r.Problems) > 0 {
			t.Fatalf("seed %d: %v %v", seed, err, r.Problems)
		}
		dir, err := os.MkdirTemp(t.TempDir(), "site")
		if err != nil {
			t.Fatal(err)
		}
		changed := s.gnuPatch(t, dir, Patch(r.Files))
		want, err := s.apply(Patch(r.Files))
		if err != nil || !maps.Equal(changed, want) {
			t.Fatalf("seed %d: the files are\n%q\nwant\n%q (%v)", seed, changed, want, err)
		}
		if back := changed.gnuPatch(t, dir, Patch(r.Files), "-R"); !maps.Equal(back, s) {
			t.Fatalf("seed %d: after patch -R, the files are\n%q\nwant\n%q", seed, back, s)
		}
		s.gnuPatch(t, dir, Patch(r.Files))
		if back := changed.gnuPatch(t, dir, Inverse(r.Files)); !maps.Equal(back, s) {
			t.Fatalf("seed %d: after the inverse, the files are\n%q\nwant\n%q", seed, back, s)
		}
	}
}

// TestRevertAfterChangedTable checks that `patch -R -f` restores the site's files although the decision table has
// changed since the patch was applied, and keeps the table.
func TestRevertAfterChangedTable(t *testing.T) {
	hasPatch(t)
	s := rapid.Custom(drawSite).Example(1)
	r, err := s.merge("n[1-2]", "gpu")
	if err != nil || len(r.Problems) > 0 {
		t.Fatalf("%v %v", err, r.Problems)
	}
	dir := t.TempDir()
	changed := s.gnuPatch(t, dir, Patch(r.Files))
	const table = "/etc/caelum/decisions"
	changed[table] = strings.Replace(changed[table], "caelum-decisions 1 1", "caelum-decisions 1 2", 1)
	changed.write(t, dir)
	cmd := exec.Command("patch", "-R", "-f", "-p1", "-d", dir)
	cmd.Stdin = bytes.NewReader(Patch(r.Files))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Hunk #1 FAILED") {
		t.Errorf("patch: %v\n%s", err, out)
	}
	back := readSite(t, dir)
	if back[table] != changed[table] {
		t.Errorf("the table is %q", back[table])
	}
	maps.DeleteFunc(back, func(name, _ string) bool { return strings.HasPrefix(name, table) })
	if !maps.Equal(back, s) {
		t.Errorf("after patch -R, the files are\n%q\nwant\n%q", back, s)
	}
}

// FuzzMerge checks that, for arbitrary input, Merge reports a problem or passes the round-trip checks.
func FuzzMerge(f *testing.F) {
	const conf = "NodeName=n[1-2] Gres=gpu:2 # x\\\nPartitionName=gpu \\\r\n Nodes=n[1-2]\nJobSubmitPlugins=lua"
	f.Add(conf, "Name=gpu File=/dev/nvidia[0-1]", "optional x.so", "return 0")
	f.Add(conf+"\r\nInclude gres.conf\r\n", "\\", "\r\n", "#")
	f.Add(conf+"\nGresTypes=\"\" PrologFlags= Alloc\n", "AutoDetect = NVML\r\nNodeName=n1 AutoDetect=off", "#",
		"caelum\r")
	f.Fuzz(func(t *testing.T, conf, gres, plugstack, lua string) {
		s := site{"/etc/slurm/slurm.conf": conf, "/etc/slurm/gres.conf": gres, "/etc/slurm/plugstack.conf": plugstack,
			"/etc/slurm/job_submit.lua": lua}
		r, err := s.merge("n[1-2]", "gpu")
		if err == nil && len(r.Problems) == 0 {
			s.check(t, r, "n[1-2]", "gpu")
		}
	})
}
