package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

// confine writes the device list for the plugin, the `devices` file in the run directory. It lists the capabilities of
// every instance that can exist on this node, and those for MIG configuration and monitoring. In each job's cgroup, the
// plugin denies access to all of these devices except those of the job's lease. If Slurm does not put jobs into a
// devices cgroup, confine removes the list, and jobs are isolated from each other only by the owner and mode of the
// capability files.
func (a *Agent) confine(c slurm.Config) error {
	path := filepath.Join(a.cfg.RunDir, "devices")
	if !c.RelativeIndex() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("couldn't remove the device list: %w", err)
		}
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "caelum-devices 1\ncgroup %s\n", cmp.Or(c.Values["CgroupMountpoint"], "/sys/fs/cgroup"))
	for _, card := range a.node.Cards {
		all, err := a.possible(card)
		if err != nil {
			return fmt.Errorf("couldn't list the devices of GPU %d: %w", card.Index, err)
		}
		writeDevices(&b, all)
	}
	general, err := a.caps.MIGDevices()
	if err != nil {
		return fmt.Errorf("couldn't list the devices for MIG configuration and monitoring: %w", err)
	}
	writeDevices(&b, general)
	b.WriteString("end\n")
	if err := writeFile(path, b.String(), 0o600); err != nil {
		return fmt.Errorf("couldn't write the device list: %w", err)
	}
	return nil
}

// ownDevices returns the capabilities of a lease's slices, which the job's cgroup must allow.
func (a *Agent) ownDevices(l api.Lease) ([]gpu.Device, error) {
	var all []gpu.Device
	for _, s := range l.Slices {
		c := a.node.Cards[s.GPU]
		in := a.node.Held(l.Job, s)
		if in == nil {
			continue // the instance no longer exists; compareGPUs has logged the loss
		}
		own, err := a.caps.Devices(c.Minor, a.node.HardwareOf(in))
		if err != nil {
			return nil, fmt.Errorf("couldn't find the capabilities of %s: %w", s.UUID, err)
		}
		all = append(all, own...)
		if a.node.Full() && in.GI != gpu.FullGI {
			d, err := a.caps.Device(c.Minor)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(all, d) { // several slices of the lease may be on the same GPU
				all = append(all, d)
			}
		}
	}
	return all, nil
}

func writeDevices(b *strings.Builder, devices []gpu.Device) {
	for _, d := range devices {
		fmt.Fprintf(b, "device %v\n", d)
	}
}
