package harness

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/datadriven"
)

func check(t *testing.T, verb, path string) string {
	t.Helper()
	out, err := exec.Command(program(t, "lease_check"), verb, path).CombinedOutput()
	if err != nil {
		t.Errorf("lease_check %s: %v", verb, err)
	}
	return string(out)
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "12")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLease parses the samples in testdata/lease.txt under the address and undefined-behaviour sanitizers. The argument
// "cut" removes the last newline. In a sample, the escape sequences \x00, \x1b, \t and \r stand for single bytes.
func TestLease(t *testing.T) {
	program(t, "lease_check")
	datadriven.RunTest(t, "testdata/lease.txt", func(t *testing.T, d *datadriven.TestData) string {
		text := strings.NewReplacer(`\x00`, "\x00", `\x1b`, "\x1b", `\t`, "\t", `\r`, "\r").Replace(d.Input)
		if !d.HasArg("cut") {
			text += "\n"
		}
		return check(t, "parse", write(t, text))
	})
}

const whole = `caelum-lease 1
job 12
restart 0
uid 0
index absolute
slot 0 MIG-11111111-2222-3333-4444-555555555555
slot 3 -
end
`

// TestLeaseMutations checks that the parser accepts no proper prefix of a lease, and that it never reads or writes out
// of bounds if a byte has changed.
func TestLeaseMutations(t *testing.T) {
	const slots = "slot 0 MIG-11111111-2222-3333-4444-555555555555\nslot 3 -"
	for _, text := range []string{whole, strings.Replace(whole, slots, "error no room", 1)} {
		const want = "accepted prefixes: 0, complete: 1, accepted mutations: some\n"
		if got := check(t, "mutate", write(t, text)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestLeaseBounds(t *testing.T) {
	many := func(n int) string {
		var b strings.Builder
		head, _, _ := strings.Cut(whole, "slot")
		b.WriteString(head)
		for i := range n {
			b.WriteString(
				"slot " + string(rune('1'+i/100)) + string(rune('0'+i/10%10)) + string(rune('0'+i%10)) + " -\n",
			)
		}
		return b.String() + "end\n"
	}
	if got := check(t, "parse", write(t, many(256))); !strings.HasPrefix(got, "job 12") {
		t.Errorf("256 slots: %s", got)
	}
	if got := check(t, "parse", write(t, many(257))); !strings.HasPrefix(got, "refused") {
		t.Errorf("257 slots: %s", got)
	}
	head, _, _ := strings.Cut(whole, "slot")
	got := check(t, "parse", write(t, head+"error "+strings.Repeat("x", 1024)+"\nend\n"))
	if !strings.HasPrefix(got, "refused") {
		t.Errorf("an error of 1024 bytes: %s", got)
	}
	got = check(t, "parse", write(t, head+"error "+strings.Repeat("x", 1023)+"\nend\n"))
	if !strings.HasPrefix(got, "job 12") {
		t.Errorf("an error of 1023 bytes: %s", got)
	}
}

// TestLeaseFile checks that the plugin accepts a lease file only if no user except root can have written it.
func TestLeaseFile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to own files")
	}
	for _, c := range []struct {
		name string
		make func(path string) error
		want string
	}{
		{"a lease", func(p string) error { return os.WriteFile(p, []byte(whole), 0o600) }, "job 12 restart 0"},
		{"nothing", func(p string) error { return nil }, "refused: No such file"},
		{"a link", func(p string) error {
			return os.Symlink(write(t, whole), p)
		}, "refused: Too many levels of symbolic links"},
		{"a directory", func(p string) error { return os.Mkdir(p, 0o700) }, "refused: not a regular file"},
		{"a fifo", func(p string) error { return syscall.Mkfifo(p, 0o600) }, "refused: not a regular file"},
		{"a user's file", func(p string) error {
			return errors.Join(os.WriteFile(p, []byte(whole), 0o600), os.Chown(p, 65534, 65534))
		}, "refused: not owned by root"},
		{"writable by all", func(p string) error {
			return errors.Join(os.WriteFile(p, []byte(whole), 0o600), os.Chmod(p, 0o606))
		}, "refused: not owned by root, or writable by others"},
		{"too long", func(p string) error {
			return os.WriteFile(p, make([]byte, 40000), 0o600)
		}, "refused: longer than 32768 bytes"},
		{"empty", func(p string) error { return os.WriteFile(p, nil, 0o600) }, "refused: not a complete lease"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "12")
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			if got := check(t, "read", path); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
