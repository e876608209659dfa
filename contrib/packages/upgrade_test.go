//go:build e2e

package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/contrib/devcluster/machine"
)

// gpus is the number of A100s, which have room for 21 slices. holders is the number of jobs that hold a slice during
// the upgrade; new jobs use the remaining one.
const (
	gpus    = 3
	holders = 7*gpus - 1
)

// next is the version of the later release.
const next = "9999.0"

// TestUpgradeUnderJobs upgrades and downgrades the packages under a booted systemd while jobs hold slices. It also
// tries to install an earlier release, which must fail. Finally, it removes the packages and reinstalls them.
func TestUpgradeUnderJobs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, because the test boots systemd")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	names := releases(t, dir)
	h := &host{Machine: machine.Boot(t, machine.Options{GPUs: gpus, Packages: dir}), t: t, names: names}
	h.start()
	before, first := h.leases(), h.status().Version
	if len(before) != holders || first == next {
		t.Fatalf("release %s: %d jobs have leases", first, len(before))
	}

	// If the administrator has changed caelum.yaml, dpkg asks which version to install, and fails if there is no
	// answer. The watcher's package does not depend on that of the agent.
	h.refused("conffile prompt", "dpkg -i /packages/next/*.deb </dev/null")
	h.serves(first, before)
	h.replace("dpkg --force-confold --configure -a", "caelumd")
	h.serves(next, before)
	h.completes(3, before)
	if files := h.Must("ls", "/etc/caelum"); !strings.Contains(files, "caelum.yaml.dpkg-dist") {
		t.Errorf("the new caelum.yaml is not next to the old one: %s", files)
	}

	h.replace("dpkg --force-confold -i /packages/*.deb", units...)
	h.serves(first, before)
	h.completes(3, before)

	h.refused("schema version", "dpkg -i /packages/old/*.deb")
	h.audit()
	h.serves(first, before)

	h.completes(len(h.jobs), before)
	h.remove()
	h.installAgain(first)
}

// programs maps the packages with programs in Go to the directories of these programs.
var programs = map[string]map[string]string{
	"caelum":            {"caelumd": "usr/sbin"},
	"caelum-client":     {"caelum": "usr/bin"},
	"caelum-controller": {"caelum-watch": "usr/sbin"},
}

// releases writes the packages of the current build to dir, the packages of a later release to dir/next, and packages
// of an earlier release with older schemas to dir/old. It returns the names of the packages. The later release has
// different programs and a different caelum.yaml.
func releases(t *testing.T, dir string) []string {
	t.Helper()
	all, _ := names(t)
	for _, name := range all {
		deb := file(t, built, name, ".deb")
		output(t, "cp", deb, dir)
		repack(t, deb, filepath.Join(dir, "next"), next, func(tree string) {
			for program, path := range programs[name] {
				output(t, "go", "build", "-trimpath", "-buildvcs=false",
					"-ldflags", "-s -w -X caelum/internal/version.Version="+next,
					"-o", filepath.Join(tree, path, program), "../../cmd/"+program)
			}
			if name == "caelum" {
				appendTo(t, filepath.Join(tree, "etc/caelum/caelum.yaml"), "# a new comment\n")
			}
		})
	}
	older(t, filepath.Join(dir, "old"))
	return all
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprint(f, text); err != nil {
		t.Fatal(err)
	}
}
