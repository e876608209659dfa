package gpu

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/core/mig"
)

// Create implements Hardware.
func (n *NVML) Create(gpu int, profile string, start int) (Instance, error) {
	d, err := n.device(gpu)
	if err != nil {
		return Instance{}, err
	}
	in, err := d.create(profile, start)
	if err != nil {
		return in, fmt.Errorf("couldn't create %s at start %d of GPU %d: %w", profile, start, gpu, err)
	}
	return in, nil
}

func (d *device) create(profile string, start int) (Instance, error) {
	if profile == mig.Full {
		if err := d.switchTo(nvml.DEVICE_MIG_DISABLE); err != nil {
			return Instance{}, err
		}
		return d.full(), nil
	}
	info, ok := d.profiles[profile]
	if !ok {
		return Instance{}, fmt.Errorf("profile %w", ErrNotFound)
	}
	place, ok := d.placements[profile][start]
	if !ok {
		return Instance{}, fmt.Errorf("placement %w", ErrNotFound)
	}
	var gi nvml.GpuInstance
	err := retryInUse(func() (err error) {
		var ret nvml.Return
		gi, ret = d.handle.CreateGpuInstanceWithPlacement(&info, &place)
		return check(ret, "create the GPU instance")
	})
	if err != nil {
		return Instance{}, err
	}
	in, made, err := d.placed(gi)
	if err == nil {
		// nvidia-modprobe creates the file readable by all users, or nothing creates it. The agent restricts it again
		// together with the file of the compute instance, and reports an error.
		if d.caps.Dev != "" {
			d.caps.Make(d.minor, Instance{GI: in.GI})
		}
		err = d.createCI(gi, made.ProfileId, &in)
	}
	if err == nil {
		return in, nil
	}
	err = fmt.Errorf("the new GPU instance is unusable: %v", err) // %v: ErrNoRoom would mean that nothing was created
	if left := d.destroy(gi, in.GI); left != nil {
		in.Profile, in.Start, in.Size = profile, start, int(place.Size)
		return in, errors.Join(err, left)
	}
	return Instance{}, err
}

// Remake implements Hardware.
func (n *NVML) Remake(gpu int, in Instance) (Instance, error) {
	d, err := n.device(gpu)
	if err != nil {
		return Instance{}, err
	}
	made, err := d.remake(in)
	if err != nil {
		return Instance{}, fmt.Errorf("couldn't re-create the compute instance of GPU instance %d of GPU %d: %w",
			in.GI, gpu, err)
	}
	return made, nil
}

func (d *device) remake(in Instance) (Instance, error) {
	gi, ret := d.handle.GetGpuInstanceById(in.GI)
	if err := check(ret, "open the GPU instance"); err != nil {
		return Instance{}, err
	}
	made, info, err := d.placed(gi)
	if err != nil {
		return Instance{}, err
	}
	if made.Profile != in.Profile || made.Start != in.Start {
		return Instance{}, fmt.Errorf("GPU instance %w", ErrNotFound)
	}
	if err := d.caps.reach(d.minor, in.GI); err != nil {
		return Instance{}, err
	}
	ids := in.CIs
	if len(ids) == 0 {
		ids = []int{0}
	}
	for _, id := range ids {
		if err := destroyCI(gi, id); err != nil {
			return Instance{}, err
		}
	}
	d.learned.set(in.GI, 0)
	if err := d.createCI(gi, info.ProfileId, &made); err != nil {
		return Instance{}, fmt.Errorf("%v", err) // %v: ErrInUse would mean that the compute instance still exists
	}
	return made, nil
}

// Destroy implements Hardware.
func (n *NVML) Destroy(gpu, gi int) error {
	d, err := n.device(gpu)
	if err != nil {
		return err
	}
	if gi == FullGI {
		if err := d.switchTo(nvml.DEVICE_MIG_ENABLE); err != nil {
			return fmt.Errorf("GPU %d: %w", gpu, err)
		}
		return nil
	}
	handle, ret := d.handle.GetGpuInstanceById(gi)
	err = check(ret, "open the GPU instance")
	if err == nil {
		err = d.destroy(handle, gi)
	}
	if err != nil {
		return fmt.Errorf("couldn't destroy GPU instance %d of GPU %d: %w", gi, gpu, err)
	}
	return nil
}

// destroy destroys a GPU instance and its compute instances. It first assumes that it has at most the compute instance
// that Caelum creates, whose id is always 0.
func (d *device) destroy(gi nvml.GpuInstance, id int) error {
	if err := d.caps.reach(d.minor, id); err != nil {
		return err
	}
	if err := destroyCI(gi, 0); err != nil {
		return err
	}
	err := check(gi.Destroy(), "destroy the GPU instance")
	if errors.Is(err, ErrInUse) {
		for ci := 1; ci < maxCI; ci++ {
			if err := destroyCI(gi, ci); err != nil {
				return err
			}
		}
		err = retryInUse(func() error { return check(gi.Destroy(), "destroy the GPU instance") })
	}
	if err == nil {
		d.learned.mu.Lock()
		delete(d.learned.cis, id)
		d.learned.mu.Unlock()
	}
	return err
}
