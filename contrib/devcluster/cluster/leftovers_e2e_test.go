//go:build e2e

package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestNothingIsLeftBehind(t *testing.T) {
	t.Run("after down", leftAfterDown)
	t.Run("after SIGKILL to init", leftAfterKill)
	t.Run("after an up that fails", leftAfterFailedUp)
	t.Run("after an up that is interrupted", leftAfterInterruptedUp)
	t.Run("after down of an up that was killed", leftAfterKilledUp)
}

// startUpgraded starts a cluster and, if CAELUM_NEW_ROOT is set, upgrades its hosts, which creates additional mounts
// and processes.
func startUpgraded(t *testing.T) *Cluster {
	t.Helper()
	root := os.Getenv("CAELUM_NEW_ROOT")
	c := start(t, Options{NoAgent: true, NewRoot: root})
	if root == "" {
		return c
	}
	for _, host := range []string{"dbd", "ctl", "login", "n1", "n2"} {
		if err := c.Upgrade(host); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func leftAfterDown(t *testing.T) {
	c := startUpgraded(t)
	namespace := namespaceOf(t, c.Dir)
	if !inUse(t, namespace) {
		t.Fatal("inUse found no process of a running cluster")
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	checkGone(t, c.Dir, namespace)
}

func leftAfterKill(t *testing.T) {
	c := startUpgraded(t)
	namespace := namespaceOf(t, c.Dir)
	if err := syscall.Kill(initOf(t, c.Dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	checkGone(t, c.Dir, namespace)
}

func leftAfterFailedUp(t *testing.T) {
	dir := emptyDir(t)
	_, err := Start(t.Context(), Options{Dir: dir, NoAgent: true, Conf: []string{"SelectType=select/none_such"}})
	if err == nil || !strings.Contains(err.Error(), "select/none_such") {
		t.Fatalf("the error does not show slurmctld's reason: %v", err)
	}
	checkGone(t, dir, "")
}

func leftAfterInterruptedUp(t *testing.T) {
	dir := emptyDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Start(ctx, Options{Dir: dir, NoAgent: true})
		ended <- err
	}()
	within(t, "init.pid exists", func() bool { return exists(filepath.Join(dir, "init.pid")) })
	namespace := namespaceOf(t, dir)
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("the interrupted Start returned no error")
	}
	checkGone(t, dir, namespace)
}

func leftAfterKilledUp(t *testing.T) {
	dir := emptyDir(t)
	script, err := Script()
	if err != nil {
		t.Fatal(err)
	}
	up := exec.Command(script, Options{Dir: dir, NoAgent: true}.args()...)
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	within(t, "init.pid exists", func() bool { return exists(filepath.Join(dir, "init.pid")) })
	namespace := namespaceOf(t, dir)
	if err := up.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = up.Wait() // "signal: killed"
	if err := (&Cluster{Dir: dir, script: script}).Stop(); err != nil {
		t.Fatal(err)
	}
	checkGone(t, dir, namespace)
}

// emptyDir returns a new directory. It uses os.MkdirTemp, because the cluster's users cannot access the parent
// directory of t.TempDir().
func emptyDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devcluster-test.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	return dir
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func initOf(t *testing.T, dir string) int {
	t.Helper()
	var pid int
	within(t, "init.pid is written", func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "init.pid"))
		pid, _ = strconv.Atoi(strings.SplitN(string(data), " ", 2)[0])
		return pid > 0
	})
	return pid
}

// namespaceOf returns the name of the PID namespace in which all of a cluster's processes run.
func namespaceOf(t *testing.T, dir string) string {
	t.Helper()
	name, err := os.Readlink("/proc/" + strconv.Itoa(initOf(t, dir)) + "/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// inUse reports whether a process is in the PID namespace or creates its children there. Zombies are in no namespace.
func inUse(t *testing.T, namespace string) bool {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/pid*")
	if err != nil || len(links) == 0 {
		t.Fatalf("couldn't find processes in /proc: %v", err)
	}
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil && name == namespace {
			return true
		}
	}
	return false
}

// checkGone fails the test if a process, the directory, or a mount in any namespace of a stopped cluster still exists.
func checkGone(t *testing.T, dir, namespace string) {
	t.Helper()
	if exists(dir) {
		t.Errorf("the directory %s still exists", dir)
	}
	if namespace != "" {
		within(t, "the last process has ended", func() bool { return !inUse(t, namespace) })
	}
	tables, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if data, err := os.ReadFile(table); err == nil && strings.Contains(string(data), dir) {
			t.Errorf("a mount of %s still exists in %s", dir, table)
		}
	}
}
