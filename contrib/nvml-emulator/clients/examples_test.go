package clients

import (
	"strings"
	"testing"
)

// TestExamples runs the example programs of go-nvml on two full GPUs.
func TestExamples(t *testing.T) {
	eachModel(t, func(t *testing.T, b model) {
		m := newMachine(t, b, 2, "--mig", "off")
		out := m.run("devices")
		if strings.Count(out, "uuid=GPU-") != 2 || strings.Count(out, "mode=") != 2 {
			t.Errorf("devices printed\n%s, want two UUIDs and two addressing modes", out)
		}
		m.run("compute-processes")
		// gpm-metrics passes a wrong version, which real drivers refuse too (issue NVIDIA/go-nvml#168).
		_, stderr, status := m.status(m.command("gpm-metrics"))
		if status != 0 || strings.Count(stderr, "Argument version mismatch") != 2 {
			t.Errorf("gpm-metrics: exit status %d\n%s, want two version mismatches", status, stderr)
		}
	})
}
