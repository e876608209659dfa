package harness

import (
	"os/exec"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestCgroup parses the samples in testdata/cgroup.txt under the address and undefined-behaviour sanitizers.
func TestCgroup(t *testing.T) {
	program(t, "cgroup_check")
	datadriven.RunTest(t, "testdata/cgroup.txt", func(t *testing.T, d *datadriven.TestData) string {
		out, err := exec.Command(program(t, "cgroup_check"), d.Cmd, write(t, d.Input+"\n")).CombinedOutput()
		if err != nil {
			t.Errorf("cgroup_check %s: %v", d.Cmd, err)
		}
		return string(out)
	})
}
