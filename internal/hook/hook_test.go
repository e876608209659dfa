package hook

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// program writes a shell script that only this user can change, and returns its path.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRun checks the arguments, the environment, the exit status and the time limit of a program, and that Run rejects
// programs that it cannot trust.
func TestRun(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{`[ "$*" = "before 7" ] && [ $(pwd) = / ] && [ -z "$HOME" ]`, ""},
		{"echo no room; exit 3", `exit status 3; its output: "no room\n"`},
		{"sleep 60", "killed after"},
	} {
		t.Setenv("HOME", "/root")
		err := Run(t.Context(), program(t, c.script), time.Second, "before", "7")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.script, err, c.want)
		}
	}
	path := program(t, "exit 0")
	for mode, want := range map[os.FileMode]string{0o722: "writable by", 0o600: "not an executable file"} {
		os.Chmod(path, mode)
		if err := Run(t.Context(), path, time.Second, "before"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

// TestOutput checks that only the beginning of a program's output is kept. os/exec copies the output with io.Copy,
// which prefers a ReadFrom method.
func TestOutput(t *testing.T) {
	var output head
	n, err := io.Copy(&output, strings.NewReader(strings.Repeat("x", 10*maxOutput)))
	if n != 10*maxOutput || err != nil || len(output.Bytes()) != maxOutput {
		t.Errorf("copied %d bytes (%v) and kept %d", n, err, len(output.Bytes()))
	}
}
