package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// built is the directory with the plugin, the Go object and the test programs. If it is empty, missing describes the
// missing prerequisite.
var built, missing string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "caelum-spank")
	if err != nil {
		panic(err)
	}
	code := 1
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// build compiles all programs into dir. Without a C compiler or Slurm's headers, it sets missing, and the tests are
// skipped. Every other failure is an error.
func build(dir string) error {
	if _, err := exec.LookPath("gcc"); err != nil {
		missing = "needs gcc"
		return nil
	}
	if exec.Command("sh", "-c", "echo '#include <slurm/spank.h>' | gcc -E - >/dev/null").Run() != nil {
		missing = "needs Slurm's headers (libslurm-dev)"
		return nil
	}
	const flags = "-std=gnu11 -g -D_GNU_SOURCE -Wall -Wextra -Werror "
	// Uninitialized variables hold a pattern instead of zeros, like the bytes of a union that gcc 15 does not clear.
	const dirty = "-ftrivial-auto-var-init=pattern "
	const sanitize = "-Wno-format-truncation -fsanitize=address,undefined -fno-sanitize-recover=all "
	for _, step := range []string{
		"make -s -C .. B=" + dir,
		"gcc " + flags + "-rdynamic -o " + dir + "/harness c/harness.c -ldl",
		"gcc " + flags + sanitize + "-o " + dir + "/lease_check c/lease_check.c ../lease.c ../text.c",
		"gcc " + flags + sanitize + "-o " + dir + "/cgroup_check " +
			"c/cgroup_check.c ../cgroup.c ../devices.c ../bpf.c ../lease.c ../text.c",
		"gcc " + flags + dirty + sanitize + "-o " + dir + "/bpf_check c/bpf_check.c ../lease.c ../text.c",
		"gcc " + flags + "-shared -fPIC -o " + dir + "/old.so c/old.c",
		"cp " + dir + "/old.so " + dir + "/open.so && chmod 666 " + dir + "/open.so",
		"mkdir " + dir + "/shared && cp " + dir + "/old.so " + dir + "/shared && chmod 1777 " + dir + "/shared && " +
			"ln -s shared/old.so " + dir + "/link.so",
	} {
		if out, err := exec.Command("sh", "-c", step).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", step, err, out)
		}
	}
	built = dir
	return nil
}

// program returns the path of a program that build has compiled. It skips the test if the machine lacks a prerequisite.
func program(t *testing.T, name string) string {
	t.Helper()
	if built == "" {
		t.Skip(missing)
	}
	return filepath.Join(built, name)
}
