package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
)

var (
	// ErrUnreachable: slurmctld, or munge on the way to it, did not answer. The call may be repeated; a write may or
	// may not have happened.
	ErrUnreachable = errors.New("slurmctld cannot be reached")
	// ErrNoJob: slurmctld does not know the job (any more: it forgets finished jobs after MinJobAge, 300 s by default).
	ErrNoJob = errors.New("no such job")
	// ErrNoNode: slurmctld does not know the node.
	ErrNoNode = errors.New("no such node")
	// ErrJobState: the job is not in a state that allows what was asked: a requeue of a pending job, a change of a
	// finished one.
	ErrJobState = errors.New("the job's state does not allow that")
	// ErrAmbiguous: the job's own text imitates slurmctld's account of its allocation. Only a user who means it does
	// that.
	ErrAmbiguous = errors.New("the job's text imitates an allocation")
	// ErrChanging: the job started, ended or was requeued at every look. Ask again.
	ErrChanging = errors.New("the job changes too fast to be read")
	// ErrCommand: one of Slurm's commands is not there or cannot be run: a defect of this machine, which no job can
	// cause.
	ErrCommand = errors.New("couldn't run a command of Slurm's")
)

// said maps what Slurm's commands print, in any release from 22.05, to a class of error. The order matters: hold and
// requeuehold print "Unexpected message received" and no more where others say "Unable to contact" (22.05.8).
var said = []struct {
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
	{"Invalid job id", ErrNoJob},
	{"Invalid node name", ErrNoNode},
	{"not found", ErrNoNode},
	{"Job is pending execution", ErrJobState},
	{"no longer pending", ErrJobState},
	{"Job has already finished", ErrJobState},
	{"already completing or completed", ErrJobState},
	{"Requested operation is presently disabled", ErrJobState},
	{"Requested operation not supported", ErrJobState},
}

// CommandError is a command that failed: what was run and what it printed. It unwraps to one of the errors above,
// to a context's error, or to the *exec.ExitError.
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
		return fmt.Sprintf("%q: %v", e.Args, e.Err)
	}
	return fmt.Sprintf("%q: %v: it said %q", e.Args, e.Err, s)
}

func (e *CommandError) Unwrap() error { return e.Err }

// classify says what kind of failure a command's exit with this output was. A deadline of ours counts as
// unreachable: with slurmctld down, 22.05.8's commands try for 9 s (MessageTimeout=10) before they say so.
func classify(ctx context.Context, parent error, stderr string, exit error) error {
	if parent != nil {
		return parent
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: no answer in time", ErrUnreachable)
	}
	// No process could be started. Users can use up processes and memory, but they cannot change the commands.
	var start *fs.PathError
	var missing *exec.Error
	switch {
	case errors.As(exit, &missing):
		return fmt.Errorf("%w: %w", ErrCommand, exit)
	case errors.As(exit, &start):
		for _, defect := range []error{syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES, syscall.EPERM, syscall.ENOEXEC} {
			if errors.Is(exit, defect) {
				return fmt.Errorf("%w: %w", ErrCommand, exit)
			}
		}
		return fmt.Errorf("%w: %w", ErrUnreachable, exit)
	}
	for _, s := range said {
		if strings.Contains(stderr, s.text) {
			return s.err
		}
	}
	return exit
}
