package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"caelum/internal/config"
	"caelum/internal/node/gpu"
)

// driverFiles describes the instances that the driver lists.
type driverFiles struct {
	// gpus holds the UUIDs of the GPUs whose instances the driver listed.
	gpus map[string]bool
	// files holds the capability files of all instances, by instanceKey, with their current owners and modes.
	files map[string][]CapFile
	// unmanaged holds the device files of the GPUs that the agent does not manage.
	unmanaged []UnmanagedGPU
}

// readDriverFiles reads the owners and modes of the capability files, and of the device files of the GPUs with the
// given indices.
func readDriverFiles(cfg config.Config, unmanaged map[int]bool) (driverFiles, error) {
	d := driverFiles{gpus: map[string]bool{}, files: map[string][]CapFile{}}
	caps := gpu.Caps{Dev: cfg.DeviceDir, Proc: "/proc"}
	hw, err := gpu.OpenNVML(cfg.NVMLLibrary, caps)
	if err != nil {
		return d, err
	}
	defer hw.Close()
	list, err := hw.GPUs()
	if err != nil {
		return d, err
	}
	for _, g := range list {
		path := filepath.Join(cfg.DeviceDir, fmt.Sprint("nvidia", g.Minor))
		if st, err := os.Stat(path); err == nil && unmanaged[g.Index] {
			d.unmanaged = append(d.unmanaged,
				UnmanagedGPU{g.Index, path, st.Mode(), st.Sys().(*syscall.Stat_t).Uid})
		}
		if g.Problem != "" && !g.Full {
			continue
		}
		found, err := hw.Instances(g.Index)
		if err != nil {
			return d, err
		}
		d.gpus[g.UUID] = true
		for _, in := range found {
			key := instanceKey(g.UUID, in.GI)
			d.files[key] = nil
			for _, path := range caps.Files(g.Minor, in) {
				c := CapFile{Path: path, Missing: true}
				if st, err := os.Stat(path); err == nil {
					c.Missing, c.Mode, c.Owner = false, st.Mode(), st.Sys().(*syscall.Stat_t).Uid
				} else if !errors.Is(err, fs.ErrNotExist) {
					return d, err
				}
				d.files[key] = append(d.files[key], c)
			}
		}
	}
	return d, nil
}
