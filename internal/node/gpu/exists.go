package gpu

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Exists implements Hardware. It queries only the instance's own GPU, and avoids nvmlDeviceGetHandleByUUID, which may
// initialize other GPUs (nvml.h). The driver answers by GPU instance id and compute instance id, because the library
// may keep a MIG device that another program has destroyed. The UUID of the MIG device shows whether another program
// has created an identical instance in its place.
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
	exists, err := d.exists(in)
	if errors.Is(err, ErrNotFound) {
		return false, nil // another program has destroyed the instance
	} else if err != nil {
		return false, fmt.Errorf("GPU %d: %w", gpu, err)
	}
	return exists, nil
}

func (d *device) exists(in Instance) (bool, error) {
	gi, ret := d.handle.GetGpuInstanceById(in.GI)
	if err := check(ret, "open a GPU instance"); err != nil {
		return false, err
	}
	now, _, err := d.placed(gi)
	if err != nil || now.Profile != in.Profile || now.Start != in.Start {
		return false, err
	}
	if err := d.caps.reach(d.minor, in.GI); err != nil {
		return false, err
	}
	for _, id := range in.CIs {
		_, ret := gi.GetComputeInstanceById(id)
		if err := check(ret, "open a compute instance"); err != nil {
			return false, err
		}
	}
	uuid, _, err := d.uuidAt(d.learned.rank(in.GI), in.GI)
	return err == nil && uuid == in.UUID, err
}

// Probe checks that the driver answers for every GPU, with few calls. It returns the errors of GPUs by their index.
func (n *NVML) Probe() (map[int]error, error) {
	count, ret := n.lib.DeviceGetCount()
	if err := check(ret, "count the GPUs"); err != nil {
		return nil, err
	}
	failed := map[int]error{}
	for i := range count {
		dev, ret := n.lib.DeviceGetHandleByIndex(i)
		if err := check(ret, "open the GPU"); err != nil {
			failed[i] = err
			continue
		}
		if _, _, ret := dev.GetMigMode(); ret != nvml.ERROR_NOT_SUPPORTED {
			if err := check(ret, "read the MIG mode"); err != nil {
				failed[i] = err
			}
		}
	}
	return failed, nil
}
