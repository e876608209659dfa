package metrics

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"caelum/internal/trust"
)

// fileInterval is the time between writes of the text file. Prometheus usually scrapes a target every 15 to 60 s.
const fileInterval = 15 * time.Second

// fileMode is the mode of the text file. All users can read the file, because node_exporter does not run as root.
const fileMode = 0o644

// WriteFiles writes the metrics to the file at path immediately, and then every fileInterval until ctx is done. It
// calls report with the result of each write, which is nil if the write succeeded.
func (m *Metrics) WriteFiles(ctx context.Context, path string, report func(error)) {
	tick := time.NewTicker(fileInterval)
	defer tick.Stop()
	for {
		report(m.WriteFile(path))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// WriteFile atomically replaces the file at path. The file belongs to this process's user and group, which are root
// except in tests, and has the mode fileMode. WriteFile returns an error if another user can change the directory.
func (m *Metrics) WriteFile(path string) error {
	if err := m.writeFile(path); err != nil {
		return fmt.Errorf("couldn't write the metrics file: %w", err)
	}
	return nil
}

func (m *Metrics) writeFile(path string) error {
	if err := trust.Directory(path); err != nil {
		return err
	}
	text, err := m.text()
	if err != nil {
		return err
	}
	// The name of the temporary file is always the same, so that a killed agent leaves at most one. node_exporter
	// ignores names that do not end in .prom.
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	// The owner and the mode must not depend on a setgid directory or the umask.
	err = errors.Join(err, f.Chown(os.Geteuid(), os.Getegid()), f.Chmod(fileMode), f.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		os.Remove(temporary)
	}
	return err
}
