package clients

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// cdi runs nvidia-ctk cdi generate and returns the device files of each CDI device.
func (m *machine) cdi() map[string][]string {
	m.Helper()
	out := m.run("nvidia-ctk", "--quiet", "cdi", "generate", "--driver-root="+m.path("driver"), "--dev-root=/",
		"--mode=nvml", "--format=json", "--nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook")
	var spec struct {
		Devices []struct {
			Name  string
			Edits struct {
				Nodes []struct{ Path string } `json:"deviceNodes"`
			} `json:"containerEdits"`
		}
	}
	if err := json.Unmarshal([]byte(out), &spec); err != nil {
		m.Fatalf("%v\n%s", err, out)
	}
	files := map[string][]string{}
	for _, d := range spec.Devices {
		files[d.Name] = []string{}
		for _, node := range d.Edits.Nodes {
			files[d.Name] = append(files[d.Name], node.Path)
		}
		slices.Sort(files[d.Name])
	}
	return files
}

// TestCDI compares the device files that nvidia-ctk gives to a container with the rules for minor numbers: for a full
// GPU the file of the GPU, and for a MIG device also those of its GPU instance and its compute instance.
func TestCDI(t *testing.T) {
	eachModel(t, func(t *testing.T, b model) {
		m := newMachine(t, b, 3)
		m.ctl("mig-mode", "2", "off")
		m.ctl("reset", "2")
		smallest, double := b.profiles[0].name, ""
		for _, p := range b.profiles {
			if p.plain() && p.slices == 2 {
				double = p.name
			}
		}
		m.ctl("create", "0", double)
		m.ctl("create", "0", smallest)
		m.ctl("create", "1", smallest)
		m.ctl("create", "1", double)
		want := map[string][]string{"2": {"/dev/nvidia2"}}
		index := map[int]int{}
		for _, i := range m.instances() {
			gi, ci := i.minors()
			files := []string{
				fmt.Sprintf("/dev/nvidia%d", i.gpu),
				fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", gi),
				fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", ci),
			}
			slices.Sort(files)
			want[i.uuid] = files
			want[fmt.Sprintf("%d:%d", i.gpu, index[i.gpu])] = files
			index[i.gpu]++
		}
		if len(want) != 1+2*4 {
			t.Fatalf("the machine has %d MIG devices, want 4", (len(want)-1)/2)
		}
		got := m.cdi()
		for name, files := range want {
			if !slices.Equal(got[name], files) {
				t.Errorf("CDI device %s has the files %v, want %v", name, got[name], files)
			}
		}
	})
}
