package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

var (
	// ErrUnreachable means that slurmctld or munge did not answer. The caller may retry. A write may or may not have
	// taken effect.
	ErrUnreachable = errors.New("slurmctld cannot be reached")
	// ErrNoJob means that slurmctld has no record of the job. slurmctld removes finished jobs after MinJobAge (300 s by
	// default).
	ErrNoJob = errors.New("no such job")
	// ErrNoNode means that slurmctld has no record of the node.
	ErrNoNode = errors.New("no such node")
	// ErrJobState means that the job's state does not allow the request, for example requeueing a pending job or
	// changing a job that has ended.
	ErrJobState = errors.New("the job's state does not allow the request")
	// ErrNoIndex means that slurmctld refuses to change a job until slurmdbd has answered, for example after a restart
	// (22.05.8). The caller may retry.
	ErrNoIndex = errors.New("slurmdbd has not recorded the job yet")
	// ErrAmbiguous means that the job's name, comment or another of its strings looks like the section in which
	// scontrol prints the allocation. This does not happen by accident.
	ErrAmbiguous = errors.New("the job's name or comment contains text that looks like an allocation")
	// ErrChanging means that the job started, ended or was requeued during each attempt to read it. The caller may
	// retry.
	ErrChanging = errors.New("the job is changing too quickly to be read")
	// ErrTooLong means that the output of a command is longer than maxOutput.
	ErrTooLong = fmt.Errorf("the output is longer than %d MiB", maxOutput>>20)
	// ErrCommand means that one of Slurm's commands does not exist or cannot be run. Its cause is always a fault on
	// the host, never a job.
	ErrCommand = errors.New("couldn't run a Slurm command")
)

// unparsable returns the error for unexpected output from a Slurm command.
func unparsable(command string, err error) error {
	return fmt.Errorf(
		"couldn't parse the output of %s: %w; check with `caelum doctor` that Caelum supports this release of Slurm",
		command, err,
	)
}

// messages maps the messages that Slurm's commands print, in all releases since 22.05, to errors
// (docs/slurm-releases.md, "Messages"). The order matters, because hold and requeuehold print only "Unexpected message
// received" where other commands print "Unable to contact" (22.05.8).
var messages = []struct {
	text string
	err  error
}{
	{"Unable to contact slurm controller", ErrUnreachable},
	{"Unexpected message received", ErrUnreachable},
	{"Connection refused", ErrUnreachable},
	{"Connection timed out", ErrUnreachable},
	{"Socket timed out", ErrUnreachable},
	{"Zero Bytes were transmitted", ErrUnreachable},
	{"backup controller in standby mode", ErrUnreachable},
	{"Unable to establish control machine address", ErrUnreachable},
	{"Protocol authentication error", ErrUnreachable},
	{"If munged is up", ErrUnreachable},
	{"Rate limit exceeded", ErrUnreachable}, // printed since 24.05 if slurmctld's rpc_queue.yaml drops requests
	{"Invalid job id", ErrNoJob},
	{"Invalid node name", ErrNoNode},
	{"not found", ErrNoNode},
	{"the DB index is being set", ErrNoIndex},
	{"Job is pending execution", ErrJobState},
	{"no longer pending", ErrJobState},
	{"Job has already finished", ErrJobState},
	{"already completing or completed", ErrJobState},
	{"Requested operation is presently disabled", ErrJobState},
	{"Requested operation not supported", ErrJobState},
}

// jobNotFound matches scontrol's message for an array task or het job component that slurmctld has no record of.
// scontrol prints it to stdout up to 25.11, and to stderr since 26.05 (scontrol_print_job in info_job.c).
var jobNotFound = regexp.MustCompile(`(?m)^Job [0-9]+([_+][0-9]+)? not found$`)

// CommandError is the error for a failed command, with its arguments and output. Err is one of the errors above, a
// context's error, or an *exec.ExitError.
type CommandError struct {
	Args   []string
	Stderr string
	Err    error
}

func (e *CommandError) Error() string {
	s := strings.Join(strings.Fields(e.Stderr), " ")
	if len(s) > 500 {
		s = s[:500] + "..."
	}
	if s == "" {
		return fmt.Sprintf("`%s`: %v", e.command(), e.Err)
	}
	return fmt.Sprintf("`%s`: %v: the command printed %q", e.command(), e.Err, s)
}

// plainArg matches an argument that does not need quotes in a shell.
var plainArg = regexp.MustCompile(`^[A-Za-z0-9_./:=,+@%-]+$`)

// maxArg is the maximum number of bytes of an argument shown in a message. The limit is needed because the formats for
// squeue are long.
const maxArg = 60

// command returns the command without its directory, as an administrator would type it. Long arguments are shortened.
func (e *CommandError) command() string {
	var words []string
	for i, arg := range e.Args {
		if i == 0 {
			arg = filepath.Base(arg)
		}
		if len(arg) > maxArg {
			arg = arg[:maxArg] + "..."
		}
		if !plainArg.MatchString(arg) {
			arg = strconv.Quote(arg)
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

func (e *CommandError) Unwrap() error { return e.Err }

// classify returns the error for a command that failed with this output. For a command that reached the client's time
// limit, the error is ErrUnreachable, because Slurm's commands (22.05.8) retry for 9 s (MessageTimeout=10) while
// slurmctld is down.
func classify(ctx context.Context, parent error, stderr string, exit error) error {
	if parent != nil {
		return parent
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: no answer in time", ErrUnreachable)
	}
	// In the next two cases, no process was started. Users can exhaust the host's processes and memory, but cannot
	// change the command's file, so the error is ErrCommand only if it concerns that file.
	var start *fs.PathError
	var missing *exec.Error
	switch {
	case errors.As(exit, &missing):
		return fmt.Errorf("%w: %w", ErrCommand, exit)
	case errors.As(exit, &start):
		defects := []error{syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES, syscall.EPERM, syscall.ENOEXEC}
		for _, defect := range defects {
			if errors.Is(exit, defect) {
				return fmt.Errorf("%w: %w", ErrCommand, exit)
			}
		}
		return fmt.Errorf("%w: %w", ErrUnreachable, exit)
	}
	if jobNotFound.MatchString(stderr) {
		return ErrNoJob
	}
	for _, m := range messages {
		if strings.Contains(stderr, m.text) {
			return m.err
		}
	}
	return exit
}
