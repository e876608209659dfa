package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMatrix checks that `make test-matrix` runs the tests of each release and of the packages.
func TestMatrix(t *testing.T) {
	cmd := exec.Command("env", "-u", "MAKEFLAGS", "make", "-n", "-C", "../..", "test-matrix", "RELEASES=24.11")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, command := range []string{
		"release 24.11 make release-test ", "release 24.11 make packages ", "release 24.11 make upgrade-test ",
		"-tags e2e -timeout 40m ./contrib/packages\n",
	} {
		if !strings.Contains(string(out), command) {
			t.Errorf("make test-matrix does not run %q:\n%s", command, out)
		}
	}
}

// TestReleaseCheck runs the checks of `make release` in a separate repository.
func TestReleaseCheck(t *testing.T) {
	script, err := filepath.Abs("release")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@localhost"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	changes := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "CHANGELOG.md"), []byte("# Changelog\n\n"+text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want string) {
		t.Helper()
		cmd := exec.Command(script, "--check")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if refused := strings.Contains(want, " "); !strings.Contains(string(out), want) || (err != nil) != refused {
			t.Errorf("%v, %q; want %q", err, out, want)
		}
	}
	git("init", "-q")
	changes("## Unreleased\n\n## 1x2.0\n")
	git("add", ".")
	git("commit", "-qm", "First")
	check("has no tag")
	git("tag", "v1.2.0")
	check(`has no section "## 1.2.0"`)
	changes("## 1.2.0 (2026-11-23)\n")
	check("has changes")
	git("commit", "-qam", "Second")
	check("has no tag")
	git("tag", "-f", "v1.2.0")
	check("1.2.0\n")
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	check("has changes")
}
