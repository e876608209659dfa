//go:build e2e

package cluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/internal/slurm"
)

// within waits until the condition is true. The time limit is generous, because only a failing test reaches it.
func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout: %s", what)
		}
	}
}

func start(t *testing.T, o Options) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(c.Dir); err == nil {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

// must runs a command in the cluster as a user, and returns its output without leading and trailing
// spaces.
func must(t *testing.T, c *Cluster, node, user string, args ...string) string {
	t.Helper()
	stdout, stderr, err := c.ExecNode(t.Context(), node, user, args...)
	if err != nil {
		t.Fatalf("%v as %s: %v: %s", args, user, err, stderr)
	}
	return strings.TrimSpace(stdout)
}

func TestTypedJobStartsWhenItsTypeIsOffered(t *testing.T) {
	c := start(t, Options{NoAgent: true})
	submit := func(args ...string) string {
		return must(
			t,
			c,
			"",
			"user1",
			append([]string{"sbatch", "--parsable", "--wrap", "hostname; echo slot $CUDA_VISIBLE_DEVICES"}, args...)...)
	}
	state := func(id string) string {
		return must(t, c, "", "user1", "squeue", "-h", "-t", "all", "-o", "%T", "-j", id)
	}

	first := submit("--gres=gpu:1,mig:1g.5gb:1")
	second := submit("--gres=gpu:1,mig:1g.5gb:1")
	if got := state(first); got != "PENDING" {
		t.Fatalf("no slice is offered, but the state of job %s is %s", first, got)
	}
	must(
		t,
		c,
		"",
		"root",
		"scontrol",
		"update",
		"nodename=n2",
		"gres=gpu:a100:14,mig:1g.5gb:1,mig:1g.10gb:0,mig:2g.10gb:0,"+
			"mig:3g.20gb:0,mig:4g.20gb:0,mig:7g.40gb:0,mig:closed:55",
	)
	within(t, "the second job has completed", func() bool { return state(second) == "COMPLETED" })

	output, err := os.ReadFile(filepath.Join(c.Dir, "home", "user1", "slurm-"+first+".out"))
	if err != nil || string(output) != "n2\nslot 0\n" {
		t.Errorf("the job's output in the user's home directory is %q, %v", output, err)
	}
	within(t, "sacct shows the slice and the account", func() bool {
		line := must(t, c, "", "user1", "sacct", "-nPX", "-j", first, "-o", "account,state,alloctres")
		return strings.HasPrefix(line, "research|COMPLETED|") && strings.Contains(line, "gres/mig:1g.5gb=1")
	})
}

func TestCommandsRunAsOnARealCluster(t *testing.T) {
	c := start(t, Options{NoAgent: true, Nodes: 1, GPUs: 1, Conf: []string{"AccountingStorageEnforce=limits"}})

	for _, test := range []struct{ node, user, command, want string }{
		{"", "user1", "id -un; pwd", "user1\n" + c.Dir + "/home/user1"},
		{"n1", "user2", "id -un; pwd; hostname", "user2\n" + c.Dir + "/home/user2\nn1"},
		{"", "root", "env | grep -c ^SLURM", "0"},
		{"", "root", "scontrol show config | sed -n 's/^SLURM_CONF *= //p'", "/etc/slurm/slurm.conf"},
		{"", "root", "scontrol show config | sed -n 's/^AccountingStorageEnforce *= //p'", "associations,limits"},
		{"n1", "user1", "ls /dev/caelum", "slot0\nslot1\nslot2\nslot3\nslot4\nslot5\nslot6"},
		{"n1", "root", "ls " + c.Dir + "/ctl /etc/caelum /run/mysqld 2>&1 | grep -v :", ""},
		{"n1", "root", "cat /etc/slurm/slurmdbd.conf", ""},
	} {
		if got := must(t, c, test.node, test.user, "bash", "-c", test.command+"; true"); got != test.want {
			t.Errorf("%s on %q as %s printed %q, want %q", test.command, test.node, test.user, got, test.want)
		}
	}

	var exit *exec.ExitError
	if _, _, err := c.Exec(t.Context(), "user1", "bash", "-c", "exit 7"); !errors.As(err, &exit) ||
		exit.ExitCode() != 7 {
		t.Errorf("a command with exit status 7 returned %v", err)
	}
	cmd := c.Command(t.Context(), "n1", "user1", "cat")
	cmd.Stdin = strings.NewReader("two  blanks, $HOME, * and \"quotes\"")
	if out, err := cmd.Output(); err != nil || string(out) != "two  blanks, $HOME, * and \"quotes\"" {
		t.Errorf("a command that copies stdin to stdout printed %q, %v", out, err)
	}
	if got := must(t, c, "", "user1", "printf", "%s|", "two  blanks", "", "$HOME",
		"*"); got != "two  blanks||$HOME|*|" {
		t.Errorf("a command printed its arguments as %q", got)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := c.Command(ctx, "n1", "user1", "sleep", "4321").Start(); err != nil {
		t.Fatal(err)
	}
	sleeps := func() bool {
		_, _, err := c.Exec(t.Context(), "root", "pgrep", "-f", "^sleep 4321$")
		return err == nil
	}
	within(t, "a command runs on a node", sleeps)
	cancel()
	within(t, "the command has ended after the kill of its exec", func() bool { return !sleeps() })
}

func TestDaemonsAreStoppedKilledAndStarted(t *testing.T) {
	c := start(t, Options{NoAgent: true, Nodes: 1})
	ping := func() bool { _, _, err := c.Exec(t.Context(), "root", "scontrol", "ping"); return err == nil }

	if err := c.KillUnit("slurmctld", "KILL"); err != nil {
		t.Fatal(err)
	}
	within(t, "the killed slurmctld does not answer", func() bool { return !ping() })
	if err := c.StartUnit("slurmctld"); err != nil || !ping() {
		t.Fatalf("slurmctld does not answer after the return of StartUnit: %v", err)
	}
	for _, unit := range []string{"slurmdbd", "slurmd-n1"} {
		if err := c.RestartUnit(unit); err != nil {
			t.Error(err)
		}
	}
	within(t, "the node is idle again", func() bool {
		return must(t, c, "", "root", "sinfo", "-h", "-n", "n1", "-p", "plain", "-o", "%T") == "idle"
	})
	for _, unit := range []string{"agent-n1", "slurmd-n2", "sshd"} {
		if err := c.RestartUnit(unit); err == nil {
			t.Errorf("RestartUnit returned no error for %s, which the cluster does not have", unit)
		}
	}
}

func TestTwoClustersRunSideBySide(t *testing.T) {
	a := start(t, Options{NoAgent: true, Nodes: 1, Model: "A30-24GB"})
	b := start(t, Options{NoAgent: true, Nodes: 2, Model: "H100-80GB,A30-24GB"})

	// Since Slurm 23.11, a node's registration removes the types whose count is 0.
	gres := func(c *Cluster, node string) string {
		list, err := slurm.ParseGRES(must(t, c, "", "user1", "sinfo", "-h", "-n", node, "-p", "plain", "-o", "%G"))
		if err != nil {
			t.Fatal(err)
		}
		return list.Positive().String()
	}
	const a30 = "gpu:a30:8,mig:closed:32"
	const h100 = "gpu:h100:14,mig:closed:56"
	for _, test := range []struct {
		c          *Cluster
		node, want string
	}{{a, "n1", a30}, {b, "n1", h100}, {b, "n2", a30}} {
		if got := gres(test.c, test.node); got != test.want {
			t.Errorf("%s of %s: %s, want %s", test.node, test.c.Dir, got, test.want)
		}
	}
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := gres(b, "n2"); got != a30 {
		t.Errorf("after the stop of the first cluster, the second cluster printed %s", got)
	}
}
