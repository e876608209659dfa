package notify

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"caelum/internal/slurm"
)

// Auth authenticates the datagrams that a host sends and receives.
type Auth struct {
	Key      Key         // the key from the key file; if nil, munge authenticates datagrams
	Munge    Credentials // nil with a key
	Receiver uint32      // the user ID of the processes that receive this host's datagrams
	Senders  []uint32    // the user IDs whose datagrams this host accepts
}

// AgentAuth returns how an agent authenticates datagrams on a cluster with the given configuration: with the key file
// at path if it exists, and otherwise with munge. The key file may also belong to SlurmUser, because the watcher might
// be running on the same host. The error includes a remedy.
func AgentAuth(path string, c slurm.Config) (Auth, error) {
	owners := []uint32{uint32(os.Geteuid())}
	uid, known := c.SlurmUser()
	if known {
		owners = append(owners, uid)
	}
	a, err := newAuth(path, c, owners, Auth{Receiver: uid, Senders: []uint32{0, uid}})
	if err == nil && a.Key == nil && !known {
		err = errors.New("slurmctld's configuration does not contain SlurmUser's ID")
	}
	return a, err
}

// WatcherAuth is like AgentAuth, but for the watcher. Agents run as root.
func WatcherAuth(path string, c slurm.Config) (Auth, error) {
	return newAuth(path, c, []uint32{uint32(os.Geteuid())}, Auth{Receiver: 0, Senders: []uint32{0}})
}

func newAuth(path string, c slurm.Config, owners []uint32, a Auth) (Auth, error) {
	if hasKey(path) {
		key, err := readKey(path, owners...)
		return Auth{Key: key}, err
	}
	if err := CheckMunge(c); err != nil {
		return Auth{}, fmt.Errorf("%w; %s", err, remedy(fs.ErrNotExist, path))
	}
	m := &Munge{}
	for word := range strings.SplitSeq(c.Values["AuthInfo"], ",") {
		if socket, ok := strings.CutPrefix(strings.TrimSpace(word), "socket="); ok {
			m.Socket = socket
		}
	}
	a.Munge = m
	return a, nil
}

// hasKey reports whether there is a key file, which may be invalid.
func hasKey(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// CheckMunge returns an error if Slurm does not use munge, so that notifications need a key file.
func CheckMunge(c slurm.Config) error {
	if auth := c.Values["AuthType"]; auth != "auth/munge" {
		return fmt.Errorf("without a key file, notifications need AuthType=auth/munge, but AuthType is %q", auth)
	}
	return nil
}
