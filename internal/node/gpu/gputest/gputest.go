package gputest

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"caelum/internal/node/gpu"
)

// Node is an emulated node.
type Node struct {
	*gpu.NVML
	// Dev is the node's device directory, which contains nvidia-caps.
	Dev string
	// Proc is a directory that contains the files that a real driver provides under /proc.
	Proc string
	// State is the state file of the emulator, and State + ".log" is its log.
	State string
	build string
}

var build = sync.OnceValues(func() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..", "..", "..")
	out, emulator := filepath.Join(root, "build"), filepath.Join(root, "contrib", "nvml-emulator")
	// The lock excludes the tests of other packages, which may run at the same time.
	text, err := exec.Command("flock", emulator, "make", "-s", "-C", emulator, "B="+out).CombinedOutput()
	if err != nil {
		return string(text), err
	}
	return out, nil
})

// New creates a node with n GPUs of one GPU model. options are additional options for `nvml-emulator init`. A process
// can use only one node at a time, because the state file's path is in an environment variable.
func New(t testing.TB, model string, n int, options ...string) *Node {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatalf("couldn't build the NVML emulator: %v\n%s", err, dir)
	}
	node := &Node{Dev: t.TempDir(), Proc: t.TempDir(), State: filepath.Join(t.TempDir(), "state"), build: dir}
	t.Setenv("NVML_EMULATOR_STATE", node.State)
	node.Emulator(t, append([]string{
		"init", "--board", model, "--gpus", strconv.Itoa(n), "--dev-root", node.Dev, "--proc-root", node.Proc,
	}, options...)...)
	node.open(t)
	return node
}

func (n *Node) open(t testing.TB) {
	t.Helper()
	hw, err := gpu.OpenNVML(filepath.Join(n.build, "libnvidia-ml.so.1"), gpu.Caps{Dev: n.Dev, Proc: n.Proc})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hw.Close)
	n.NVML = hw
}

// Emulator runs the emulator's control command and returns its output.
func (n *Node) Emulator(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(n.build, "nvml-emulator"), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("nvml-emulator %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// Build returns the directory of the emulator's library, for tests whose processes load it.
func (n *Node) Build() string { return n.build }
