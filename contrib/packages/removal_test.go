//go:build e2e

package packages

import (
	"os/exec"
	"slices"
	"strings"
)

// caelumFiles is a command that prints the paths that contain "caelum", except for the slots and dpkg's own files.
const caelumFiles = "find /etc /usr /opt /var/lib /var/log /run /dev -xdev -path /var/lib/dpkg -prune -o " +
	"-path '*caelum*' ! -name 'slot*' -print"

// siteFiles lists the files that remain after a purge: the files that the site has created in /etc, the databases, and
// the decision table. The slots also remain until the next boot, because gres.conf may still name the slots.
var siteFiles = []string{
	"/dev/caelum",
	"/etc/caelum", "/etc/caelum/decisions", "/etc/caelum/watch.yaml",
	"/etc/systemd/system/caelum-watch.service.d", "/etc/systemd/system/caelum-watch.service.d/emulator.conf",
	"/etc/systemd/system/caelumd.service.d", "/etc/systemd/system/caelumd.service.d/emulator.conf",
	"/var/lib/caelum", "/var/lib/caelum/ledger.db", "/var/lib/caelum/repo.db",
	"/var/lib/caelum-watch", "/var/lib/caelum-watch/decisions", "/var/lib/caelum-watch/repo.db",
}

// remove removes the packages and then purges them. It checks that the offers are withdrawn, which files remain, and
// that the units no longer exist.
func (h *host) remove() {
	h.t.Helper()
	h.Must("cp", "-a", "/etc/caelum/caelum.yaml", "/etc/slurm/plugstack.conf", "/root")
	h.Must("sh", "-c", ": >/etc/slurm/plugstack.conf") // docs/install.md: first remove the plugin from plugstack.conf
	h.Must(append([]string{"dpkg", "--remove"}, h.names...)...)
	gres := h.Must("scontrol", "-d", "show", "node", "n1")
	for _, offered := range []string{"mig:1g.5gb:0", "mig:7g.40gb:0"} {
		if !strings.Contains(gres, offered) {
			h.t.Errorf("the packages are removed, and %s is not in:\n%s", offered, gres)
		}
	}
	for _, unit := range units {
		if load, active := h.Property(unit, "LoadState"), h.Property(unit, "ActiveState"); load != "not-found" ||
			active != "inactive" {
			h.t.Errorf("after the removal, %s is %s and %s", unit, load, active)
		}
	}
	h.left("removal", "/etc/caelum/caelum.yaml", "/etc/caelum/caelum.yaml.dpkg-dist", "/run/caelum", "/run/caelum/jobs")
	h.Must(append([]string{"dpkg", "--purge"}, h.names...)...)
	h.left("purge")
	h.audit()
}

// left checks that only siteFiles and the given other files of the packages remain. Files that the machine's root
// directory contained before the installation do not count.
func (h *host) left(after string, others ...string) {
	h.t.Helper()
	before, err := exec.Command("sh", "-c", caelumFiles).Output()
	if err != nil {
		h.t.Fatal(err)
	}
	now := slices.DeleteFunc(strings.Fields(h.Must("sh", "-c", caelumFiles)), func(path string) bool {
		return slices.Contains(strings.Fields(string(before)), path)
	})
	want := slices.Concat(siteFiles, others)
	slices.Sort(now)
	slices.Sort(want)
	if !slices.Equal(now, want) {
		h.t.Errorf("after the %s, these files are left:\n%s\nnot:\n%s", after,
			strings.Join(now, "\n"), strings.Join(want, "\n"))
	}
}

// installAgain installs the packages after a purge, with the site's configuration. It checks that the jobs get slices
// again.
func (h *host) installAgain(version string) {
	h.t.Helper()
	h.Must("sh", "-c", "dpkg -i /packages/*.deb")
	h.runtimeFiles()
	h.stopped()
	h.Must("cp", "-a", "/root/caelum.yaml", "/etc/caelum")
	h.Must("cp", "-a", "/root/plugstack.conf", "/etc/slurm")
	h.Must("systemctl", "enable", "--now", "caelumd", "caelum-watch")
	h.serves(version, nil)
}
