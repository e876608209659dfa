//go:build e2e

package packages

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the expected contents in testdata")

// built is the directory that `make packages` writes to.
const built = "../../build/packages"

// names returns the names of the packages, and the Slurm release for which they were built.
func names(t *testing.T) (all []string, release string) {
	t.Helper()
	out := output(t, "sh", "-c", "echo '#include <slurm/slurm_version.h>' | cc -E -dM -")
	m := regexp.MustCompile(`SLURM_VERSION_NUMBER 0x(..)(..)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatal("no Slurm headers; install libslurm-dev")
	}
	major, _ := strconv.ParseUint(m[1], 16, 8)
	minor, _ := strconv.ParseUint(m[2], 16, 8)
	release = fmt.Sprintf("%d.%02d", major, minor)
	return []string{"caelum-client", "caelum", "caelum-controller", "caelum-spank-" + release}, release
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, &stderr)
	}
	return string(out)
}

// file returns the path of the only package in dir with the given package name and the given suffix.
func file(t *testing.T, dir, name, suffix string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, name+`[_\-][0-9]*`+suffix))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has the packages %q of %s; run `make packages`", dir, found, name)
	}
	path, err := filepath.Abs(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestContents compares the control fields, files, owners and modes of each package with testdata. One line represents
// all manual pages of commands, because TestManPages in cmd/caelum checks that each command has a page.
func TestContents(t *testing.T) {
	all, release := names(t)
	for _, name := range all {
		deb, rpm := file(t, built, name, ".deb"), file(t, built, name, ".rpm")
		version := strings.TrimSpace(output(t, "dpkg-deb", "-f", deb, "Version"))
		major, minor, _ := strings.Cut(release, ".")
		next, _ := strconv.Atoi(minor)
		neutral := strings.NewReplacer(
			version, "VERSION", strings.TrimSuffix(version, "-1"), "VERSION",
			fmt.Sprintf("%s.%02d", major, next+1), "NEXT", release, "RELEASE",
		)
		fields := "Pre-Depends Depends Recommends Conflicts Breaks Replaces Provides Section Priority License"
		text := "deb\n" + output(t, "dpkg-deb", append([]string{"-f", deb}, strings.Fields(fields)...)...)
		for line := range strings.Lines(output(t, "dpkg-deb", "-c", deb)) {
			if f := strings.Fields(line); !strings.HasSuffix(f[5], "/") {
				text += fmt.Sprintf("%s %s %s\n", f[0], f[1], strings.TrimPrefix(f[5], "."))
			}
		}
		text += "\nrpm\n" + output(t, "rpm", "-qp", "--qf",
			"[Requires: %{REQUIRENEVRS}\n][Recommends: %{RECOMMENDNEVRS}\n]"+
				"[Conflicts: %{CONFLICTNEVRS}\n]License: %{LICENSE}\n"+
				"[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES}\n]", rpm)
		text = pages.ReplaceAllString(neutral.Replace(text), "$1-COMMAND")
		text = regexp.MustCompile(`libslurm[0-9][0-9a-z]*`).ReplaceAllString(text, "LIBSLURM")
		text = strings.Join(slices.Compact(strings.SplitAfter(text, "\n")), "")
		golden := filepath.Join("testdata", strings.TrimSuffix(name, "-"+release)+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || string(want) != text {
			t.Errorf("%s differs from %s (%v); -update rewrites the file. Contents:\n%s", name, golden, err, text)
		}
	}
}

// pages matches the manual pages of the programs' commands.
var pages = regexp.MustCompile(`(man1/caelum|man8/caelumd|man8/caelum-watch)-[a-z-]+`)

// glibcLimit is the newest glibc release that the programs may need. EL 9 has glibc 2.34, and Debian 12 has glibc 2.36.
const glibcLimit = "2.34"

var symbol = regexp.MustCompile(`GLIBC_([0-9.]+)`)

// TestGlibc checks the glibc symbol versions that the files need. The plugin may need any version up to that of the
// system on which it is built, which has its Slurm release.
func TestGlibc(t *testing.T) {
	all, _ := names(t)
	for _, name := range all {
		deb := file(t, built, name, ".deb")
		dir := t.TempDir()
		output(t, "dpkg-deb", "-x", deb, dir)
		newest := ""
		for path := range strings.Lines(output(t, "find", dir, "-type", "f")) {
			path = strings.TrimSpace(path)
			if head, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(head, []byte("\x7fELF")) {
				continue
			}
			for _, m := range symbol.FindAllStringSubmatch(output(t, "objdump", "-T", path), -1) {
				if compare(m[1], newest) > 0 {
					newest = m[1]
				}
			}
		}
		t.Logf("%s needs glibc %s", name, cmp.Or(newest, "not at all"))
		if !strings.HasPrefix(name, "caelum-spank-") && (newest == "" || compare(newest, glibcLimit) > 0) {
			t.Errorf("%s needs glibc %s, more than %s", name, newest, glibcLimit)
		}
		if depends := output(t, "dpkg-deb", "-f", deb, "Depends"); newest != "" &&
			!strings.Contains(depends, "libc6 (>= "+newest+")") {
			t.Errorf("%s needs glibc %s and depends on %s", name, newest, depends)
		}
	}
}

// compare compares two version numbers component by component.
func compare(a, b string) int {
	numbers := func(v string) (all []int) {
		for word := range strings.SplitSeq(v, ".") {
			n, _ := strconv.Atoi(word)
			all = append(all, n)
		}
		return all
	}
	return slices.Compare(numbers(a), numbers(b))
}

// TestLint runs lintian and rpmlint. rpmlint.toml lists the accepted messages with reasons.
func TestLint(t *testing.T) {
	debs, _ := filepath.Glob(filepath.Join(built, "*.deb"))
	rpms, _ := filepath.Glob(filepath.Join(built, "*.rpm"))
	if len(debs) < 4 || len(debs) != len(rpms) {
		t.Fatalf("the packages are %q and %q; run `make packages`", debs, rpms)
	}
	t.Log(output(t, "lintian", append([]string{"--allow-root", "--fail-on", "error"}, debs...)...))
	relativeCpio(t)
	out := output(t, "rpmlint", append([]string{"-c", "rpmlint.toml"}, rpms...)...)
	if !strings.Contains(out, fmt.Sprintf(" %d packages and 0 specfiles checked; 0 errors,", len(rpms))) {
		t.Error(out)
	}
}

// relativeCpio makes cpio extract all files below the current directory. rpmlint 2.4 extracts a package with plain
// cpio, and nfpm 2.45 writes absolute names. Without relativeCpio, rpmlint would overwrite files of the machine that
// runs the test.
func relativeCpio(t *testing.T) {
	t.Helper()
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec %s --no-absolute-filenames \"$@\"\n", cpio)
	if err := os.WriteFile(filepath.Join(dir, "cpio"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// build builds packages into dir, with another version or other headers than `make packages`.
func build(t *testing.T, dir, version, cflags string, packages ...string) {
	t.Helper()
	cmd := exec.Command("./build", append([]string{cflags}, packages...)...)
	cmd.Env = append(os.Environ(), "OUT="+dir, "VERSION="+version, "SOURCE_DATE_EPOCH=1700000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestReproducible(t *testing.T) {
	var sums [2]string
	for i := range sums {
		dir := t.TempDir()
		build(t, dir, "1.0.0", "", "caelum-client", "caelum", "caelum-spank", "caelum-controller")
		cmd := exec.Command("sh", "-c", "sha256sum *")
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil || bytes.Count(out, []byte("\n")) != 8 {
			t.Fatalf("%s, %v", out, err)
		}
		sums[i] = string(out)
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds differ:\n%s\n%s", sums[0], sums[1])
	}
}

// TestWithoutDpkg checks that a host without dpkg, such as one with Enterprise Linux, builds all rpm packages.
func TestWithoutDpkg(t *testing.T) {
	bin, out := t.TempDir(), t.TempDir()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		programs, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, p := range programs {
			if name := filepath.Base(p); !strings.HasPrefix(name, "dpkg") && !strings.HasPrefix(name, "apt") {
				os.Symlink(p, filepath.Join(bin, name)) // fails if an earlier directory has the program
			}
		}
	}
	t.Setenv("PATH", bin)
	build(t, out, "1.0.0", "", "caelum-client", "caelum", "caelum-spank", "caelum-controller")
	all, _ := filepath.Glob(filepath.Join(out, "*"))
	if rpms, _ := filepath.Glob(filepath.Join(out, "*.rpm")); len(all) != 4 || len(rpms) != 4 {
		t.Errorf("the packages are %q", all)
	}
}

// TestVersions checks that the packages of a release candidate, the release, and a later commit have increasing
// versions.
func TestVersions(t *testing.T) {
	last := "0"
	_, release := names(t)
	for _, version := range []string{
		"0.9.0-rc0-418-gabc", "0.9.0", "0.9.0-2-gabc",
		"1.2.0-rc1", "1.2.0-rc1-3-gabc", "1.2.0", "1.2.0-3-gabc", "1.2.0-12-g012", "1.2.1",
	} {
		dir := t.TempDir()
		build(t, dir, version, "", "caelum-spank")
		has := strings.TrimSpace(output(t, "dpkg-deb", "-f", file(t, dir, "caelum-spank-"+release, ".deb"), "Version"))
		if err := exec.Command("dpkg", "--compare-versions", last, "lt", has).Run(); err != nil {
			t.Errorf("%s is not later than %s", has, last)
		}
		last = has
	}
}
