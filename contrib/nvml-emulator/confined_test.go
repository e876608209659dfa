package nvmlemulator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestProcessOpensOnlyItsGPUs checks that a process has descriptors of the device files of exactly its GPUs.
func TestProcessOpensOnlyItsGPUs(t *testing.T) {
	root := devRoot(t)
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "3", "--mig", "off", "--dev-root", root)
	cmd := m.cuda("2,0", "--seconds", "3600", "--print")
	m.running(cmd)
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, root) {
			open = append(open, filepath.Base(to))
		}
	}
	slices.Sort(open)
	if !slices.Equal(open, []string{"nvidia0", "nvidia2"}) {
		t.Errorf("open device files %q", open)
	}
}

// TestExpectGPUs checks that --expect-gpus fails if the number of GPUs is wrong, or if the process may open the device
// file of another GPU.
func TestExpectGPUs(t *testing.T) {
	root := devRoot(t)
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "4", "--mig", "off", "--dev-root", root)
	for _, c := range []struct {
		closed  string // GPUs whose device files are closed
		visible string
		want    string
		status  int
		says    []string
	}{
		{"0 2 3", "0", "1", 0, []string{"gpu=1 "}}, // an index counts only openable GPUs
		{"0 2", "0,1", "2", 0, []string{"gpu=1 ", "gpu=3 "}},
		{"", "0,1,2,3", "4", 0, nil},
		{"0 2", "0", "1", 5, []string{"may open its device file " + root + "/nvidia3"}},
		{"", "1", "1", 5, []string{"GPU 0 is not visible", "GPU 2 is not visible", "GPU 3 is not visible"}},
		{"0 2 3", "0", "2", 5, []string{"1 whole GPUs are visible, not 2: GPU 1"}},
		{"0 3", "0,1", "1", 5, []string{"2 whole GPUs are visible, not 1: GPU 1 GPU 2"}},
		{"0 1 2", "U3", "1", 0, []string{"gpu=3 "}},
		{"3", "U3", "1", 3, []string{"no CUDA-capable device: " + root + "/nvidia3: Permission denied"}},
		{"0 1 2 3", "0", "1", 3, []string{"no CUDA-capable device"}},
		{"", "0", "0", 2, []string{"--expect-gpus"}},
		{"", "0", "x", 2, []string{"--expect-gpus"}},
	} {
		t.Run(c.closed+": "+c.visible+": "+c.want, func(t *testing.T) {
			for i := range 4 {
				mode := uint32(0o666)
				if strings.Contains(c.closed, fmt.Sprint(i)) {
					mode = 0o600
				}
				if err := unix.Chmod(filepath.Join(root, fmt.Sprintf("nvidia%d", i)), mode); err != nil {
					t.Fatal(err)
				}
			}
			visible := strings.ReplaceAll(c.visible, "U3", m.gpuUUID(3))
			out, status := m.exit(asNobody(m.cuda(visible, "--print", "--expect-gpus", c.want)))
			if status != c.status {
				t.Errorf("exit status %d, want %d\n%s", status, c.status, out)
			}
			for _, says := range c.says {
				if !strings.Contains(out, says) {
					t.Errorf("the output does not contain %q:\n%s", says, out)
				}
			}
		})
	}
	m.ctl("mig-mode", "0", "on")
	m.ctl("reset", "0")
	_, _, mig := m.carve(m.device(0), "7g.40gb", 0)
	if out, status := m.exit(m.cuda(mig, "--expect-gpus", "1")); status != 5 || !strings.Contains(out, "0 whole GPUs") {
		t.Errorf("with a MIG device: exit status %d\n%s", status, out)
	}
}
