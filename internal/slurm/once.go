package slurm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// connecting limits the time that a command can run without a connection. It is long enough for the command to start on
// a busy node, but shorter than the one second after which Slurm's commands retry.
const connecting = 900 * time.Millisecond

// commandOnce is like command, but for requests that must not reach a slurmctld process that starts later. If slurmctld
// does not accept connections, Slurm's commands retry every second for 9 s (MessageTimeout=10), and could reach the
// next slurmctld process. commandOnce kills a command that has not connected in time, because such a command cannot
// have sent its request. Otherwise, it waits for the command, because slurmctld may still carry out the request.
func commandOnce(ctx context.Context, env []string, name string, args ...string) (string, string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = env, "/"
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	ended, killed := make(chan struct{}), make(chan bool, 1)
	go func() {
		ticker := time.NewTicker(connecting)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				killed <- false
				return
			case <-ticker.C:
			}
			if connected, err := hasConnection(cmd.Process.Pid); err == nil && !connected {
				killed <- cmd.Process.Kill() == nil
				return
			}
		}
	}()
	err := cmd.Wait()
	close(ended)
	if <-killed && !cmd.ProcessState.Exited() {
		err = fmt.Errorf("%w: not connected within %v", ErrUnreachable, connecting)
	}
	return stdout.String(), stderr.String(), err
}

// hasConnection reports whether a process has a TCP socket. Sockets of other types are ignored, because a name service
// library may have opened them.
func hasConnection(pid int) (bool, error) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		return false, err
	}
	own := map[string]bool{}
	for _, fd := range fds {
		link, _ := os.Readlink(proc + "fd/" + fd.Name())
		if inode, ok := strings.CutPrefix(link, "socket:["); ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	if len(own) == 0 {
		return false, nil
	}
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		found, err := hasSocket(proc+table, own)
		if os.IsNotExist(err) { // the kernel does not support IPv6
			continue
		}
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// hasSocket reports whether a table of sockets contains one of the given inodes. It does not keep the table, which
// contains the sockets of all users.
func hasSocket(table string, inodes map[string]bool) (bool, error) {
	f, err := os.Open(table)
	if err != nil {
		return false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 9 && inodes[f[9]] {
			return true, nil
		}
	}
	return false, lines.Err()
}
