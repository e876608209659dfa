package harness

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/datadriven"

	"caelum/internal/node/api"
)

// agent answers the plugin's requests and logs them.
type agent struct {
	mu   sync.Mutex
	mode string
	log  []string
}

func (a *agent) note(format string, args ...any) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	// A waiting plugin repeats its request, and how often depends on timing, so the log contains a repeated request
	// only once.
	if !slices.Contains(a.log, line) {
		a.log = append(a.log, line)
	}
	return a.mode
}

// calls returns the requests logged since it was last called.
func (a *agent) calls() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	log := a.log
	a.log = nil
	return log
}

func (a *agent) Lease(ctx context.Context, job uint32, r api.LeaseRequest) (*api.Lease, error) {
	r.Wait = math.Ceil(r.Wait) // the fraction depends on the speed of the machine
	switch a.note("agent: lease %d %+v", job, r) {
	case "later":
		return nil, api.NotNow("slurmctld does not answer")
	case "broken":
		return nil, errors.New("GPU 0 has fallen off the bus")
	case "hang":
		<-ctx.Done()
	}
	return &api.Lease{Job: job}, nil
}

func (a *agent) Release(_ context.Context, job uint32, restart int) error {
	if a.note("agent: release %d restart %d", job, restart) == "later" {
		return api.NotNow("slurmctld does not answer")
	}
	return nil
}

func (a *agent) Job(context.Context, uint32) (*api.Lease, error) { return nil, api.NotFound("none") }

func (a *agent) Status(context.Context) (*api.Status, error) { return &api.Status{}, nil }

// node is a run directory with an agent that the test can stop.
type node struct {
	t      *testing.T
	dir    string
	agent  agent
	server *http.Server
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(n.dir, "jobs"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.setAgent("ok")
	return n
}

func (n *node) setAgent(mode string) {
	if n.server != nil {
		n.server.Close()
		n.server = nil
	}
	n.agent.mu.Lock()
	n.agent.mode = mode
	n.agent.mu.Unlock()
	if mode == "down" {
		return
	}
	l, err := api.Listen(n.dir, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	n.server = api.NewServer(&n.agent)
	go n.server.Serve(l)
}

func (n *node) leasePath() string { return filepath.Join(n.dir, "jobs", "12") }

// put writes one of the agent's files, or removes it if text is empty.
func (n *node) put(path, text string) {
	os.Remove(path)
	if text == "" {
		return
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) expand(s string) string {
	return strings.NewReplacer("$RUN", n.dir, "$LIB", built).Replace(s)
}

// runScript runs a script in a process with an empty environment, because a prolog has neither PATH nor HOME. The
// process runs in the given v2 cgroup or, if cgroup is nil, in the test's own. It returns the plugin's actions and the
// requests to the agent.
func (n *node) runScript(script string, words []string, cgroup *os.File) string {
	scope := ""
	if cgroup != nil {
		scope = filepath.Base(filepath.Dir(filepath.Dir(cgroup.Name())))
		script = strings.ReplaceAll(script, "$SCOPE", scope)
	}
	path := filepath.Join(n.t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(n.expand(script)+"\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
	args := []string{program(n.t, "spank_caelum.so"), path}
	for _, w := range words {
		args = append(args, n.expand(w))
	}
	cmd := exec.Command(program(n.t, "harness"), args...)
	cmd.Env = []string{}
	if cgroup != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	}
	n.agent.calls()
	out, err := cmd.CombinedOutput()
	if err != nil {
		n.t.Errorf("harness: %v", err)
	}
	text := string(out) + strings.Join(append(n.agent.calls(), ""), "\n")
	names := []string{n.dir, "$RUN", built, "$LIB"}
	if cgroup != nil {
		names = append(names, scope, "$SCOPE")
	}
	return strings.NewReplacer(names...).Replace(text)
}

// TestPlugin runs the scripts in testdata/plugin, which consist of these commands:
//
//	agent MODE        sets the agent's behaviour: ok, later (503), broken (500), hang, down
//	lease [uid=N]     writes the text to the job's lease file; without a text, removes the file
//	devices           writes the text to the device list; without a text, removes the file
//	file              prints whether the lease file exists
//	run [words]       runs a script; words are the plugin's arguments in plugstack.conf, but "unmanaged" sets a run
//	                  directory that does not exist, and "step" runs the script in a step's cgroup
func TestPlugin(t *testing.T) {
	program(t, "harness")
	if os.Getuid() != 0 {
		t.Skip("needs root, which must own lease files")
	}
	datadriven.Walk(t, "testdata/plugin", func(t *testing.T, path string) {
		n := newNode(t)
		defer n.setAgent("down")
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			n.t = t
			switch d.Cmd {
			case "agent":
				n.setAgent(d.CmdArgs[0].Key)
			case "lease":
				n.put(n.leasePath(), d.Input)
			case "devices":
				n.put(filepath.Join(n.dir, "devices"), d.Input)
			case "file":
				if _, err := os.Stat(n.leasePath()); err != nil {
					return "no lease file\n"
				}
				return "a lease file\n"
			case "run":
				words := []string{"run_dir=$RUN", "wait=1"}
				var cgroup *os.File
				for _, a := range d.CmdArgs {
					if a.Key == "unmanaged" {
						words = []string{"run_dir=$RUN/nothing"}
						continue
					}
					if a.Key == "step" {
						if cgroup = openStep(t); cgroup == nil {
							return d.Expected
						}
						defer cgroup.Close()
						continue
					}
					words = append(words, a.String())
				}
				return n.runScript(d.Input, words, cgroup)
			default:
				t.Fatalf("no such command: %s", d.Cmd)
			}
			return "ok\n"
		})
	})
}

// TestNoThreadNoSignal checks that the plugin's code in Slurm's long-lived processes, including the loading of the
// plugin, starts no threads and changes no signal handlers.
func TestNoThreadNoSignal(t *testing.T) {
	program(t, "harness")
	if os.Getuid() != 0 {
		t.Skip("needs root, which must own lease files")
	}
	n := newNode(t)
	defer n.setAgent("down")
	if err := os.WriteFile(n.leasePath(), []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	words := []string{"run_dir=$RUN"}
	script := `census
context allocator
call init
choose mig 1g.5gb
context slurmd
call init
context remote
env SLURM_STEP_GPUS=0
call task_init_privileged
call task_init
context job_script
call job_prolog
item job 13
call job_epilog
census`
	out := n.runScript(script, words, nil)
	if want := "threads 1, signals changed 0"; strings.Count(out, want) != 2 ||
		!strings.Contains(out, "set CUDA_VISIBLE_DEVICES=MIG-") {
		t.Errorf("want %q before and after the callbacks:\n%s", want, out)
	}
	// The census must detect the Go runtime after a prolog has opened the Go object.
	out = n.runScript("context job_script\nprocess SLURM_JOB_GPUS=0\ncall job_prolog\ncensus", words, nil)
	if strings.Contains(out, "threads 1,") || strings.Contains(out, "changed 0\n") ||
		!strings.Contains(out, "changed") {
		t.Errorf("a prolog with the Go object:\n%s", out)
	}
}

// TestEveryRowOfTheErrorTable checks that testdata has a case for every row of docs/plugin-errors.md, and that every
// row that testdata mentions exists.
func TestEveryRowOfTheErrorTable(t *testing.T) {
	rows := func(pattern, expr string) []string {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %v", pattern, paths, err)
		}
		var names []string
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(expr).FindAllStringSubmatch(string(text), -1) {
				names = append(names, m[1])
			}
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	table := rows("../../docs/plugin-errors.md", `(?m)^\| `+"`([a-z-]+)`"+` \|`)
	cases := rows("testdata/plugin/*.txt", `(?m)^# row ([a-z-]+)`)
	if !slices.Equal(table, cases) {
		t.Errorf("the table has\n%v, testdata has\n%v", table, cases)
	}
}
