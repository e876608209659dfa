package qualify

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"caelum/internal/node/gpu"
)

// undo lets a run restore the node and end at once.
func (n node) undo(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	if _, err := Run(ctx, n.options(&out)); !errors.Is(err, context.Canceled) || errors.Is(err, ErrLeft) {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

// TestKilled kills a run at random moments. The next run must name and remove what is left, and only that: a foreign
// instance remains, with its files.
func TestKilled(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, modify := range []string{"0", "1"} {
		t.Run("modify-device-files "+modify, func(t *testing.T) {
			killTen(t, random, newNode(t, "A30-24GB", 1, "--modify-device-files", modify), modify == "0")
		})
	}
}

// killTen kills ten runs. Only without a foreign instance do the runs switch MIG mode.
func killTen(t *testing.T, random *rand.Rand, n node, foreign bool) {
	if foreign {
		n.Emulator(t, "create", "0", "1g.6gb", "3")
	}
	for _, call := range []string{"CREATE_GI", "CREATE_CI", "DESTROY_CI", "DESTROY_GI"} {
		n.Emulator(t, "latency", "--call", call, "8")
	}
	n.Emulator(t, "latency", "--call", "SET_MIG_MODE", "300")
	before := n.snapshot(t)
	began := time.Now()
	n.start(t).Wait()
	whole := time.Since(began)
	if after := n.snapshot(t); after != before {
		t.Fatalf("the run changed the node from\n%s\nto\n%s", before, after)
	}
	left := 0
	for k := range 10 {
		cmd := n.start(t)
		time.Sleep(time.Duration(random.Float64() * float64(whole)))
		cmd.Process.Kill()
		cmd.Wait()
		time.Sleep(20 * time.Millisecond) // the kernel kills the helpers
		between := n.snapshot(t)
		out := n.undo(t)
		if after := n.snapshot(t); after != before {
			t.Fatalf("kill %d: the next run left\n%s\nwant\n%s\nit printed\n%s", k, after, before, out)
		}
		created := strings.Count(between, `"gi":`) - strings.Count(before, `"gi":`)
		left += max(created, 0)
		if named := strings.Count(out, "removing "); created > 0 && named < created {
			t.Errorf("kill %d: %d instances were left, and the next run named\n%s", k, created, out)
		}
	}
	t.Logf("%d instances were left by 10 kills of a run of %v", left, whole)
}

// start starts a run in another process.
func (n node) start(t *testing.T) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "qualify-run", filepath.Join(n.Build(), "libnvidia-ml.so.1"), n.Dev, n.Proc,
		n.state, n.slice)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

var regexpUUID = regexp.MustCompile("GPU-[0-9a-f-]+")

// TestInterrupted cancels a run at several moments. It must restore the node itself.
func TestInterrupted(t *testing.T) {
	n := newNode(t, "A30-24GB", 1)
	for _, call := range []string{"CREATE_GI", "CREATE_CI", "DESTROY_CI", "DESTROY_GI"} {
		n.Emulator(t, "latency", "--call", call, "10")
	}
	before := n.snapshot(t)
	for _, wait := range []time.Duration{50, 300, 700, 1100} {
		ctx, cancel := context.WithTimeout(t.Context(), wait*time.Millisecond)
		var out strings.Builder
		if _, err := Run(ctx, n.options(&out)); errors.Is(err, ErrLeft) {
			t.Errorf("after %d ms: %v", wait, err)
		}
		cancel()
		if after := n.snapshot(t); after != before {
			t.Fatalf("after %d ms: the run left\n%s\nwant\n%s", wait, after, before)
		}
	}
}

// TestNotRestored checks that a run that cannot destroy its instance says so, and that the next run does it.
func TestNotRestored(t *testing.T) {
	n := newNode(t, "A30-24GB", 1)
	before := n.snapshot(t)
	n.Emulator(t, "fault", "add", "--call", "DESTROY_GI", "--error", "UNKNOWN", "--times", "1000")
	var out strings.Builder
	if _, err := Run(t.Context(), n.options(&out)); !errors.Is(err, ErrLeft) {
		t.Fatalf("the run returned %v", err)
	}
	n.Emulator(t, "fault", "clear")
	if text := n.undo(t); !strings.Contains(text, "removing 1g.6gb at 0 of GPU 0") {
		t.Errorf("the next run printed %q", text)
	}
	if after := n.snapshot(t); after != before {
		t.Errorf("the next run left\n%s\nwant\n%s", after, before)
	}
}

// TestUndoKeepsOthers checks that a run keeps an instance that another program has created, after a crash, at the
// placement in the journal.
func TestUndoKeepsOthers(t *testing.T) {
	n := newNode(t, "A30-24GB", 1)
	n.Emulator(t, "create", "0", "1g.6gb", "0")
	uuid := regexpUUID.FindString(n.Emulator(t, "show"))
	journal := `{"op":"begin","boot":"` + bootID() + `","instances":{}}` + "\n" +
		`{"n":1,"op":"create","gpu":"` + uuid + `","profile":14,"start":0}` + "\n"
	for name, more := range map[string]string{
		"no created line":   "",
		"another UUID":      `{"n":1,"op":"created","gi":3}` + "\n" + `{"n":1,"op":"uuid","uuid":"MIG-0"}` + "\n",
		"another instance":  `{"n":1,"op":"created","gi":4}` + "\n",
		"destroyed already": `{"n":1,"op":"created","gi":3}` + "\n" + `{"n":1,"op":"gone"}` + "\n",
	} {
		before := n.Emulator(t, "show")
		path := filepath.Join(n.state, "qualify.journal")
		if err := os.WriteFile(path, []byte(journal+more+`{"n":2,"op":"cre`), 0o600); err != nil {
			t.Fatal(err)
		}
		out := n.undo(t)
		if after := n.Emulator(t, "show"); after != before {
			t.Errorf("%s: the run removed an instance of another program; it printed\n%s", name, out)
		}
		for _, file := range (gpu.Caps{Dev: n.Dev, Proc: n.Proc}).Files(0, gpu.Instance{GI: 3, CIs: []int{0}}) {
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestOneRun checks that two runs exclude each other.
func TestOneRun(t *testing.T) {
	dir := t.TempDir()
	j, _, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := openJournal(dir); !errors.Is(err, errRunning) {
		t.Errorf("the second run got %v", err)
	}
	j.file.Close()
}

// TestAgent checks that a run starts the agent that it or a killed run has stopped, also after an error.
func TestAgent(t *testing.T) {
	n := newNode(t, "A30-24GB", 1, "--mig", "off")
	var calls string
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	agent := func(stop bool, fails error) {
		t.Helper()
		var out strings.Builder
		opt := n.options(&out)
		opt.StartAgent = func() error { calls += "start "; return nil }
		if stop {
			opt.StopAgent = func() error { calls += "stop "; return fails }
		}
		Run(ctx, opt)
	}
	expect := func(want string) {
		t.Helper()
		if calls != want {
			t.Errorf("the calls were %q, want %q", calls, want)
		}
		calls = ""
		if _, err := os.Stat(filepath.Join(n.state, "qualify.journal")); err == nil {
			t.Error("the journal exists")
		}
	}
	agent(false, nil)
	expect("")
	agent(true, nil)
	expect("stop start ")
	agent(true, errors.New("timeout"))
	expect("stop start ")
	journal := `{"op":"begin","boot":"` + bootID() + `","agent":true}` + "\n"
	if err := os.WriteFile(filepath.Join(n.state, "qualify.journal"), []byte(journal), 0o600); err != nil {
		t.Fatal(err)
	}
	agent(false, nil)
	expect("start ")
}
