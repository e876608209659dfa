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

// Options describes a cluster. The zero value represents the defaults of `devcluster up`.
type Options struct {
	// Dir is the cluster's directory, which must either be empty or not exist. By default, Start creates a new
	// directory under $TMPDIR.
	Dir string
	// Nodes is the number of nodes, and GPUs is the number of GPUs per node. Both default to 2.
	Nodes, GPUs int
	// Model is the name of a GPU model in internal/core/mig/models.txt, by default A100-40GB. It can also be a
	// comma-separated list of models, in which case node i uses the i-th model, and nodes beyond the end of the list
	// use the last model.
	Model string
	// Build is the directory with the binaries, by default build/ in the repository.
	Build string
	// NewRoot is the root directory of the newer Slurm release that Upgrade installs on the hosts.
	NewRoot string
	// AgentConfig is the path of the nodes' caelum.yaml, by default etc/caelum.yaml in the repository.
	AgentConfig string
	// AgentEnv lists additional variables ("NAME=value") for the agents' environment.
	AgentEnv []string
	// JobSubmit is the path of slurmctld's job_submit.lua, by default spank/submit/job_submit.lua in the repository.
	JobSubmit string
	// NoAgent starts the cluster without Caelum: there are slots, but no agents, no plugin and no job_submit.lua.
	NoAgent bool
	// Stock starts the cluster with whole GPUs as gres/gpu, and without the plugin or a decision table, as at a site
	// that does not use Caelum. The agents can be started with StartUnit.
	Stock bool
	// PrologDelay is the time, in whole seconds, that each job's prolog waits before it sends its request to the agent.
	PrologDelay time.Duration
	// Cgroup is the cgroup version used for jobs, "v1" or "v2", with ConstrainDevices=yes. By default, jobs have no
	// cgroups.
	Cgroup string
	// KeepDeviceFiles emulates the driver's module option NVreg_ModifyDeviceFiles=0.
	KeepDeviceFiles bool
	// NVLink lists the groups of GPUs that are connected by NVLink, for example "0,1;2,3". If NVLink is not empty, MIG
	// mode is off when the cluster starts, as after a reboot.
	NVLink string
	// MemoryLimits is the backend with which the emulated driver limits the GPU memory of cgroups, "misc" or "dmem". It
	// needs Cgroup "v2". By default, the driver has no such limits.
	MemoryLimits string
	// Conf lists additional lines for slurm.conf. If a key occurs more than once, the last value applies.
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
	text("--board", o.Model)
	text("--build", o.Build)
	text("--new-root", o.NewRoot)
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
	text("--nvlink", o.NVLink)
	text("--memory-limits", o.MemoryLimits)
	for _, line := range o.Conf {
		text("--conf", line)
	}
	if o.NoAgent {
		args = append(args, "--no-agent")
	}
	if o.Stock {
		args = append(args, "--stock")
	}
	return args
}

// Cluster is a running cluster. Its methods are safe for concurrent use by multiple goroutines.
type Cluster struct {
	// Dir is the cluster's directory. The daemons write their logs to Dir/log/*.log. Dir/home/user1 is the home
	// directory of user1.
	Dir string

	script string
	cgroup bool // jobs have cgroups, so commands must join the cluster's cgroups
}

// Start starts a cluster and returns when slurmctld responds, every node is idle and slurmdbd has registered the
// cluster. If this fails, Start ends all of the cluster's processes and returns an error that contains the last lines
// of the logs. If ctx is cancelled before Start returns, Start stops the cluster and returns an error.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	script, err := Script()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, script, o.args()...)
	// The devcluster script stops the cluster after SIGINT, but not after SIGKILL.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	stdout, stderr, err := run(cmd)
	if err != nil {
		return nil, fmt.Errorf("couldn't start a devcluster: %w\n%s", err, stderr)
	}
	return &Cluster{Dir: strings.TrimSpace(stdout), script: script, cgroup: o.Cgroup != ""}, nil
}

// Stop ends all of the cluster's processes and removes its directory.
func (c *Cluster) Stop() error {
	return c.do("down")
}

// Exec runs a command on the login node as a user (root, user1 or user2), in that user's home directory and without a
// shell. If the command's exit status is not 0, err is an *exec.ExitError.
func (c *Cluster) Exec(ctx context.Context, user string, args ...string) (stdout, stderr string, err error) {
	return c.exec(ctx, "", user, args)
}

// ExecNode is like Exec, but runs the command on a node (n1, n2, ...) or on slurmctld's host (ctl).
func (c *Cluster) ExecNode(ctx context.Context, node, user string, args ...string) (stdout, stderr string, err error) {
	return c.exec(ctx, node, user, args)
}

// Command returns the command that Exec runs, for callers that need its stdin, or its output before it ends. If node is
// empty, the command runs on the login node. If the caller kills the command, its counterpart inside the cluster
// receives SIGTERM.
func (c *Cluster) Command(ctx context.Context, node, user string, args ...string) *exec.Cmd {
	if cmd := c.enter(ctx, node, user, args); cmd != nil {
		return cmd
	}
	full := []string{"exec", "--dir", c.Dir, "--user", user}
	if node != "" {
		full = append(full, "--node", node)
	}
	return exec.CommandContext(ctx, c.script, append(append(full, "--"), args...)...)
}

func (c *Cluster) exec(ctx context.Context, node, user string, args []string) (string, string, error) {
	return run(c.Command(ctx, node, user, args...))
}

// StartUnit starts a daemon and returns when the daemon responds. The daemons are slurmctld, slurmdbd, mariadbd,
// munged, slurmd-n1, agent-n1, ...
func (c *Cluster) StartUnit(unit string) error { return c.do("start", unit) }

// StopUnit stops a daemon with SIGTERM and returns when it has ended.
func (c *Cluster) StopUnit(unit string) error { return c.do("stop", unit) }

// RestartUnit restarts a daemon and returns when the daemon responds.
func (c *Cluster) RestartUnit(unit string) error { return c.do("restart", unit) }

// KillUnit sends a signal, named without the SIG prefix, to a daemon. If the signal ends an agent, the agent's keeper
// restarts it, as systemd would, but a killed Slurm daemon stays down until StartUnit is called.
func (c *Cluster) KillUnit(unit, signal string) error { return c.do("kill", "--signal", signal, unit) }

// Upgrade replaces the programs on a host with those in Options.NewRoot. The hosts are dbd (slurmdbd), ctl (slurmctld
// and the watcher), login, and the nodes. The daemons and other processes that are running on the host use the old
// programs until they are restarted.
func (c *Cluster) Upgrade(host string) error { return c.do("upgrade", host) }

// Log returns a daemon's log.
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

// Script returns the path of the devcluster script in the repository that contains the working directory.
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
				"couldn't find contrib/devcluster/devcluster; change to a directory of the repository",
			)
		}
	}
}
