package doctor

import (
	"io/fs"
	"os"

	"caelum/internal/agent"
	"caelum/internal/slurm"
	"caelum/internal/wake"
)

// Wake is the wake port of this host and its key file.
type Wake struct {
	Port int // 0: none
	Path string
	// Info is the key file's; Err is why there is none.
	Info fs.FileInfo
	Err  error
}

func readWake(cfg agent.Config) Wake {
	info, err := os.Lstat(cfg.WakeKey)
	return Wake{Port: cfg.WakePort, Path: cfg.WakeKey, Info: info, Err: err}
}

// wakeKey judges the key as agent and watcher do, whose log has what can be seen only by reading it.
func wakeKey(f *Facts) []Finding {
	if f.Wake.Port == 0 {
		return nil
	}
	owners := wakeOwners(f.Config, f.Controller)
	err := f.Wake.Err
	if err == nil {
		_, err = wake.Locate(f.Wake.Path, owners...)
	}
	if err == nil {
		err = wake.CheckKey(f.Wake.Path, f.Wake.Info, owners...)
	}
	if err != nil {
		return []Finding{concern(
			"the wake port is not opened, jobs wait up to poll_interval longer: "+err.Error(),
			"(umask 077; head -c 32 /dev/urandom >"+f.Wake.Path+"), the same file on slurmctld's host (owner SlurmUser) and "+
				"on every GPU node (owner root), mode 0400; then restart caelumd and caelum-watch",
		)}
	}
	return nil
}

// wakeOwners are the users whom the key file may belong to: SlurmUser, and root where the agent reads it.
func wakeOwners(c slurm.Config, controller bool) (owners []uint32) {
	uid, known := c.SlurmUser()
	if !controller || !known {
		owners = append(owners, 0)
	}
	if known {
		owners = append(owners, uid)
	}
	return owners
}
