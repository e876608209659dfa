package slurm

import (
	"os"
	"strings"
	"testing"
)

// TestUnregistered checks that parseNode detects nodes whose slurmd has not registered. Since 23.02, GresUsed shows
// the indices of the used GRES even for these nodes.
func TestUnregistered(t *testing.T) {
	text, err := os.ReadFile("testdata/22.05.8/node-busy.txt")
	if err != nil {
		t.Fatal(err)
	}
	registered := string(text)
	const used, started = "gpu:a100:2(IDX:0-1)", "BootTime=1795232271 SlurmdStartTime=1795233566"
	for _, c := range []struct {
		name, used, started string
		want                bool
	}{
		{"registered", used, started, false},
		{"nothing in use", "gpu:a100:0(IDX:N/A)", started, false},
		{"not registered, 22.05", "gpu:a100:0", "BootTime=None SlurmdStartTime=None", true},
		{"not registered, 23.02 and later", used, "BootTime=None SlurmdStartTime=None", true},
		{"not registered, GRES after a reconfiguration", "gpu:a100:0", started, true},
	} {
		out := strings.Replace(strings.Replace(registered, used, c.used, 1), started, c.started, 1)
		n, err := parseNode(out, "n1")
		if err != nil || n.Unregistered != c.want {
			t.Errorf("%s: unregistered is %v, %v", c.name, n.Unregistered, err)
		}
	}
}
