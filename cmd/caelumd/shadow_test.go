package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/internal/config"
	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// files returns the names, modes and contents of all files in the given directories.
func files(t *testing.T, dirs ...string) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			all.WriteString(path + " " + info.Mode().String() + "\n")
			if info.Mode().IsRegular() {
				text, err := os.ReadFile(path)
				all.Write(text)
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// TestShadow runs a trial on a node whose MIG mode is off and whose slurmctld has no gres/mig. The trial must plan the
// jobs, and must change neither slurmctld nor the GPUs nor any file of the node.
func TestShadow(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 2, "--mig", "off")
	fake := slurmtest.New(slurmtest.Node{Name: "n1", Partitions: []string{"gpu"},
		Gres: slurm.GRESList{{Name: "gpu", Type: "a100", Count: 2}}})
	submit := func(gpus int) uint32 {
		t.Helper()
		id, err := fake.Submit(slurm.Job{Partition: "gpu", UID: 1001, NumNodes: 1,
			PerNode: slurm.GRESList{{Name: "gpu", Count: gpus}}})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	submit(1)
	submit(1)
	fake.Tick()
	submit(1)
	submit(2)
	fake.Before(func(c slurmtest.Call) error {
		if c.Op != "Nodes" && c.Op != "Queue" {
			t.Errorf("the trial called %v", c)
		}
		return nil
	})
	run := t.TempDir()
	cfg := config.Defaults()
	cfg.Node, cfg.RunDir, cfg.StateDir, cfg.DeviceDir = "n1", run, run, node.Dev
	dirs := []string{node.State, node.Dev, node.Proc, run}
	before := files(t, dirs...)
	cfg.DefaultProfile = "2g.10gb"
	var out bytes.Buffer
	if err := trial(t.Context(), &out, cfg, node.NVML, fake, fake.Now()); err != nil {
		t.Fatal(err)
	}
	if after := files(t, dirs...); after != before {
		t.Errorf("the trial changed files:\n%s\nbefore:\n%s", after, before)
	}
	const want = `2030-01-01 00:00:00  node n1, if Caelum managed it
GPU 0  NVIDIA A100-SXM4-40GB  (now: MIG mode is off; turn it on with "nvidia-smi -i 0 -mig 1")
  |2g.10gb============|2g.10gb============|.........|.........|.........|.........|
  2g.10gb  at 0  job 1 of user 1001 runs now
  2g.10gb  at 2  job 2 of user 1001 runs now
GPU 1  NVIDIA A100-SXM4-40GB  (now: MIG mode is off; turn it on with "nvidia-smi -i 1 -mig 1")
  |7g.40gb========================================================================|
  7g.40gb  at 0  job 3 of user 1001 would start now
free for further jobs: none
jobs that would wait: 1
reason for job 4: the job is the first in the queue that must wait: ` +
		`the GPUs have no room for 7g.40gb x2, and the time at which room becomes free is unknown
`
	if got := strings.ReplaceAll(out.String(), "`", `"`); got != want {
		t.Errorf("the trial printed\n%s\nwant\n%s", got, want)
	}
	// The comparison of the files detects a write to the GPUs.
	if err := node.Destroy(0, gpu.FullGI); err != nil || files(t, dirs...) == before {
		t.Errorf("the comparison does not detect a change of the MIG mode (%v)", err)
	}
}

// TestShadowFails tests the errors of a trial.
func TestShadowFails(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 1)
	fake := slurmtest.New(slurmtest.Node{Name: "n1", Partitions: []string{"gpu"}})
	for name, c := range map[string]struct{ node, profile, want string }{
		"no profile":      {"n1", "", "set --profile, for example to 2g.10gb, or default_profile"},
		"unknown profile": {"n1", "2g.20gb", "choose one of 1g.5gb, 1g.10gb, 2g.10gb"},
		"unknown node":    {"n2", "2g.10gb", "set the `node` key to the NodeName"},
	} {
		cfg := config.Defaults()
		cfg.Node, cfg.DefaultProfile = c.node, c.profile
		err := trial(t.Context(), io.Discard, cfg, node.NVML, fake, fake.Now())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
