package clients

import (
	"fmt"
	"strings"
	"testing"
)

// labels runs gpu-feature-discovery and returns the node labels that it would give to Kubernetes, without the prefix
// nvidia.com/.
func (m *machine) labels() map[string]string {
	m.Helper()
	all := map[string]string{}
	out := m.run("gpu-feature-discovery", "--oneshot", "--no-timestamp", "--mig-strategy=mixed", "--output-file=")
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		all[strings.TrimPrefix(key, "nvidia.com/")] = value
	}
	return all
}

func (m *machine) wantLabels(want map[string]string) {
	m.Helper()
	got := m.labels()
	for key, value := range want {
		if got[key] != value {
			m.Errorf("label %s is %q, want %q", key, got[key], value)
		}
	}
}

// families maps the major compute capabilities to the architectures' names in gpu-feature-discovery.
var families = map[string]string{"8": "ampere", "9": "hopper", "10": "blackwell", "12": "blackwell"}

// gpuLabels returns the labels for n GPUs.
func (b model) gpuLabels(n int) map[string]string {
	major, minor, _ := strings.Cut(b.capability, ".")
	return map[string]string{
		"cuda.driver-version.full": driverVersion,
		"gpu.compute.major":        major,
		"gpu.compute.minor":        minor,
		"gpu.count":                fmt.Sprint(n),
		"gpu.family":               families[major],
		"gpu.mode":                 "compute",
		"gpu.product":              strings.ReplaceAll(b.device, " ", "-"),
		"mig.capable":              "true",
		"mig.strategy":             "mixed",
	}
}

// migLabels returns the labels for n instances of a profile. It omits unpublished numbers.
func (b model) migLabels(p profile, n int) map[string]string {
	name := strings.ReplaceAll(p.name, "+", ".")
	prefix := "mig-" + name + "."
	labels := map[string]string{
		prefix + "product": strings.ReplaceAll(b.device, " ", "-") + "-MIG-" + name,
	}
	for key, value := range map[string]int{
		"count": n, "memory": p.memory, "multiprocessors": p.sms, "slices.gi": p.slices, "slices.ci": p.slices,
		"engines.copy": p.copy, "engines.decoder": p.decoder, "engines.encoder": p.encoder, "engines.jpeg": p.jpeg,
		"engines.ofa": p.ofa,
	} {
		if value >= 0 {
			labels[prefix+key] = fmt.Sprint(value)
		}
	}
	return labels
}

// TestLabels compares the labels of gpu-feature-discovery with models.txt, first with MIG mode off and then for each
// profile.
func TestLabels(t *testing.T) {
	eachModel(t, func(t *testing.T, b model) {
		newMachine(t, b, 2, "--mig", "off").wantLabels(b.gpuLabels(2))
		m := newMachine(t, b, 1)
		m.wantLabels(b.gpuLabels(1))
		for _, p := range b.profiles {
			if !p.plain() && !strings.HasSuffix(p.name, "+me") {
				continue // gpu-feature-discovery v0.18.0 does not know the other attributes
			}
			for range p.limit {
				m.ctl("create", "0", p.name)
			}
			m.wantLabels(b.migLabels(p, p.limit))
			for _, i := range m.instances() {
				m.ctl("destroy", fmt.Sprint(i.gpu), fmt.Sprint(i.gi))
			}
		}
	})
}
