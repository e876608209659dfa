package qualify

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"caelum/internal/node/gpu"
)

// cgroupRoot is where the driver expects cgroup v2.
const cgroupRoot = "/sys/fs/cgroup"

// withCgroups runs a test in a mount namespace with cgroup v2, in a second process.
func withCgroups(t *testing.T, test func(*testing.T)) {
	t.Helper()
	const inside = "CAELUM_TEST_CGROUPS"
	if os.Geteuid() != 0 {
		t.Skip("needs root, because only root may mount and create cgroups")
	}
	if os.Getenv(inside) != "" {
		if err := syscall.Mount("cgroup2", cgroupRoot, "cgroup2", 0, ""); err != nil {
			t.Skipf("couldn't mount cgroup v2: %v", err)
		}
		if err := enable(cgroupRoot, "+hugetlb"); err != nil {
			t.Skipf("couldn't enable the controller: %v", err)
		}
		test(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()):
		t.Skipf("%s", out)
	}
}

// enable changes the controllers of a cgroup's children.
func enable(cgroup, change string) error {
	return os.WriteFile(filepath.Join(cgroup, "cgroup.subtree_control"), []byte(change), 0)
}

// newDivided returns a node with two L40S and the cgroups that slurmd creates.
func newDivided(t *testing.T, options ...string) node {
	t.Helper()
	n := newNode(t, "L40S-48GB", 2, options...)
	n.slice = fmt.Sprintf("caelum-qualify-test.%d-%d", os.Getpid(), rand.Uint32())
	path := filepath.Join(cgroupRoot, n.slice)
	if err := os.MkdirAll(filepath.Join(path, "slurmstepd.scope"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exec.Command("find", path, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run() })
	return n
}

// cgroups lists the cgroups in the node's slice, and the controllers that their children have.
func (n node) cgroups() (text string) {
	filepath.WalkDir(filepath.Join(cgroupRoot, n.slice), func(path string, d os.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			control, _ := os.ReadFile(filepath.Join(path, "cgroup.subtree_control"))
			text += path + " " + string(control) + "\n"
		}
		return nil
	})
	return text
}

// limitViolations are ways in which the emulated driver can violate the assumptions F1 to F10.
var limitViolations = []struct {
	rows    string
	options string
	other   int // memory of another program, in MiB
	fault   func(*testing.T, node, *Options)
}{
	{rows: ""},
	{rows: "", fault: func(_ *testing.T, _ node, o *Options) { o.Fractions = map[string]int{"l40s": 12} }},
	{rows: "F1", options: "--memory-limits none --driver-version 595.45.04"},
	{rows: "F1", fault: func(t *testing.T, n node, _ *Options) {
		appendTo(t, filepath.Join(n.Proc, "driver/nvidia/params"), "RegistryDwords: \"RmMemacctMode=0\"\n")
	}},
	{rows: "F1", fault: func(t *testing.T, n node, _ *Options) {
		appendTo(t, filepath.Join(n.Proc, "driver/nvidia/params"), "RegistryDwords: \"RmMemacctController=no\"\n")
	}},
	{rows: "F1", options: "--memory-limits none --driver-version 615.71.09"},
	{rows: "F2", fault: emulator("fault add --call SET_LIMITS --nth 1 --error UNKNOWN")},
	{rows: "F2", fault: emulator("fault add --call GET_LIMITS --nth 2 --error UNKNOWN")},
	{rows: "F3", fault: emulator("quirk no-enforcement")},
	{rows: "F4", fault: emulator("quirk hidden-limit")},
	{rows: "F5", other: 4096},
	{rows: "F6", fault: emulator("quirk miscount")},
	{rows: "F7", fault: emulator("fault add --call SET_LIMITS --nth 5 --error UNKNOWN")},
	{rows: "F8", fault: emulator("quirk managed-stays")},
	{rows: "F9 F10", fault: emulator("quirk sticky-limit")},
}

// other starts a program that uses memory of GPU 0.
func (n node) other(t *testing.T, mib int, options ...string) {
	t.Helper()
	options = append(options, "--memory", fmt.Sprint(mib), "--seconds", "60")
	cmd := exec.Command(filepath.Join(n.Build(), "cuda-process"), options...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES=0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for !strings.Contains(n.Emulator(t, "show", "--json"), fmt.Sprintf(`"used_mib":%d`, mib)) {
		time.Sleep(10 * time.Millisecond)
	}
}

// TestLimits checks that exactly the rows of the violated assumption differ, with both controllers of the driver.
func TestLimits(t *testing.T) {
	withCgroups(t, func(t *testing.T) {
		for _, backend := range []string{"misc", "dmem"} {
			for _, c := range limitViolations {
				t.Run(backend+" "+c.rows, func(t *testing.T) {
					options := strings.Fields(c.options)
					if len(options) == 0 {
						options = []string{"--memory-limits", backend}
					}
					n := newDivided(t, options...)
					n.sticky = c.rows == "F9 F10"
					if c.other > 0 {
						n.other(t, c.other, "--graphics")
					}
					rep := n.run(t, func(o *Options) {
						if c.fault != nil {
							c.fault(t, n, o)
						}
					})
					checkLimits(t, rep, strings.Fields(c.rows))
				})
			}
		}
	})
}

// checkLimits checks the rows and the verdict of a node without MIG. If rows differ, other rows may not be checked.
func checkLimits(t *testing.T, rep *Report, rows []string) {
	t.Helper()
	for k, row := range rep.Rows {
		if !strings.HasPrefix(row.ID, "F") || assumptions[k].never != "" {
			if row.Result == Differs {
				t.Errorf("%s: %q", row.ID, row.Details)
			}
			continue
		}
		differs := slices.Contains(rows, row.ID)
		if len(rows) == 0 && row.Result != Holds || differs != (row.Result == Differs) {
			t.Errorf("%s %s: %q", row.ID, row.Result, row.Details)
		}
	}
	switch verdict := rep.Verdict(); {
	case len(rows) == 0 && verdict != "Caelum may be used on this node",
		slices.Contains(rows, "F1") && verdict != "Caelum may be used on this node; read the actions for F1",
		slices.Contains(rows, "F3") != strings.HasPrefix(verdict, "do not use Caelum on this node"):
		t.Errorf("verdict %q", verdict)
	}
}

// TestLimitsNotChecked checks that a run says why it has not checked a row.
func TestLimitsNotChecked(t *testing.T) {
	withCgroups(t, func(t *testing.T) {
		for _, c := range []struct {
			row, why string
			change   func(*Options)
		}{
			{"F1", "no fractions", func(o *Options) { o.Fractions = map[string]int{"a40": 4} }},
			{"F12", "no fractions", func(o *Options) { o.Fractions = nil }},
			{"F1", "--read-only", func(o *Options) { o.ReadOnly = true }},
			{"F2", "couldn't find slurmstepd.scope", func(o *Options) { o.Cgroups.Slice = "other.slice" }},
			{"F2", "cannot have 100 units", func(o *Options) { o.Fractions = map[string]int{"l40s": 100} }},
			{"F10", "is missing or incomplete", func(o *Options) { o.cuda = "/nonexistent" }},
			{"F3", "in use by another program", nil},
			{"A8", "no GPU with MIG", func(*Options) {}},
		} {
			n := newDivided(t, "--memory-limits", "misc")
			if c.change == nil {
				n.other(t, 100)
				c.change = func(*Options) {}
			}
			rows := n.run(t, c.change).Rows
			row := rows[slices.IndexFunc(rows, func(row Row) bool { return row.ID == c.row })]
			if row.Result != NotChecked || !strings.Contains(strings.Join(row.Details, " "), c.why) {
				t.Errorf("%s %s: %q, want %q", row.ID, row.Result, row.Details, c.why)
			}
		}
	})
}

// TestLimitsKilled kills a run at random moments. The next run must remove its cgroups with their limits, and restore
// the controllers.
func TestLimitsKilled(t *testing.T) {
	withCgroups(t, func(t *testing.T) {
		n := newDivided(t, "--memory-limits", "misc")
		for _, call := range []string{"SET_LIMITS", "GET_LIMITS"} {
			n.Emulator(t, "latency", "--call", call, "10")
		}
		before, began, left := n.snapshot(t), time.Now(), 0
		n.start(t).Wait()
		whole := time.Since(began)
		for k := range 12 {
			cmd := n.start(t)
			time.Sleep(time.Duration(rand.Float64() * float64(whole)))
			cmd.Process.Kill()
			cmd.Wait()
			time.Sleep(20 * time.Millisecond) // the kernel kills the helpers
			exists := strings.Contains(n.cgroups(), scratch[0])
			out := n.undo(t)
			if after := n.snapshot(t); after != before {
				t.Fatalf("kill %d: the next run left\n%s\nwant\n%s\nit printed\n%s", k, after, before, out)
			}
			if exists {
				left++
				if !strings.Contains(out, "removing the cgroups "+scratch[0]) {
					t.Errorf("kill %d: the next run printed %q", k, out)
				}
			}
			n.unlimited(t)
		}
		t.Logf("12 kills of a run of %v left cgroups %d times", whole, left)
	})
}

// unlimited checks that a new cgroup takes no limit over from a removed one.
func (n node) unlimited(t *testing.T) {
	t.Helper()
	path := filepath.Join(cgroupRoot, n.slice, "later")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	hw, err := gpu.OpenNVML(filepath.Join(n.Build(), "libnvidia-ml.so.1"), gpu.Caps{Dev: n.Dev, Proc: n.Proc})
	if err != nil {
		t.Fatal(err)
	}
	defer hw.Close()
	hw.GPUs()
	if limit, _, err := hw.Limit(0, path); err != nil || limit != gpu.NoLimit {
		t.Errorf("a new cgroup has a limit of %d bytes (%v)", limit, err)
	}
}
