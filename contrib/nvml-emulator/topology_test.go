package nvmlemulator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// TestNVLink checks for several values of --nvlink which pairs of four GPUs NVML reports as connected by NVLinks.
func TestNVLink(t *testing.T) {
	for _, c := range []struct{ nvlink, pairs string }{
		{"", ""},
		{"all", "0-1 0-2 0-3 1-2 1-3 2-3"},
		{"0,1;2,3", "0-1 2-3"},
		{"0,1,3", "0-1 0-3 1-3"},
		{"3,0;0,1", "0-1 0-3"},
		{"2", ""},
	} {
		t.Run(c.nvlink, func(t *testing.T) {
			init := []string{"--board", "A100-40GB", "--gpus", "4", "--mig", "off"}
			if c.nvlink != "" {
				init = append(init, "--nvlink", c.nvlink)
			}
			m := newMachine(t, init...)
			if got := m.nvlinks(4); got != c.pairs {
				t.Errorf("pairs %q, want %q", got, c.pairs)
			}
		})
	}
}

// nvlinks returns the pairs among the first n GPUs that are connected by NVLinks, for example "0-1 2-3".
func (m *machine) nvlinks(n int) string {
	m.Helper()
	var pairs []string
	for a := range n {
		for b := range n {
			if a == b {
				continue
			}
			status, ret := m.device(a).GetP2PStatus(m.device(b), nvml.P2P_CAPS_INDEX_NVLINK)
			m.want(ret, nvml.SUCCESS, "GetP2PStatus")
			back, ret := m.device(b).GetP2PStatus(m.device(a), nvml.P2P_CAPS_INDEX_NVLINK)
			m.want(ret, nvml.SUCCESS, "GetP2PStatus")
			if status != back {
				m.Errorf("%d to %d: %v, but %v in the other direction", a, b, status, back)
			}
			if a < b && status == nvml.P2P_STATUS_OK {
				pairs = append(pairs, fmt.Sprintf("%d-%d", a, b))
			}
		}
	}
	return strings.Join(pairs, " ")
}

// TestNVLinkWithMIG checks that a GPU with MIG mode on has no P2P, and that a change of the mode does not affect the
// P2P of other GPUs.
func TestNVLinkWithMIG(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "3", "--mig", "off", "--nvlink", "all")
	m.want(m.migOn(m.device(1)), nvml.SUCCESS, "SetMigMode")
	if got := m.nvlinks(3); got != "0-2" {
		t.Errorf("pairs with MIG on for GPU 1: %q", got)
	}
	_, ret := m.device(1).SetMigMode(off)
	m.want(ret, nvml.SUCCESS, "SetMigMode")
	if got := m.nvlinks(3); got != "0-1 0-2 1-2" {
		t.Errorf("pairs with MIG off: %q", got)
	}
	a, b := m.device(0), m.device(1)
	for index, want := range map[nvml.GpuP2PCapsIndex]nvml.GpuP2PStatus{
		nvml.P2P_CAPS_INDEX_READ: nvml.P2P_STATUS_OK, nvml.P2P_CAPS_INDEX_PCI: nvml.P2P_STATUS_NOT_SUPPORTED,
	} {
		if status, ret := a.GetP2PStatus(b, index); ret != nvml.SUCCESS || status != want {
			t.Errorf("index %d: %v, %v", index, status, ret)
		}
	}
	_, ret = a.GetP2PStatus(b, nvml.P2P_CAPS_INDEX_UNKNOWN)
	m.want(ret, nvml.ERROR_INVALID_ARGUMENT, "an unknown index")
	_, ret = a.GetP2PStatus(a, nvml.P2P_CAPS_INDEX_NVLINK)
	m.want(ret, nvml.ERROR_INVALID_ARGUMENT, "a GPU with itself")
	m.ctl("lose", "1")
	_, ret = a.GetP2PStatus(b, nvml.P2P_CAPS_INDEX_NVLINK)
	m.want(ret, nvml.ERROR_GPU_IS_LOST, "a lost GPU")
}
