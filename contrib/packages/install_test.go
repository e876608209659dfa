//go:build e2e

package packages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// suites maps Slurm releases to the Debian suites that have them.
var suites = map[string]string{"22.05": "bookworm", "24.11": "trixie", "26.05": "sid"}

// TestInstallation runs the installation script in a new root directory of each Debian suite for which a plugin was
// built. The script installs, upgrades, downgrades and removes the packages.
func TestInstallation(t *testing.T) {
	eachSuite(t, func(t *testing.T, release, suite string) {
		other := "24.11"
		if release == other {
			other = "22.05"
		}
		cmd := exec.Command("./fresh", suite, site(t, release, other), "/packages/installation", release, other)
		out, err := cmd.CombinedOutput()
		t.Logf("Debian %s, Slurm %s\n%s", suite, release, out)
		if err != nil {
			t.Error(err)
		}
	})
}

// eachSuite runs a test for each Slurm release for which a plugin was built, with the Debian suite that has this
// release.
func eachSuite(t *testing.T, test func(t *testing.T, release, suite string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, because the test mounts file systems")
	}
	plugins, err := filepath.Glob(filepath.Join(built, "caelum-spank-*.deb"))
	if err != nil || len(plugins) == 0 {
		t.Fatalf("no plugin in %s (%v); run `make packages`", built, err)
	}
	for _, path := range plugins {
		release, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), "caelum-spank-"), "_")
		t.Run(release, func(t *testing.T) {
			suite := suites[release]
			if suite == "" {
				t.Fatalf("no Debian suite with Slurm %s is known", release)
			}
			test(t, release, suite)
		})
	}
}

// site returns a directory with the installation script and the packages that it needs: the packages of `make
// packages`, a plugin for another release of Slurm, packages of a later release in next, in old those of an earlier
// release that supports only older schemas, and in former those of a release without caelum-client. All packages have
// identical programs but different control files.
func site(t *testing.T, release, other string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	all, host := names(t)
	for _, name := range append(all[:3], "caelum-spank-"+release) {
		output(t, "cp", file(t, built, name, ".deb"), file(t, built, name, ".rpm"), dir)
	}
	output(t, "cp", "installation", dir)
	build(t, filepath.Join(dir, "next"), "9999.0", "", all[:3]...)
	build(t, filepath.Join(dir, "next"), "9999.0", header(t, release), "caelum-spank")
	// This machine's build needs the Slurm library of this machine.
	repack(t, file(t, built, "caelum-spank-"+release, ".deb"), filepath.Join(dir, "next"), "9999.0", nil)
	if other != host || release != host {
		build(t, dir, "1.0.0", header(t, other), "caelum-spank")
	}
	older(t, filepath.Join(dir, "old"))
	former(t, filepath.Join(dir, "former"))
	return dir
}

// older writes to dir the packages for nodes of an earlier release that supports only older schemas.
func older(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"caelum", "caelum-client"} {
		repack(t, file(t, built, name, ".deb"), dir, "0.0.0", func(tree string) {
			output(t, "sed", "-i", "s/repository=[0-9]*/repository=0/", tree+"/DEBIAN/preinst")
		})
	}
}

// former writes to dir packages of an earlier release in which the caelum package contained the command line.
func former(t *testing.T, dir string) {
	t.Helper()
	repack(t, file(t, built, "caelum", ".deb"), dir, "0.0.0", func(tree string) {
		output(t, "dpkg-deb", "-x", file(t, built, "caelum-client", ".deb"), tree)
		output(t, "rm", "-r", tree+"/usr/share/doc/caelum-client")
		output(t, "sed", "-i", "s/caelum-client (= [^)]*), //", tree+"/DEBIAN/control")
	})
	repack(t, file(t, built, "caelum-controller", ".deb"), dir, "0.0.0", func(tree string) {
		output(t, "rm", tree+"/usr/sbin/caelum-watch")
		output(t, "sed", "-i", "s/caelum-client (=/caelum (=/", tree+"/DEBIAN/control")
	})
}

// repack writes a deb package with another version to dir. Unless change is nil, it is called to modify the package's
// files in the directory tree.
func repack(t *testing.T, deb, dir, version string, change func(tree string)) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(t.TempDir(), "tree")
	output(t, "dpkg-deb", "-R", deb, tree)
	output(t, "sed", "-i", "-e", "s/^Version: .*/Version: "+version+"-1/",
		"-e", "s/caelum-client (= [^)]*)/caelum-client (= "+version+"-1)/", tree+"/DEBIAN/control")
	if change != nil {
		change(tree)
	}
	output(t, "dpkg-deb", "-Zgzip", "-z1", "-b", tree, dir)
}

// header writes headers that contain only the number of a Slurm release, which is enough to build a package, and
// returns the compiler option that selects them.
func header(t *testing.T, release string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "slurm"), 0o755); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("#define SLURM_VERSION_NUMBER 0x%02x%02x00\n", major, minor)
	if err := os.WriteFile(filepath.Join(dir, "slurm/slurm_version.h"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return "-I" + dir
}
