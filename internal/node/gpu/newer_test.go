package gpu_test

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"caelum/internal/node/gpu/gputest"
)

// TestNewerDriver uses a driver that has a profile with a higher number than those that go-nvml names.
func TestNewerDriver(t *testing.T) {
	node := gputest.New(t, "H100-80GB-NEWER", 1)
	gpus, err := node.GPUs()
	if err != nil || gpus[0].Problem != "" {
		t.Fatalf("%+v, %v", gpus, err)
	}
	const profile = "1g.10gb+new"
	if _, ok := gpus[0].Model.ProfileIndex(profile); !ok {
		t.Fatalf("the profile %s is missing", profile)
	}
	in, err := node.Create(0, profile, 3)
	if err != nil || !in.Whole {
		t.Fatalf("%+v, %v", in, err)
	}
	if list, err := node.Instances(0); err != nil || len(list) != 1 || list[0].Profile != profile ||
		!slices.Equal(list[0].CIs, in.CIs) {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestGraphicsProcesses checks that a graphics process counts as a process of its instance.
func TestGraphicsProcesses(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 1)
	in := create2g(t, node)
	cmd := exec.Command(filepath.Join(node.Build(), "cuda-process"), "--graphics", "--seconds", "3600", "--print")
	cmd.Env = append(cmd.Environ(), "CUDA_VISIBLE_DEVICES="+in.UUID)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("cuda-process: %v", err)
	}
	if pids, err := node.Processes(0, in.GI); err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("processes %v, %v, want %d", pids, err, cmd.Process.Pid)
	}
	m, err := node.Meter(0, in)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if use, err := m.Read(); err != nil || use.Processes != 1 {
		t.Errorf("usage %+v, %v", use, err)
	}
}
