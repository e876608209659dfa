package notify

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// program installs a shell script as munge and unmunge.
func program(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"munge", "unmunge"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestMunge checks the arguments and the input of the programs, and how Munge reads their output. munge-0.5.15 printed
// the metadata.
func TestMunge(t *testing.T) {
	m := &Munge{Socket: "/run/m"}
	program(t, `echo "$@" "$(cat)"`)
	const want = "--zip=none --restrict-uid=4711 --ttl=3600 --socket=/run/m key"
	if got, err := m.Encode([]byte("key"), 4711); got != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, c := range []struct{ what, script, payload, err string }{
		{"valid", `printf 'UID:             root (0)\n\na\n\nb'`, "a\n\nb", ""},
		{"decoded before", `printf 'UID:             root (0)\n\na'; exit 17`, "a", ""},
		{"an empty payload", `printf 'UID:             root (0)\n\n'`, "", ""},
		{"no user", `printf 'GID:             root (0)\n\nUID: root (0)'`, "", "couldn't find the user ID"},
		{"for another user", `echo "unmunge: Error: Unauthorized" >&2; exit 18`, "", "unmunge: Error: Unauthorized"},
	} {
		program(t, "cat >/dev/null\n"+c.script)
		payload, uid, err := m.Decode("MUNGE:AA:")
		if string(payload) != c.payload || uid != 0 || (err == nil) != (c.err == "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, user %d, %v", c.what, payload, uid, err)
		}
	}
	program(t, `printf 'UID:             ??? (20001)\n\na'`) // a user without a name
	if _, uid, err := m.Decode("MUNGE:AA:"); uid != 20001 || err != nil {
		t.Errorf("user %d, %v", uid, err)
	}
}

// TestMungedAway checks that Munge ends a program that hangs, and does not start another one until the pause is over,
// whether munged does not respond, is not running, or is not installed.
func TestMungedAway(t *testing.T) {
	for what, script := range map[string]string{
		"did not end within":       "exec sleep 100",
		"Did you start munged?":    `echo "munge: Error: Failed to access socket (Did you start munged?)" >&2; exit 6`,
		"couldn't run munge: exec": "",
	} {
		m := &Munge{}
		if script == "" {
			t.Setenv("PATH", "/nonexistent")
		} else {
			program(t, script)
		}
		if _, err := m.Encode(nil, 0); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v", what, err)
		}
		t.Setenv("PATH", "/usr/bin:/bin")
		program(t, "cat >/dev/null; echo MUNGE:AA:")
		if _, err := m.Encode(nil, 0); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q: munge was called during the pause: %v", what, err)
		}
		m.resume = time.Time{}
		if got, err := m.Encode(nil, 0); got != "MUNGE:AA:" || err != nil {
			t.Errorf("%q: after the pause: %q, %v", what, got, err)
		}
	}
}

// TestBadCredentials checks that a credential that the programs do not accept, which a user can send, causes no pause.
func TestBadCredentials(t *testing.T) {
	for _, code := range []int{1, 2, 3, 4, 5, 8, 14, 18} {
		m := &Munge{}
		program(t, fmt.Sprint("cat >/dev/null; exit ", code))
		if _, _, err := m.Decode("MUNGE:AA:"); err == nil {
			t.Errorf("code %d: no error", code)
		}
		program(t, "cat >/dev/null; echo MUNGE:AA:")
		if got, err := m.Encode(nil, 0); got != "MUNGE:AA:" || err != nil {
			t.Errorf("after code %d: %q, %v", code, got, err)
		}
	}
}
