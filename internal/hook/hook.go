// Package hook runs the programs that a site configures: the agent's destroy_hook and the watcher's move_command. Its
// callers decide when a program runs and how they handle its failure.
//
// Files:
//
//	hook.go  checks a program (Path) and runs it with a time limit (Run)
package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"caelum/internal/trust"
)

// maxOutput limits the output of a program, in bytes, that the error of a failed program contains.
const maxOutput = 2048

// Run runs a program without a shell and with a fixed environment, and waits for it to end. At the limit, or when ctx
// is done, it kills the program's process group. The kernel kills the program if the calling process ends. Run returns
// an error if the program cannot be trusted (Path), fails or is killed.
func Run(ctx context.Context, path string, limit time.Duration, args ...string) error {
	path, err := Path(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// The kernel sends Pdeathsig when the thread that started the process ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var output head
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	asked := time.Now()
	err = cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // a process started by the program still has the output open
		return nil
	case ctx.Err() != nil:
		err = fmt.Errorf("killed after %v", time.Since(asked).Round(time.Millisecond))
	}
	return fmt.Errorf("%s %s: %w; its output: %q", path, args[0], err, output.Bytes())
}

// Path returns the resolved path of a program. It returns an error if the program is not an executable file or can be
// changed by users other than root and the user of this process.
func Path(path string) (string, error) {
	resolved, err := trust.Path(path, os.Geteuid())
	if err != nil {
		return "", err
	}
	info, err := os.Stat(resolved)
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o100 == 0) {
		err = fmt.Errorf("couldn't use %s: it is not an executable file; run chmod u+x %[1]s", resolved)
	}
	return resolved, err
}

// head is a writer that keeps only the first maxOutput bytes written to it. It does not embed the buffer, because
// io.Copy would then call the buffer's ReadFrom method, which keeps all bytes.
type head struct{ kept bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.kept.Write(p[:min(len(p), maxOutput-h.kept.Len())])
	return len(p), nil
}

// Bytes returns the bytes that h has kept.
func (h *head) Bytes() []byte { return h.kept.Bytes() }
