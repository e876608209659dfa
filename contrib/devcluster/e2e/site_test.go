//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/slurm"
)

// user is the user who submits the jobs, and stranger another ordinary user.
const user, stranger = "user1", "user2"

// limit is the time limit for every condition. It is generous, because only a hanging test reaches it.
const limit = 150 * time.Second

// site is a cluster with the latest output of its squeue.
type site struct {
	*cluster.Cluster
	stock bool
	nodes []string

	end   context.CancelFunc
	mu    sync.Mutex
	queue map[string]row
	reads int // the number of times that squeue was run
}

// row holds the fields of a job's line in squeue's output.
type row struct{ state, reason, nodes, priority string }

// newSite starts a cluster. By default, each job gets the profile that it requests.
func newSite(ctx context.Context, o cluster.Options) (*site, error) {
	o.AgentConfig = cmp.Or(o.AgentConfig, "testdata/tightest.yaml")
	o.Build = *build
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &site{Cluster: c, stock: o.NoAgent}
	for i := range max(o.Nodes, 1) {
		s.nodes = append(s.nodes, fmt.Sprintf("n%d", i+1))
	}
	task, err := os.ReadFile("testdata/task")
	if err == nil {
		err = s.writeHome("task", string(task))
	}
	if err == nil && s.stock {
		err = s.writeHome("stock", "")
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	s.watch()
	return s, nil
}

// start starts a site for one test and closes it at the end of the test.
func start(t *testing.T, o cluster.Options) *site {
	t.Helper()
	s, err := newSite(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *site) close() error {
	s.end()
	return s.Stop()
}

// prepare writes a decision table for the shared cluster. It assigns a small profile to every job, so that many can run
// at the same time, and sets max_nodes to 1, so that a job with -N 2 exceeds it.
func (s *site) prepare() error {
	return s.writeTable("partition billed\nmax_nodes 1\ndefault 1g.5gb\n" + learnedLines())
}

// writeTable replaces the cluster's decision table with one that contains the lines for the gpu partition and the
// profiles, and the given lines.
func (s *site) writeTable(lines string) error {
	listed, err := s.profileLines()
	if err != nil {
		return err
	}
	cmd := s.Command(
		context.Background(),
		"",
		"root",
		"sh",
		"-c",
		"cat > /etc/caelum/decisions.new && mv /etc/caelum/decisions.new /etc/caelum/decisions",
	)
	cmd.Stdin = strings.NewReader("caelum-decisions 1 2\npartition gpu\n" + listed + lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("couldn't write the decision table: %w: %s", err, out)
	}
	return nil
}

// profiles are the profiles of an A100-40GB that the devcluster offers.
var profiles = []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}

// home returns the path of the user's home directory.
func (s *site) home() string { return filepath.Join(s.Dir, "home", user) }

func (s *site) writeHome(name, text string) error {
	return os.WriteFile(filepath.Join(s.home(), name), []byte(text), 0o755)
}

// watch runs squeue twice a second for all tests until the site is closed.
func (s *site) watch() {
	var ctx context.Context
	ctx, s.end = context.WithCancel(context.Background())
	cmd := s.Command(ctx, "", "root", "bash", "-c",
		`while squeue -h -a -r -t all -o '%i|%T|%r|%N|%Q'; do echo .; sleep 0.5; done`)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		panic(err)
	}
	go func() {
		next := map[string]row{}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if f := strings.Split(lines.Text(), "|"); len(f) == 5 {
				next[f[0]] = row{f[1], f[2], f[3], f[4]}
				continue
			}
			s.mu.Lock()
			s.queue = next
			s.reads++
			s.mu.Unlock()
			next = map[string]row{}
		}
		_ = cmd.Wait() // the error only means that close stopped the command
	}()
}

// row returns a job's line from the output of an squeue run that started after row was called.
func (s *site) row(t *testing.T, id string) (r row, ok bool) {
	t.Helper()
	s.mu.Lock()
	first := s.reads
	s.mu.Unlock()
	within(t, "squeue answers", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		r, ok = s.queue[id]
		return s.reads > first+1 // the next run of squeue may have begun before the call to row
	})
	return r, ok
}

// until waits until the condition is true for a job's line in squeue's output.
func (s *site) until(t *testing.T, id, what string, holds func(row) bool) row {
	t.Helper()
	var r row
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		var ok bool
		s.mu.Lock()
		r, ok = s.queue[id]
		s.mu.Unlock()
		if ok && holds(r) {
			return r
		}
		if time.Now().After(end) {
			t.Fatalf(
				"the condition of job %s did not become true in time: %s; squeue shows %+v\n%s",
				id,
				what,
				r,
				s.try("", "root", "scontrol", "-d", "show", "job", id),
			)
		}
	}
}

// ended waits for a job to end and returns its state.
func (s *site) ended(t *testing.T, id string) string {
	t.Helper()
	return s.until(t, id, "the job has ended", func(r row) bool {
		switch r.state {
		case "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED":
			return false
		}
		return true
	}).state
}

// completed waits for jobs to end, and fails the test if any job's state is not COMPLETED.
func (s *site) completed(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if state := s.ended(t, id); state != "COMPLETED" {
			out, _ := os.ReadFile(filepath.Join(s.home(), "slurm-"+id+".out"))
			t.Fatalf("job %s ended as %s; its output is:\n%s", id, state, out)
		}
	}
}

// within waits until the condition is true.
func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the condition did not become true in time: %s", what)
		}
	}
}

// answer holds a command's output and error.
type answer struct {
	stdout, stderr string
	status         int
}

// call runs a command as the user who, on a node or, if node is empty, on the login node. stdin is the command's
// standard input.
func (s *site) call(t *testing.T, node, who, stdin string, args ...string) answer {
	t.Helper()
	// Cleanups also use call, and t.Context() is canceled before a cleanup runs.
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := s.Command(ctx, node, who, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v\n%s%s", args, errors.Join(err, ctx.Err()), &stdout, &stderr)
	}
	return answer{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// must runs a command, which must succeed, and returns its output without leading and trailing spaces.
func (s *site) must(t *testing.T, node, who string, args ...string) string {
	t.Helper()
	a := s.call(t, node, who, "", args...)
	if a.status != 0 {
		t.Fatalf("%q as %s: status %d: %s", args, who, a.status, a.stderr)
	}
	return strings.TrimSpace(a.stdout)
}

// try runs a command and returns its standard output and standard error for use in messages.
func (s *site) try(node, who string, args ...string) string {
	out, stderr, _ := s.ExecNode(context.Background(), node, who, args...)
	return out + stderr
}

// submit runs sbatch as the user, with the given lines as the script, and returns the job's id.
func (s *site) submit(t *testing.T, script string, args ...string) string {
	t.Helper()
	a := s.sbatch(t, script, args...)
	if a.status != 0 {
		t.Fatalf("sbatch %q: %s", args, a.stderr)
	}
	return strings.TrimSpace(a.stdout)
}

func (s *site) sbatch(t *testing.T, script string, args ...string) answer {
	t.Helper()
	return s.call(t, "", user, "#!/bin/bash\n"+script+"\n", append([]string{"sbatch", "--parsable"}, args...)...)
}

// requested returns the GRES that a job requests per node, in a form that is the same for all releases.
func (s *site) requested(t *testing.T, id string) string {
	t.Helper()
	list, err := slurm.ParseGRES(s.field(t, id, "TresPerNode"))
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}

// field returns the value of an attribute in the output of `scontrol show job`, up to the end of the line.
func (s *site) field(t *testing.T, id, name string) string {
	t.Helper()
	for line := range strings.Lines(s.must(t, "", "root", "scontrol", "-d", "show", "job", id)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return value
		}
	}
	return ""
}
