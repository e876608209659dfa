package clients

import (
	"fmt"
	"strings"
	"testing"
)

// migConfig returns a mig-parted configuration in which every GPU has n instances of a profile. mig-parted export
// prints the configuration of a machine with identical GPUs in the same form.
func migConfig(profile string, n int) string {
	return fmt.Sprintf(`version: v1
mig-configs:
  current:
  - devices: all
    mig-enabled: true
    mig-devices:
      %s: %d
`, profile, n)
}

// applyConfig lets mig-parted create n instances of a profile on every GPU.
func (m *machine) applyConfig(profile string, n int) {
	m.Helper()
	m.write("config.yaml", migConfig(profile, n))
	m.run("nvidia-mig-parted", "apply", "-f", m.path("config.yaml"), "-c", "current")
}

// TestMigParted applies each profile to two GPUs, from a machine with MIG mode off, and compares the result of
// mig-parted's assert and export. mig-parted computes the profiles' names from memory sizes.
func TestMigParted(t *testing.T) {
	eachModel(t, func(t *testing.T, b model) {
		m := newMachine(t, b, 2, "--mig", "off")
		for _, p := range b.profiles {
			if !p.plain() && !strings.HasSuffix(p.name, "+me") {
				continue // mig-parted v0.10.0 does not know the other attributes
			}
			m.applyConfig(p.name, p.limit)
			m.run("nvidia-mig-parted", "assert", "-f", m.path("config.yaml"), "-c", "current")
			if got, want := m.run("nvidia-mig-parted", "export"), migConfig(p.name, p.limit); got != want {
				t.Errorf("mig-parted export printed\n%s, want\n%s", got, want)
			}
			m.write("other.yaml", migConfig(p.name, p.limit+1))
			other := m.command("nvidia-mig-parted", "assert", "-f", m.path("other.yaml"), "-c", "current")
			if _, _, status := m.status(other); status == 0 {
				t.Errorf("%s: mig-parted assert accepted %d instances, want %d", p.name, p.limit+1, p.limit)
			}
			m.ctl("check")
		}
	})
}
