package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"caelum/internal/node/gpu"
)

// TestUnusedCapabilities tests that the missing files of Fabric Manager and the IMEX daemon are reported only on nodes
// with these programs or with an NVSwitch. The driver has their capabilities on every node.
func TestUnusedCapabilities(t *testing.T) {
	const fabric, imex = "fabric-mgmt", "fabric-imex-mgmt"
	for _, c := range []struct {
		name, file string
		want       []string
	}{
		{"neither program", "", nil},
		{"Fabric Manager", "units/nvidia-fabricmanager.service", []string{fabric}},
		{"an NVSwitch", "proc/driver/nvidia-nvswitch/devices/0000:05:00.0", []string{fabric}},
		{"the IMEX daemon", "units/nvidia-imex.service", []string{imex}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(path, text string) {
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			// An NVSwitch driver without switches has an empty directory.
			if err := os.MkdirAll(filepath.Join(dir, "proc/driver/nvidia-nvswitch/devices"), 0o755); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{gpu.FabricMgmt, gpu.IMEXMgmt} {
				write("proc/driver/"+name, "DeviceFileMinor: 0\nDeviceFileMode: 256\nDeviceFileModify: 0\n")
			}
			if c.file != "" {
				write(c.file, "")
			}
			f := healthy()
			f.Driver.General = readGeneral(filepath.Join(dir, "proc"), dir, []string{filepath.Join(dir, "units")})
			var got []string
			for _, g := range capabilityFiles(f) {
				_, name, _ := strings.Cut(g.Text, "capabilities/")
				name, _, _ = strings.Cut(name, ")")
				got = append(got, name)
			}
			if len(f.Driver.General) != 2 || !slices.Equal(got, c.want) {
				t.Errorf("the files of %v were reported as missing, want %v", got, c.want)
			}
		})
	}
}
