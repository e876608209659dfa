//go:build e2e

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The tests in this file check how devcluster runs the agent and the plugin. testdata contains stubs for both.

// stubs creates a build directory from testdata/build and the stub plugin, which stubs compiles for the installed
// release of Slurm.
func stubs(t *testing.T) Options {
	t.Helper()
	build := emptyDir(t)
	t.Cleanup(func() { _ = os.RemoveAll(build) })
	if err := os.Chmod(build, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(build, os.DirFS("testdata/build")); err != nil {
		t.Fatal(err)
	}
	// The real `caelum slurm-config` and the emulator generate the configuration files of the cluster.
	for _, name := range []string{"caelum", "nvml-emulator", "libnvidia-ml.so.1"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "..", "build", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(build, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	plugin := exec.Command(
		"gcc",
		"-shared",
		"-fPIC",
		"-Wall",
		"-Werror",
		"-o",
		filepath.Join(build, "spank_caelum.so"),
		"testdata/plugin.c",
	)
	if output, err := plugin.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	// The paths must be absolute, because the cluster has another working directory.
	file := func(name string) string {
		path, err := filepath.Abs(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	return Options{GPUs: 1, Build: build, AgentConfig: file("caelum.yaml"), JobSubmit: file("job_submit.lua")}
}

func TestAgentIsSupervised(t *testing.T) {
	c := start(t, stubs(t))
	notes := func(node string) string {
		return strings.Join(strings.Fields(must(t, c, node, "root", "cat", "/var/lib/caelum/notes")), " ")
	}

	if got := notes("n1"); got != "start" {
		t.Fatalf("after up, the agent of n1 wrote %q", got)
	}
	if err := c.KillUnit("agent-n1", "KILL"); err != nil {
		t.Fatal(err)
	}
	within(t, "the keeper has restarted the agent", func() bool { return notes("n1") == "start close start" })
	if err := c.StopUnit("agent-n1"); err != nil {
		t.Fatal(err)
	}
	if got := notes("n1"); got != "start close start close" {
		t.Errorf("a stopped agent: %q", got)
	}
	if err := c.StartUnit("agent-n1"); err != nil {
		t.Fatal(err)
	}
	if got := notes("n1"); got != "start close start close start" {
		t.Errorf("after a second start, the agent wrote %q", got)
	}
	if got := notes("n2"); got != "start" {
		t.Errorf("the agent of the other node wrote %q", got)
	}

	for _, node := range []string{"n1", "n2"} {
		must(
			t,
			c,
			node,
			"root",
			"bash",
			"-c",
			"[[ -f /etc/caelum/caelum.yaml && ! -e /etc/caelum/decisions && ! -s /etc/slurm/job_submit.lua ]]",
		)
	}
	const submit = "id=$(sbatch --parsable -H --wrap true); squeue -h -j $id -o %k"
	if got := must(t, c, "", "user1", "bash", "-c", submit); got != "submitted under caelum-decisions 1 1" {
		t.Errorf("the comment that job_submit.lua sets is %q", got)
	}
}

func TestPrologIsDelayed(t *testing.T) {
	// The delay is longer than the time limit of any test. The test therefore does not need to measure times.
	const delay = 1000
	plugin, none := stubs(t), Options{NoAgent: true}
	for name, o := range map[string]Options{"before the plugin": plugin, "without a plugin": none} {
		t.Run(name, func(t *testing.T) {
			o.Nodes, o.PrologDelay = 1, delay*time.Second
			c := start(t, o)
			id := must(t, c, "", "user1", "sbatch", "--parsable", "--wrap", "true")
			within(t, "slurmctld has started the job", func() bool {
				return must(t, c, "", "user1", "squeue", "-h", "-j", id, "-o", "%N") == "n1"
			})
			sleeps := func() error {
				_, _, err := c.Exec(t.Context(), "root", "pgrep", "-f", "^sleep 1000$")
				return err
			}
			within(t, "the prolog of the job sleeps", func() bool { return sleeps() == nil })
			if _, _, err := c.ExecNode(t.Context(), "n1", "root", "test", "-e", "/run/plugin-prolog"); err == nil {
				t.Error("the plugin's prolog ran before the delay")
			}
			must(t, c, "", "root", "pkill", "-f", "^sleep 1000$")
			within(t, "the job has ended after the end of its prolog", func() bool {
				return must(t, c, "", "user1", "squeue", "-h", "-t", "all", "-j", id, "-o", "%T") == "COMPLETED"
			})
			_, _, err := c.ExecNode(t.Context(), "n1", "root", "test", "-e", "/run/plugin-prolog")
			if ran := err == nil; ran != (name == "before the plugin") {
				t.Errorf("the plugin's prolog ran: %v, want %v", ran, !ran)
			}
		})
	}
}
