package gpu

import (
	"errors"
	"fmt"
)

// Exists implements Hardware. It queries only the instance's own GPU, and avoids nvmlDeviceGetHandleByUUID, which may
// initialize other GPUs (nvml.h).
func (n *NVML) Exists(gpu int, in Instance) (bool, error) {
	d, err := n.device(gpu)
	if err != nil {
		return false, err
	}
	if in.GI == FullGI {
		full, err := d.isFull()
		if err != nil {
			err = fmt.Errorf("GPU %d: %w", gpu, err)
		}
		return full, err
	}
	dev, err := (&meter{uuid: in.UUID}).find(d.handle)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("GPU %d: %w", gpu, err)
	}
	gi, ret := dev.GetGpuInstanceId()
	err = check(ret, "read a MIG device")
	if errors.Is(err, ErrNotFound) {
		return false, nil // another program may have destroyed the instance
	}
	return err == nil && gi == in.GI, err
}
