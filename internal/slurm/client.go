package slurm

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// DefaultTimeout is longer than the 9 s for which 22.05.8's commands try an unreachable slurmctld (MessageTimeout=10).
const DefaultTimeout = 15 * time.Second

// Options say how to reach slurmctld. The zero value serves a node with Slurm's packages.
type Options struct {
	// Scontrol and the others are the commands, by default those in /usr/bin.
	Scontrol, Squeue, Sacct, Sacctmgr string
	// Timeout is for one command.
	Timeout time.Duration
	// SlurmConf is slurm.conf's path; by default that of this process's SLURM_CONF, or Slurm's own.
	SlurmConf string
	// Env is added to the commands' environment ("NAME=value").
	Env []string
	// Run, if set, takes the place of running commands: tests answer for Slurm with it.
	Run func(ctx context.Context, env []string, name string, args ...string) (stdout, stderr string, err error)
}

// Client talks to slurmctld, and to slurmdbd where a method says so. It may be used by several goroutines.
type Client struct {
	scontrol, squeue    string
	sacctPath, sacctmgr string
	timeout             time.Duration
	env                 []string
	whose               []string // sacct's options for whose jobs
	command             runner
	once                runner // for what is said now or never
}

type runner func(ctx context.Context, env []string, name string, args ...string) (stdout, stderr string, err error)

// New makes a Client; it runs nothing yet.
func New(opt Options) *Client {
	c := &Client{
		scontrol: cmp.Or(opt.Scontrol, "/usr/bin/scontrol"), squeue: cmp.Or(opt.Squeue, "/usr/bin/squeue"),
		sacctPath: cmp.Or(
			opt.Sacct,
			"/usr/bin/sacct",
		), sacctmgr: cmp.Or(opt.Sacctmgr, "/usr/bin/sacctmgr"), timeout: opt.Timeout,
		whose: []string{"-a"}, command: opt.Run, once: opt.Run,
	}
	if c.command == nil {
		c.command, c.once = command, commandOnce
	}
	if c.timeout <= 0 {
		c.timeout = DefaultTimeout
	}
	// Nothing else of our environment gets through: SQUEUE_* and SLURM_CLUSTERS would change what the commands do.
	c.env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C", "SLURM_TIME_FORMAT=%s"}
	conf := opt.SlurmConf
	if conf == "" {
		conf = os.Getenv("SLURM_CONF")
	}
	if conf != "" {
		c.env = append(c.env, "SLURM_CONF="+conf)
	}
	c.env = append(c.env, opt.Env...)
	return c
}

// OfUser is the same client, to whom slurmdbd has one user's jobs only.
func (c *Client) OfUser(uid uint32) *Client {
	own := *c
	own.whose = []string{"-u", strconv.FormatUint(uint64(uid), 10)}
	return &own
}

// run runs a command and returns what it wrote to stdout. env is added for this call.
func (c *Client) run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	return c.runWith(ctx, c.command, env, name, args...)
}

func (c *Client) runWith(ctx context.Context, how runner, env []string, name string, args ...string) (string, error) {
	own, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	stdout, text, err := how(own, append(c.env[:len(c.env):len(c.env)], env...), name, args...)
	if err == nil {
		return stdout, nil
	}
	// scontrol says "Node x not found" on stdout.
	if strings.TrimSpace(text) == "" {
		text = stdout
	}
	return "", &CommandError{
		Args:   append([]string{name}, args...),
		Stderr: text,
		Err:    classify(own, ctx.Err(), text, err),
	}
}

// command runs a command with this environment and no other.
func command(ctx context.Context, env []string, name string, args ...string) (string, string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = env, "/"
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return stdout.String(), stderr.String(), err
}
