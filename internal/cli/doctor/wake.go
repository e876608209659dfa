package doctor

import (
	"io/fs"
	"os"

	"caelum/internal/config"
	"caelum/internal/controller/notify"
	"caelum/internal/slurm"
)

// Wake describes this host's wake port and key file.
type Wake struct {
	Port int // 0 if no wake port is set
	Path string
	// Info describes the key file. Err is the error from reading it.
	Info fs.FileInfo
	Err  error
}

func readWake(cfg config.Config) Wake {
	info, err := os.Lstat(cfg.WakeKey)
	return Wake{Port: cfg.WakePort, Path: cfg.WakeKey, Info: info, Err: err}
}

// wakeKey checks the path, owner and mode of the key file in the same way as the agent and the watcher do. It does not
// read the key itself, because the agent and the watcher log an invalid key.
func wakeKey(f *Facts) []Finding {
	if f.Wake.Port == 0 {
		return nil
	}
	owners := wakeOwners(f.Config, f.Controller)
	err := f.Wake.Err
	if err == nil {
		_, err = notify.Locate(f.Wake.Path, owners...)
	}
	if err == nil {
		err = notify.CheckKey(f.Wake.Path, f.Wake.Info, owners...)
	}
	if err != nil {
		return []Finding{warning(
			"the wake port is not open, so jobs wait up to poll_interval longer: "+err.Error(),
			"create the key with `(umask 077; head -c 32 /dev/urandom >"+f.Wake.Path+")`; copy the key to "+
				"slurmctld's host (owner SlurmUser) and to every GPU node (owner root) with mode 0400; restart "+
				"caelumd and caelum-watch",
		)}
	}
	if f.Agent.Deaf != "" {
		return []Finding{warning(
			"the agent could not open the wake port, so jobs wait up to poll_interval longer: "+f.Agent.Deaf,
			"end the program that uses the port (`ss -ulnp`), or set another wake_port on all hosts; the agent tries "+
				"to open the port at least once a minute",
		)}
	}
	return nil
}

// wakeOwners returns the users who may own the key file. On a host other than a GPU node, only SlurmUser may own it. On
// a GPU node, or if SlurmUser is unknown, root may own it too.
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
