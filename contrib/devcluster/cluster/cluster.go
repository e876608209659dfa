// Package cluster starts private Slurm clusters with emulated MIG nodes for tests and demonstrations.
//
// It only runs contrib/devcluster/devcluster, which needs root and the packages that contrib/devcluster/prerequisites
// installs. Nothing outside the cluster's folder is written, and any number of clusters may run side by side.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Options says what the cluster is made of. The zero value is a cluster with the defaults of `devcluster up`.
type Options struct {
	// Dir is the cluster's folder, empty or not there yet; by default one is made under $TMPDIR.
	Dir string
	// Nodes and GPUs (per node) default to 2 each.
	Nodes, GPUs int
	// Model is a name of internal/mig/models.txt, by default A100-40GB. With a comma-separated list node i gets the
	// i-th GPU model and the nodes beyond the list its last.
	Board string
	// Build holds the binaries; by default build/ of the repository.
	Build string
	// AgentConfig is the nodes' caelum.yaml, by default etc/caelum.yaml of the repository.
	AgentConfig string
	// AgentEnv is put into the agents' environment ("NAME=value").
	AgentEnv []string
	// JobSubmit is the job_submit.lua, by default contrib/job_submit.lua of the repository.
	JobSubmit string
	// NoAgent leaves Caelum out: slots exist, but there is no agent, no plugin and no job_submit.lua.
	NoAgent bool
	// PrologDelay, in whole seconds, holds up each job's prolog before it reaches the agent.
	PrologDelay time.Duration
	// Cgroup puts jobs into cgroups with ConstrainDevices=yes: "v1" or "v2"; by default there are none.
	Cgroup string
	// KeepDeviceFiles is the driver's NVreg_ModifyDeviceFiles=0.
	KeepDeviceFiles bool
	// Conf holds lines to add to slurm.conf; the last value of a key wins.
	Conf []string
}

func (o Options) args() []string {
	args := []string{"up"}
	text := func(flag, value string) {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	count := func(flag string, value int) {
		if value != 0 {
			text(flag, strconv.Itoa(value))
		}
	}
	text("--dir", o.Dir)
	count("--nodes", o.Nodes)
	count("--gpus", o.GPUs)
	text("--board", o.Board)
	text("--build", o.Build)
	text("--agent-config", o.AgentConfig)
	for _, v := range o.AgentEnv {
		text("--agent-env", v)
	}
	text("--job-submit", o.JobSubmit)
	count("--prolog-delay", int(o.PrologDelay.Seconds()))
	text("--cgroup", o.Cgroup)
	if o.KeepDeviceFiles {
		text("--modify-device-files", "0")
	}
	for _, line := range o.Conf {
		text("--conf", line)
	}
	if o.NoAgent {
		args = append(args, "--no-agent")
	}
	return args
}

// Cluster is a running cluster. Its methods may be used from several goroutines.
type Cluster struct {
	// Dir is the cluster's folder: Dir/log/*.log are the daemons' logs, Dir/home/user1 is a user's home.
	Dir string

	script string
}

// Start returns once slurmctld answers, every node is idle and slurmdbd knows the cluster. On an error nothing is
// left running, and the error carries the ends of the logs. Ending ctx before Start returns ends the start.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	script, err := Script()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, script, o.args()...)
	// The script takes the cluster down when it is asked to end, but not when it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	stdout, stderr, err := run(cmd)
	if err != nil {
		return nil, fmt.Errorf("start a devcluster: %w\n%s", err, stderr)
	}
	return &Cluster{Dir: strings.TrimSpace(stdout), script: script}, nil
}

// Stop ends every process of the cluster and removes its folder.
func (c *Cluster) Stop() error {
	return c.do("down")
}

// Exec runs a command on the login node as a user (root, user1 or user2), in that user's home. Nothing is put
// through a shell. When the command ends with a status other than 0, err is an *exec.ExitError.
func (c *Cluster) Exec(ctx context.Context, user string, args ...string) (stdout, stderr string, err error) {
	return c.exec(ctx, "", user, args)
}

// ExecNode is Exec on a node (n1, n2, ...).
func (c *Cluster) ExecNode(ctx context.Context, node, user string, args ...string) (stdout, stderr string, err error) {
	return c.exec(ctx, node, user, args)
}

// Command is what Exec would run, for callers that need its input or its output as it comes. An empty node means
// the login node. Killing it sends SIGTERM to the command inside.
func (c *Cluster) Command(ctx context.Context, node, user string, args ...string) *exec.Cmd {
	full := []string{"exec", "--dir", c.Dir, "--user", user}
	if node != "" {
		full = append(full, "--node", node)
	}
	return exec.CommandContext(ctx, c.script, append(append(full, "--"), args...)...)
}

func (c *Cluster) exec(ctx context.Context, node, user string, args []string) (string, string, error) {
	return run(c.Command(ctx, node, user, args...))
}

// StartUnit, StopUnit and RestartUnit act on a daemon: slurmctld, slurmdbd, mariadbd, munged, slurmd-n1, agent-n1, ...
// StartUnit and RestartUnit return when the daemon answers, StopUnit (SIGTERM) when it has ended.
func (c *Cluster) StartUnit(unit string) error { return c.do("start", unit) }

// StopUnit: see StartUnit.
func (c *Cluster) StopUnit(unit string) error { return c.do("stop", unit) }

// RestartUnit: see StartUnit.
func (c *Cluster) RestartUnit(unit string) error { return c.do("restart", unit) }

// KillUnit sends a signal, by its name without SIG. An agent that ends by it is started again, as systemd would; the
// other daemons stay down until StartUnit.
func (c *Cluster) KillUnit(unit, signal string) error { return c.do("kill", "--signal", signal, unit) }

// Log is what a daemon has logged so far.
func (c *Cluster) Log(unit string) (string, error) {
	data, err := os.ReadFile(filepath.Join(c.Dir, "log", unit+".log"))
	return string(data), err
}

func (c *Cluster) do(verb string, args ...string) error {
	full := append([]string{verb, "--dir", c.Dir}, args...)
	if _, stderr, err := run(exec.Command(c.script, full...)); err != nil {
		return fmt.Errorf("devcluster %s: %w: %s", strings.Join(full, " "), err, strings.TrimSpace(stderr))
	}
	return nil
}

func run(cmd *exec.Cmd) (string, string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return stdout.String(), stderr.String(), err
}

// Script finds the devcluster script of the repository that holds the working directory, as it does in a test.
func Script() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		script := filepath.Join(dir, "contrib", "devcluster", "devcluster")
		if _, err := os.Stat(script); err == nil {
			return script, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New(
				"no contrib/devcluster/devcluster above the working directory: run it in the repository",
			)
		}
	}
}
