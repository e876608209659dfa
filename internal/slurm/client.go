package slurm

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// DefaultTimeout is the default time limit for one command. While slurmctld is unreachable, Slurm's commands retry for
// 9 s (22.05.8, MessageTimeout=10), so the limit is longer than that.
const DefaultTimeout = 15 * time.Second

// Options holds the paths and the time limit of Slurm's commands. The zero value is suitable for nodes on which Slurm
// was installed from packages.
type Options struct {
	// Scontrol, Squeue and Sacct are the paths of these commands, by default in /usr/bin.
	Scontrol, Squeue, Sacct string
	// Show is the path of caelum-show (spank/show.c). If it is set, Node, NamedNodes and Job run this program instead
	// of scontrol, so slurmctld sends only the records that they return. The nodes' Partitions are then empty, and
	// CPUsFree, MemoryFree and the states IDLE, MIXED and ALLOCATED may be old. If the program does not exist or was
	// built for another release of Slurm, the methods run scontrol.
	Show string
	// Timeout is the time limit of one command; 0 means DefaultTimeout.
	Timeout time.Duration
	// Run, if set, replaces the execution of commands; only tests set it.
	Run func(ctx context.Context, env []string, name string, args ...string) (stdout, stderr string, err error)
}

// Client sends requests to slurmctld and, in the methods in accounting.go, to slurmdbd. A Client is safe for concurrent
// use.
type Client struct {
	scontrol, squeue    string
	sacctPath, sacctmgr string
	scancel, show       string
	timeout             time.Duration
	env                 []string
	whose               []string // the sacct options that select users
	command             runner
	streamed            streamer
	once                runner        // for requests that must not reach a slurmctld that is started later
	listed              *atomic.Int64 // the number of jobs that Jobs last returned
}

type runner func(ctx context.Context, env []string, name string, args ...string) (stdout, stderr string, err error)

type streamer func(ctx context.Context, env []string, out io.Writer, name string, args ...string) (string, error)

// New returns a Client. It does not run any commands.
func New(opt Options) *Client {
	c := &Client{
		scontrol:  cmp.Or(opt.Scontrol, "/usr/bin/scontrol"),
		squeue:    cmp.Or(opt.Squeue, "/usr/bin/squeue"),
		sacctPath: cmp.Or(opt.Sacct, "/usr/bin/sacct"),
		sacctmgr:  "/usr/bin/sacctmgr",
		scancel:   "/usr/bin/scancel",
		show:      opt.Show,
		timeout:   opt.Timeout,
		whose:     []string{"-a"},
		listed:    new(atomic.Int64),
		command:   opt.Run,
		once:      opt.Run,
	}
	if c.command == nil {
		c.command, c.streamed, c.once = command, streamCommand, commandOnce
	} else {
		c.streamed = streamOf(opt.Run)
	}
	if c.timeout <= 0 {
		c.timeout = DefaultTimeout
	}
	// The commands inherit no other variables from this process, because SQUEUE_* and SLURM_CLUSTERS would change their
	// behaviour.
	c.env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C", "SLURM_TIME_FORMAT=%s"}
	if conf := os.Getenv("SLURM_CONF"); conf != "" {
		c.env = append(c.env, "SLURM_CONF="+conf)
	}
	return c
}

// streamOf returns a streamer that writes the output of run.
func streamOf(run runner) streamer {
	return func(ctx context.Context, env []string, out io.Writer, name string, args ...string) (string, error) {
		stdout, stderr, err := run(ctx, env, name, args...)
		io.WriteString(out, stdout)
		return stderr, err
	}
}

// OfUser returns a copy of c whose accounting requests return only one user's jobs.
func (c *Client) OfUser(uid uint32) *Client {
	own := *c
	own.whose = []string{"-u", strconv.FormatUint(uint64(uid), 10)}
	return &own
}

// run runs a command and returns its standard output. env lists additional environment variables for this call.
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
	// scontrol prints some errors to stdout, for example "Node x not found".
	if strings.TrimSpace(text) == "" {
		text = stdout
	}
	return "", failed(own, ctx, text, err, name, args)
}

// failed returns the error of a command that printed the message text. own is the command's context, and ctx is the
// caller's.
func failed(own, ctx context.Context, text string, err error, name string, args []string) error {
	return &CommandError{
		Args: append([]string{name}, args...), Stderr: text, Err: classify(own, ctx.Err(), text, err),
	}
}

// stream runs a command and parses its output while the command prints it, so that this process never holds it as a
// whole: `squeue -r` repeats what a user wrote for each task of an array.
func (c *Client) stream(
	ctx context.Context, env []string, parse func(io.Reader) error, name string, args ...string,
) error {
	own, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	out, in := io.Pipe()
	parsed := make(chan error, 1)
	go func() {
		err := parse(out)
		out.CloseWithError(cmp.Or(err, io.ErrClosedPipe)) // makes the command fail if it continues
		parsed <- err
	}()
	text, err := c.streamed(own, append(c.env[:len(c.env):len(c.env)], env...), in, name, args...)
	in.Close()
	wrong := <-parsed
	if err == nil || wrong != nil && !errors.Is(wrong, errTruncated) {
		return wrong
	}
	return failed(own, ctx, text, err, name, args)
}

// command runs a command with exactly the given environment.
func command(ctx context.Context, env []string, name string, args ...string) (string, string, error) {
	stdout := limited{limit: maxOutput}
	stderr, err := streamCommand(ctx, env, &stdout, name, args...)
	if stdout.exceeded {
		return "", stderr, ErrTooLong
	}
	return stdout.text.String(), stderr, err
}

// streamCommand is like command, but writes the output to out.
func streamCommand(ctx context.Context, env []string, out io.Writer, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = env, "/"
	cmd.WaitDelay = time.Second
	stderr := limited{limit: maxMessage}
	cmd.Stdout, cmd.Stderr = out, &stderr
	err := cmd.Run()
	return stderr.text.String(), err
}

// maxOutput limits the output of one command in bytes, so that users cannot exhaust this host's memory with their jobs.
// maxMessage limits the messages.
const (
	maxOutput  = 128 << 20
	maxMessage = 1 << 20
)

// limited stores what is written to it, up to limit bytes. A longer output is an error, which ends the command.
type limited struct {
	text     strings.Builder
	limit    int
	exceeded bool
}

func (l *limited) Write(p []byte) (int, error) {
	if l.text.Len()+len(p) > l.limit {
		l.exceeded = true
		return 0, errors.New("too long")
	}
	return l.text.Write(p)
}
