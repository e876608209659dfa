package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/sirupsen/logrus"
)

// unserved returns a new agent without calling Run. No other agent may be running in the world.
func (w *world) unserved() *Agent {
	w.t.Helper()
	log := logrus.New()
	log.SetOutput(&w.log)
	a, err := w.newAgent(log)
	if err != nil {
		w.t.Fatal(err)
	}
	a.node.Now = w.fake.Now
	return a
}

// TestUnfinishedFilesRemoved checks that an agent removes the temporary files of an agent that was killed during a
// write, but not the lease files.
func TestUnfinishedFilesRemoved(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startNow("1g.5gb:1")
	w.lease(id)
	w.stop()
	left := []string{filepath.Join(w.cfg.RunDir, ".new-1"), filepath.Join(w.cfg.RunDir, "jobs", ".new-2345")}
	for _, path := range left {
		if err := os.WriteFile(path, []byte("caelum-lease 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that the agent starts and then stops
	if err := w.unserved().Run(ctx); err != nil {
		t.Fatal(err)
	}
	w.start()
	for _, path := range left {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	w.leaseFile(id) // fails the test if the file is missing
}
