package gpu_test

import (
	"fmt"
	"strings"
	"testing"

	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
)

// count returns the number of NVML calls that do makes.
func count(t *testing.T, node *gputest.Node, what string, do func() error) int {
	t.Helper()
	node.Emulator(t, "calls", "--reset")
	if err := do(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	text := node.Emulator(t, "calls")
	n := 0
	for line := range strings.Lines(text) {
		var kind string
		var k int
		if _, err := fmt.Sscan(line, &kind, &k); err == nil {
			n += k
		}
	}
	t.Logf("%s: %d calls: %s", what, n, strings.Join(strings.Fields(text), " "))
	return n
}

// TestCallsOfCarve bounds the number of NVML calls for the operations of a prolog, on a GPU with six other instances.
func TestCallsOfCarve(t *testing.T) {
	for _, model := range []string{"A100-40GB", "B200-180GB"} {
		t.Run(model, func(t *testing.T) {
			node := gputest.New(t, model, 2)
			gpus, err := node.GPUs()
			if err != nil {
				t.Fatal(err)
			}
			small := gpus[1].Model.Profiles[0].Name
			var in gpu.Instance
			for start := range 7 {
				if in, err = node.Create(1, small, start); err != nil {
					t.Fatal(err)
				}
			}
			carve := func() (err error) {
				if _, err = node.Processes(1, in.GI); err == nil {
					err = node.Destroy(1, in.GI)
				}
				if err == nil {
					in, err = node.Create(1, small, in.Start)
				}
				return err
			}
			exists := func() error {
				if there, err := node.Exists(1, in); err != nil || !there {
					return fmt.Errorf("the instance does not exist (%v)", err)
				}
				return nil
			}
			for _, c := range []struct {
				what string
				do   func() error
				most int
			}{
				{"carve, including one destroy", carve, 15},
				{"check of an idle instance", exists, 6},
				{"new compute instance", func() (err error) { in, err = node.Remake(1, in); return err }, 9},
				{"probe of two GPUs", func() error { _, err := node.Probe(); return err }, 10},
			} {
				if n := count(t, node, c.what, c.do); n > c.most {
					t.Errorf("%s: %d calls, at most %d", c.what, n, c.most)
				}
			}
			if n := count(t, node, "list", func() error { _, err := node.Instances(1); return err }); n > 66 {
				t.Errorf("a list of 7 instances: %d calls", n)
			}
		})
	}
}
