package gpu

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Linked implements Hardware. It queries the P2P status, because the driver also reports P2P over NVLink for GPUs
// connected by NVSwitches, for which nvmlDeviceGetNvLinkRemotePciInfo returns the PCI address of a switch. While MIG
// mode is on, the driver reports a GPU as having no NVLinks (kmigmgrIsMIGNvlinkP2PSupported in NVIDIA's open kernel
// modules).
func (n *NVML) Linked(a, b int) (bool, error) {
	linked, err := n.linked(a, b)
	if err != nil {
		return false, fmt.Errorf("couldn't read the NVLinks between GPU %d and GPU %d: %w", a, b, err)
	}
	return linked, nil
}

func (n *NVML) linked(a, b int) (bool, error) {
	var handles [2]nvml.Device
	for i, g := range []int{a, b} {
		d, err := n.device(g)
		if err != nil {
			return false, err
		}
		if full, err := d.isFull(); err != nil {
			return false, err
		} else if !full {
			return false, fmt.Errorf("MIG mode of GPU %d is on", g)
		}
		handles[i] = d.handle
	}
	if err := n.lib.Extensions().LookupSymbol("nvmlDeviceGetP2PStatus"); err != nil {
		return false, errors.New("the driver does not provide nvmlDeviceGetP2PStatus")
	}
	status, ret := handles[0].GetP2PStatus(handles[1], nvml.P2P_CAPS_INDEX_NVLINK)
	return status == nvml.P2P_STATUS_OK, check(ret, "read the P2P status")
}
