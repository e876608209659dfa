package pytorch

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"caelum/internal/node/api"
)

// server is the handler of an agent that accepts reports.
type server struct {
	mu      sync.Mutex
	reports []api.MemoryReport
	jobs    []uint32
	pids    []int
	refuses error
}

func (s *server) ReportMemory(ctx context.Context, job uint32, pid int, r api.MemoryReport) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs, s.pids, s.reports = append(s.jobs, job), append(s.pids, pid), append(s.reports, r)
	return s.refuses
}

func (s *server) Lease(context.Context, uint32, api.LeaseRequest) (*api.Lease, error) {
	return nil, nil
}
func (s *server) Release(context.Context, uint32, int) error      { return nil }
func (s *server) Job(context.Context, uint32) (*api.Lease, error) { return nil, nil }
func (s *server) Status(context.Context) (*api.Status, error)     { return nil, nil }

// serve starts a server and returns the handler and the run directory.
func serve(t *testing.T) (*server, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "caelum") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := api.Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &server{}
	srv := api.NewServer(h)
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return h, dir
}

const uuid = "MIG-245f354f-cce2-5f35-9789-eedcaa3128c2"

// python runs a program in a job and returns its output. The environment env replaces the environment of the job.
func python(t *testing.T, runDir, path, program string, env ...string) (output string, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", "-c", program)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "PYTHONPATH=" + path, "PYTHONDONTWRITEBYTECODE=1", "SLURM_JOB_ID=4711",
		"CUDA_VISIBLE_DEVICES=" + uuid, "CAELUM_RUN_DIR=" + runDir,
	}, env...)
	text, _ := cmd.CombinedOutput()
	return string(text), cmd.ProcessState.Pid()
}

// slow skips a test with -short, because it starts several Python processes or waits for timeouts.
func slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts several Python processes; runs without -short")
	}
}

// paths returns a PYTHONPATH of directories in this folder.
func paths(t *testing.T, names ...string) string {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for k := range names {
		names[k] = filepath.Join(here, names[k])
	}
	return strings.Join(names, ":")
}

const training = `
import caelum_memory, torch
torch.cuda.stats.update({
    "allocated_bytes.all.current": 3 << 30, "allocated_bytes.all.peak": 4 << 30,
    "reserved_bytes.all.current": 5 << 30, "reserved_bytes.all.peak": 6 << 30,
    "inactive_split_bytes.all.current": 1 << 20, "num_ooms": 0,
})
torch.cuda.initialized = True
caelum_memory.iteration(20, 1000)
`

// TestReports checks the reports of a program that fails with an out-of-memory error: the module must report the
// error when the program exits, and must not change the program's output or exit status.
func TestReports(t *testing.T) {
	h, dir := serve(t)
	out, pid := python(t, dir, paths(t, ".", "testdata"), training+`
torch.cuda.stats["num_ooms"] = 1
raise RuntimeError("CUDA out of memory")
`)
	if !strings.HasSuffix(strings.TrimSpace(out), "RuntimeError: CUDA out of memory") ||
		strings.Contains(out, "caelum") {
		t.Errorf("output: %s", out)
	}
	want := api.MemoryReport{
		UUID: uuid, Allocated: 3 << 30, PeakAllocated: 4 << 30, Reserved: 5 << 30, PeakReserved: 6 << 30,
		Unreleasable: 1 << 20, OOMs: 1, Iteration: 20, Iterations: 1000,
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.reports); n == 0 || h.reports[n-1] != want || h.jobs[n-1] != 4711 || h.pids[n-1] != pid {
		t.Errorf("reports %+v of jobs %v, pids %v, want pid %d and %+v", h.reports, h.jobs, h.pids, pid, want)
	}
}

// TestReportsWhileRunning checks that the thread reports while the program runs, and never before the program has
// initialized CUDA.
func TestReportsWhileRunning(t *testing.T) {
	slow(t)
	h, dir := serve(t)
	out, _ := python(t, dir, paths(t, ".", "testdata"), `
import caelum_memory, os, time
caelum_memory._POLL = caelum_memory._EVERY = 0.01
time.sleep(0.2)
import torch
time.sleep(0.2)
torch.cuda.stats["num_ooms"] = 7
torch.cuda.initialized = True
time.sleep(1.2)
os._exit(0)
`)
	h.mu.Lock()
	defer h.mu.Unlock()
	early := func(r api.MemoryReport) bool { return r.OOMs != 7 }
	if len(h.reports) < 2 || slices.ContainsFunc(h.reports, early) || out != "" {
		t.Errorf("%d reports: %+v, output %q", len(h.reports), h.reports, out)
	}
}

// TestRefusedReports checks that the module stops after a permanent refusal, and continues after status 429.
func TestRefusedReports(t *testing.T) {
	slow(t)
	const loop = training + `
import time
reporter = caelum_memory._reporter
for _ in range(5):
    reporter.report()
`
	for code, want := range map[int]int{
		http.StatusForbidden: 1, http.StatusNotFound: 1,
		http.StatusTooManyRequests: 6, http.StatusServiceUnavailable: 6,
	} {
		h, dir := serve(t)
		h.mu.Lock()
		h.refuses = &api.Error{Code: code, Message: "no"}
		h.mu.Unlock()
		out, _ := python(t, dir, paths(t, ".", "testdata"), loop)
		h.mu.Lock()
		// The thread may have sent one more report before the loop.
		if n := len(h.reports); n < want || n > want+1 || want == 1 && n != 1 || out != "" {
			t.Errorf("status %d: %d reports, want %d; output %q", code, n, want, out)
		}
		h.mu.Unlock()
	}
}

// TestHarmless checks that the module neither reports nor fails nor starts a thread in programs that do not concern it.
func TestHarmless(t *testing.T) {
	slow(t)
	const threads = "import threading; print(threading.active_count())"
	for name, c := range map[string]struct {
		program, want string
		env           []string
	}{
		"no job":          {"import caelum_memory; " + threads, "1", []string{"SLURM_JOB_ID="}},
		"invalid job":     {"import caelum_memory; " + threads, "1", []string{"SLURM_JOB_ID=../1"}},
		"no agent":        {"import caelum_memory; " + threads, "1", []string{"CAELUM_RUN_DIR=/nonexistent"}},
		"off":             {"import caelum_memory; " + threads, "1", []string{"CAELUM_MEMORY=off"}},
		"no PyTorch":      {"import caelum_memory; " + threads, "2", nil},
		"no CUDA":         {"import caelum_memory, torch; " + threads, "2", nil},
		"broken CUDA":     {training + "torch.cuda.fails = True; print(3)", "3", nil},
		"strange values":  {training + "torch.cuda.stats['num_ooms'] = 'x'; print(3)", "3", nil},
		"bad iteration":   {"import caelum_memory; caelum_memory.iteration('x', None); print(3)", "3", nil},
		"a forked child":  {training + "import os\nif os.fork() == 0: exit()\nos.wait(); os._exit(0)", "", nil},
		"deleted PyTorch": {training + "import sys; sys.modules['torch'] = 1; print(3)", "3", nil},
	} {
		h, dir := serve(t)
		out, pid := python(t, dir, paths(t, ".", "testdata"), c.program, c.env...)
		if strings.TrimSpace(out) != c.want {
			t.Errorf("%s: output %q, want %q", name, out, c.want)
		}
		h.mu.Lock()
		if n := len(h.reports); n > 1 || n == 1 && h.pids[0] != pid {
			t.Errorf("%s: reports %+v of pids %v, pid %d", name, h.reports, h.pids, pid)
		}
		h.mu.Unlock()
	}
}

// TestAgentEnds checks that a program neither fails nor waits if the agent ends or does not answer.
func TestAgentEnds(t *testing.T) {
	slow(t)
	dir, err := os.MkdirTemp("", "caelum")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := api.Listen(dir, nil) // accepts no connection
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := python(t, dir, paths(t, ".", "testdata"), training+"print(3)"); strings.TrimSpace(out) != "3" {
		t.Errorf("the agent does not answer: %s", out)
	}
	l.Close()
	if err := os.WriteFile(filepath.Join(dir, api.SocketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := python(t, dir, paths(t, ".", "testdata"), training+"print(3)"); strings.TrimSpace(out) != "3" {
		t.Errorf("the agent has ended: %s", out)
	}
}

// TestSitecustomize checks that PYTHONPATH is sufficient, and that another sitecustomize in the path still runs.
func TestSitecustomize(t *testing.T) {
	h, dir := serve(t)
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "sitecustomize.py"), []byte("print('other')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := paths(t, "sitecustomize", ".", "testdata") + ":" + other
	out, _ := python(t, dir, path, "import torch; torch.cuda.initialized = True; print('program')")
	h.mu.Lock()
	defer h.mu.Unlock()
	if out != "other\nprogram\n" || len(h.reports) == 0 {
		t.Errorf("output %q, %d reports", out, len(h.reports))
	}
}
