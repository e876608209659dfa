//go:build e2e

package e2efaults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// TestAwayDuringAPass stops slurmctld after an agent's read and before its next write, and restarts it while scontrol
// is still trying to write. A job that waits for the written slice must not start before slurmd has registered, because
// it would get no device. A pause extends the time between the read and the write, and a slow epilog keeps the job off
// the node until slurmctld is stopped.
func TestAwayDuringAPass(t *testing.T) {
	epilog := filepath.Join(t.TempDir(), "epilog")
	if err := os.WriteFile(epilog, []byte("#!/bin/sh\nsleep 4\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const pause = 2 * time.Second // a pass contains two pauses
	s := start(t, cluster.Options{
		Nodes: 1, GPUs: 1, Conf: []string{"Epilog=" + epilog},
		AgentEnv: []string{"CAELUM_FAILPOINT_PAUSE=" + pause.String()},
	})
	name, rounds := func(n int) string { return fmt.Sprint("run", n) }, atLeastOne(t, "FAULTS_ROUNDS", 3)
	id := s.Submit("./hold "+name(0), "--gres=mig:7g.40gb:1")
	for n := 1; n <= rounds; n++ {
		s.Running(id)
		next := s.Submit("./hold "+name(n), "--gres=mig:7g.40gb:1")
		time.Sleep(3 * pause) // within three pauses, a pass has read both jobs
		s.End(name(n - 1))
		s.Within("job "+id+" ends", func() bool { return strings.HasPrefix(s.Lives(id), "COMPLET") })
		time.Sleep(3 * pause / 2) // within one and a half pauses, the next pass has read that the GPU has room
		if err := s.StopUnit("slurmctld"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * pause / 2)
		if err := s.StartUnit("slurmctld"); err != nil {
			t.Fatal(err)
		}
		id = next
	}
	s.Running(id)
	s.End(name(rounds))
	s.Completed(id)
	s.NoneDrained()
	s.NothingLeft()
}
