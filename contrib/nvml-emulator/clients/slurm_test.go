package clients

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// nvmlHeader returns the folder with the nvml.h for which the emulator is built.
func nvmlHeader(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)) + "/gen/nvml"
}

// TestSlurm runs a program that makes the NVML calls of Slurm's gpu/nvml plugin in the plugin's order, and compares
// what the plugin would report to slurmd: the GPUs' names, device files and links, and the profiles and device files of
// MIG devices.
func TestSlurm(t *testing.T) {
	program := t.TempDir() + "/slurm"
	build := exec.Command("cc", "-Wall", "-Werror", "-Wno-deprecated-declarations", "-I"+nvmlHeader(t), "-o", program,
		"testdata/slurm.c", "-L"+build, "-l:libnvidia-ml.so.1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eachModel(t, func(t *testing.T, b model) {
		m := newMachine(t, b, 3, "--mig", "off", "--nvlink", "0,1,2")
		m.ctl("mig-mode", "2", "on")
		m.ctl("reset", "2")
		m.ctl("create", "2", b.profiles[0].name)
		got := m.run(program)
		i := m.instances()[0]
		gi, ci := i.minors()
		want := fmt.Sprintf("gpu %s file=/dev/nvidia0 pci=0000:10:00.0 links=0000:11:00.0,0000:12:00.0\n", b.device) +
			fmt.Sprintf("gpu %s file=/dev/nvidia1 pci=0000:11:00.0 links=0000:10:00.0,0000:12:00.0\n", b.device) +
			fmt.Sprintf("gpu %s file=/dev/nvidia2 pci=0000:12:00.0 links=none\n", b.device) +
			fmt.Sprintf("mig %s caps=%d,%d slices=%d memory=%d\n", i.uuid, gi, ci, b.profiles[0].slices,
				b.profiles[0].memory)
		if got != want {
			t.Errorf("the calls of gpu/nvml returned\n%s, want\n%s", got, want)
		}
	})
}
