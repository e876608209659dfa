package qualify

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestModels qualifies emulated nodes of several GPU models, beside an instance of another program. No row may differ,
// and all rows that the emulator can check must hold.
func TestModels(t *testing.T) {
	for _, c := range []struct{ model, options, profile string }{
		{"A30-24GB", "", "1g.6gb 3"},
		{"A100-40GB", "--modify-device-files 0", "1g.5gb 6"},
		{"H100-80GB", "", "2g.20gb 4"},
		{"H100-80GB", "--swap-halves all --modify-device-files 0", "1g.20gb 0"},
		{"B200-180GB", "", "1g.45gb 2"},
		{"RTX-PRO-6000-96GB", "--modify-device-files 0", "1g.24gb 9"},
	} {
		t.Run(c.model+c.options, func(t *testing.T) {
			n := newNode(t, c.model, 2, strings.Fields(c.options)...)
			n.Emulator(t, append([]string{"create", "1"}, strings.Fields(c.profile)...)...)
			if os.Getenv("REALISTIC") != "" {
				n.Emulator(t, "latency", "realistic")
			}
			began := time.Now()
			rep := n.run(t, func(o *Options) {
				o.ModeSwitch, o.CUDA, o.Modprobe = true, n.cuda(), n.modprobe(t, "")
			})
			t.Logf("%.1f s", time.Since(began).Seconds())
			never := map[string]bool{"A11": true} // the emulator's files have no driver
			for k, row := range rep.Rows {
				if row.ID[0] == 'A' && row.Result != Holds && assumptions[k].never == "" && !never[row.ID] {
					t.Errorf("%s %s: %q", row.ID, row.Result, row.Details)
				}
			}
			if !rep.Usable() || rep.Verdict() != "Caelum may be used on this node" {
				t.Errorf("verdict: %s", rep.Verdict())
			}
			checkRecord(t, n, rep)
		})
	}
}

// checkRecord checks that the record has facts of each kind, and nothing that identifies the node.
func checkRecord(t *testing.T, n node, rep *Report) {
	t.Helper()
	data, err := json.Marshal(rep.Record)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, f := range rep.Record.Records {
		kinds[f.Kind]++
	}
	for _, kind := range []string{"lgip", "lgipp", "lgi", "ci", "devmem", "caps", "error", "latency"} {
		if kinds[kind] < 2 {
			t.Errorf("the record has %d facts of kind %s, want at least one for each GPU", kinds[kind], kind)
		}
	}
	host, _ := os.Hostname()
	secret := regexp.MustCompile(`(?i)[0-9a-f]{8}-[0-9a-f]{4}-|` + regexp.QuoteMeta(n.Dev))
	if found := secret.Find(data); found != nil || len(host) > 3 && strings.Contains(string(data), host) {
		t.Errorf("the record contains %q or the host's name", found)
	}
}

// TestReadOnly checks that a run with ReadOnly makes no call that changes the emulated machine, and no file.
func TestReadOnly(t *testing.T) {
	n := newNode(t, "A100-40GB", 2)
	rep := n.run(t, func(o *Options) { o.ReadOnly = true })
	if log := n.Emulator(t, "log"); strings.Contains(log, "create-gi") {
		t.Errorf("the run created an instance:\n%s", log)
	}
	for _, row := range rep.Rows {
		if row.Result == Differs {
			t.Errorf("%s differs: %q", row.ID, row.Details)
		}
	}
	if want := "undecided"; !strings.HasPrefix(rep.Verdict(), want) {
		t.Errorf("verdict %q, want %s", rep.Verdict(), want)
	}
}

// TestMIGOff checks that a run creates nothing on a GPU whose MIG mode is off, and says so.
func TestMIGOff(t *testing.T) {
	n := newNode(t, "A100-40GB", 1, "--mig", "off")
	rep := n.run(t, nil)
	if want := "GPU 0, NVIDIA A100-SXM4-40GB: MIG mode is off"; !strings.Contains(rep.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, rep)
	}
}

// TestBusyGPU checks that a run says that a GPU is in use and goes on, if the driver refuses its first instance.
func TestBusyGPU(t *testing.T) {
	n := newNode(t, "A30-24GB", 1)
	n.Emulator(t, "fault", "add", "--call", "CREATE_GI", "--error", "IN_USE", "--times", "1000")
	rep := n.run(t, nil)
	if want := "GPU 0 is in use"; !strings.Contains(rep.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, rep)
	}
}

// TestFailedCallLeavesInstance checks that a run removes the instance of a call that failed after it had created one.
func TestFailedCallLeavesInstance(t *testing.T) {
	n := newNode(t, "A30-24GB", 1)
	n.Emulator(t, "fault", "add", "--call", "CREATE_GI", "--error", "UNKNOWN", "--after")
	rep := n.run(t, nil)
	if want := "a failed call left an instance"; !strings.Contains(rep.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, rep)
	}
}

// TestVerdict checks the verdicts of rows that block, of rows that Caelum handles, and of rows that were not checked.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		differ, skip, usable string
		want                 string
	}{
		{"A1", "", "no", "do not use Caelum on this node: A1 differ"},
		{"A3", "", "yes", "Caelum may be used on this node; read the actions for A3"},
		{"", "", "yes", "Caelum may be used on this node"},
		{"", "A10", "yes", "Caelum may be used on this node; not checked: A10"},
		{"A3", "A10", "yes", "Caelum may be used on this node; read the actions for A3; not checked: A10"},
		{"", "A8", "yes", "undecided: no check found a reason not to use Caelum, but A8 were not checked"},
	} {
		r := newReport()
		r.without["F"] = "no fractions"
		for _, a := range assumptions {
			if a.id != c.skip && r.without[a.id[:1]] == "" {
				r.holds(a.id, "seen")
			}
		}
		if c.differ != "" {
			r.differs(c.differ, "seen otherwise")
		}
		r.finish(false)
		if got := fmt.Sprint(r.Verdict()); got != c.want || r.Usable() != (c.usable == "yes") {
			t.Errorf("%s: %q, usable %t", c.differ, got, r.Usable())
		}
	}
}

// TestReplay gives the facts of a record to the emulator's conformance test, as docs/driver.md describes.
func TestReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the emulator's tests")
	}
	rep := newNode(t, "H100-80GB", 2).run(t, nil)
	var lines []byte
	for _, fact := range rep.Record.Records {
		line, err := json.Marshal(fact)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, line...), '\n')
	}
	file := filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.WriteFile(file, lines, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-count=1", "-v", "-run", "^TestRecords$", ".", "-records", file)
	cmd.Dir, cmd.Env = "../../../contrib/nvml-emulator", append(os.Environ(), "GOFLAGS=-mod=mod")
	out, err := cmd.CombinedOutput()
	for _, kind := range []string{"lgip", "lgipp", "lgi", "ci", "devmem", "caps"} {
		if regexp.MustCompile(kind + ` +0 facts compared`).Match(out) {
			t.Errorf("no fact of kind %s was compared", kind)
		}
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
