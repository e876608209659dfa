package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/internal/node/gpu/gputest"
)

// TestObserveChangesNothing runs observe without slurmctld. It must create its file and leave the GPUs and all files of
// the node unchanged.
func TestObserveChangesNothing(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 2, "--mig", "off")
	dir := t.TempDir()
	config, output := filepath.Join(dir, "caelum.yaml"), filepath.Join(dir, "observed.jsonl")
	text := "node: n1\nsample_interval: 200ms\nnvml_library: " + filepath.Join(node.Build(), "libnvidia-ml.so.1") +
		"\nlog_level: error\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_CONF", filepath.Join(dir, "none"))
	before := files(t, node.State, node.Dev, node.Proc)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- runObserve(ctx, config, output) }()
	for info, err := os.Stat(output); err != nil || info.Mode() != 0o600; info, err = os.Stat(output) {
		select {
		case err := <-ended:
			t.Fatal("observe ended: ", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	time.Sleep(time.Second) // some samples
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if after := files(t, node.State, node.Dev, node.Proc); after != before {
		t.Errorf("observe changed files:\n%s\nbefore:\n%s", after, before)
	}
	if err := os.WriteFile(config, []byte("node: n1\nsample_interval: 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := runObserve(t.Context(), config, output)
	if err == nil || !strings.Contains(err.Error(), "sample_interval is 0") {
		t.Error(err)
	}
}
