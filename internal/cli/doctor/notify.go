package doctor

import (
	"errors"
	"io/fs"
	"os"

	"caelum/internal/config"
	"caelum/internal/controller/notify"
	"caelum/internal/slurm"
)

// Notify describes this host's notification port and key file, which need not exist.
type Notify struct {
	Port int // 0 if this host opens no notification port
	Path string
	// Info describes the key file. Err is the error from reading it.
	Info fs.FileInfo
	Err  error
}

func readNotify(cfg config.Config) Notify {
	info, err := os.Lstat(cfg.NotifyKey)
	return Notify{Port: cfg.NotifyPort, Path: cfg.NotifyKey, Info: info, Err: err}
}

// notifyPort checks that notifications can be authenticated and that the agent has opened the port. It checks the path,
// owner and mode of a key file in the same way as the agent and the watcher do. It does not read the key itself,
// because the agent and the watcher log an invalid key.
func notifyPort(f *Facts) []Finding {
	if f.Notify.Port == 0 {
		return nil
	}
	if errors.Is(f.Notify.Err, fs.ErrNotExist) {
		if err := notify.CheckMunge(f.Config); err != nil {
			return []Finding{unopened(f.Notify.Path, err)}
		}
	} else if err := keyFile(f); err != nil {
		return []Finding{unopened(f.Notify.Path, err)}
	}
	if f.Agent.Deaf != "" {
		return []Finding{warning(
			"the agent could not open the wake port, so jobs wait up to poll_interval longer: "+f.Agent.Deaf,
			"end the program that uses the port (`ss -ulnp`) or, if it is caelum-watch, give it another wake_address; "+
				"or set another wake_port on all hosts. The agent tries to open the port at least once a minute",
		)}
	}
	return nil
}

func keyFile(f *Facts) error {
	owners := keyOwners(f.Config, f.Controller)
	if f.Notify.Err != nil {
		return f.Notify.Err
	}
	if _, err := notify.Locate(f.Notify.Path, owners...); err != nil {
		return err
	}
	return notify.CheckKey(f.Notify.Path, f.Notify.Info, owners...)
}

func unopened(path string, why error) Finding {
	return warning("the wake port is not open, so jobs wait up to poll_interval longer: "+why.Error(),
		"create the key with `(umask 077; head -c 32 /dev/urandom >"+path+")`; copy the key to slurmctld's host "+
			"(owner SlurmUser) and to every GPU node (owner root) with mode 0400; restart caelumd and caelum-watch; "+
			"or set wake_port to 0 if no watcher runs")
}

// keyOwners returns the users who may own the key file. On a host other than a GPU node, only SlurmUser may own it. On
// a GPU node, or if SlurmUser is unknown, root may own it too.
func keyOwners(c slurm.Config, controller bool) (owners []uint32) {
	uid, known := c.SlurmUser()
	if !controller || !known {
		owners = append(owners, 0)
	}
	if known {
		owners = append(owners, uid)
	}
	return owners
}
