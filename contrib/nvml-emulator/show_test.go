package nvmlemulator_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestShowModes checks the output of show for whole GPUs, pending modes, clients and NVLinks.
func TestShowModes(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "2", "--board", "H100-80GB", "--mig", "off",
		"--nvlink", "0,1,2", "--seed", "7", "--swap-halves", "none")
	m.ctl("mig-mode", "1", "on")
	m.ctl("reset", "1")
	m.ctl("create", "1", "3g.20gb", "4")
	m.ctl("mig-mode", "0", "on")
	m.ctl("hold", "2")
	m.script([]string{"!mig-mode 2 on"})
	holder := m.cuda("0", "--memory", "300", "--seconds", "3600", "--print")
	m.running(holder)
	m.checkMemory(0, 300)
	show := m.ctl("show")
	for i := range 3 {
		show = strings.ReplaceAll(show, m.gpuUUID(i), "UUID")
	}
	show = strings.ReplaceAll(show, m.uuidOf(m.device(1), 2), "UUID")
	show = strings.ReplaceAll(show, fmt.Sprint(holder.Process.Pid), "PID")
	if want := `GPU 0 A100-40GB UUID MIG off (on after a reset)
  |whole GPU              |
  NVLinks to GPU 1 2
  300 of 40960 MiB
GPU 1 A100-40GB UUID MIG on
  |  |  |  |  |3g         |
  NVLinks to GPU 0 2
  GI  2 3g.20gb        4-7  0 of 19968 MiB
        CI 0 UUID
GPU 2 H100-80GB UUID MIG off (on is pending)  held
  |whole GPU              |
  NVLinks to GPU 0 1
  0 of 81559 MiB
process PID on GPU 0: 300 MiB
`; show != want {
		t.Errorf("show:\n%swant\n%s", show, want)
	}
	var state struct {
		GPUs []struct {
			MIG, Held  bool
			MIGPending bool `json:"mig_pending"`
			UsedMiB    int  `json:"used_mib"`
			NVLink     []int
		}
		Processes []struct{ GPU, GI, CI *int }
	}
	if err := json.Unmarshal([]byte(m.ctl("show", "--json")), &state); err != nil {
		t.Fatal(err)
	}
	if g := state.GPUs[0]; g.MIG || !g.MIGPending || g.UsedMiB != 300 || !slices.Equal(g.NVLink, []int{1, 2}) {
		t.Errorf("GPU 0: %+v", g)
	}
	if !state.GPUs[2].Held || state.GPUs[1].Held {
		t.Errorf("held: %+v", state.GPUs)
	}
	if p := state.Processes; len(p) != 1 || *p[0].GPU != 0 || p[0].GI != nil || p[0].CI != nil {
		t.Errorf("processes %+v", p)
	}
	m.check()
	m.script([]string{"!reboot"}) // a process uses GPU 0
}
