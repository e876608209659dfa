package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu/gputest"
	"caelum/internal/node/qualify"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// controller adds JobsOn to the fake slurmctld.
type controller struct{ *slurmtest.Fake }

func (c controller) JobsOn(ctx context.Context, node string) ([]slurm.Job, error) {
	jobs, err := c.Jobs(ctx)
	return slurm.On(jobs, node), err
}

// TestDrained checks that qualify refuses a node that is not drained or has a job.
func TestDrained(t *testing.T) {
	fake := slurmtest.New(slurmtest.Node{Name: "n1", Partitions: []string{"gpu"},
		Gres: slurm.GRESList{{Name: "gpu", Type: "a100", Count: 2}}})
	refused := func(want string) {
		t.Helper()
		if err := drained(t.Context(), controller{fake}, "n1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	refused("node n1 is not drained; run `scontrol update NodeName=n1 State=DRAIN Reason=qualify`")
	job := slurm.Job{Partition: "gpu", UID: 1001, NumNodes: 1, PerNode: slurm.GRESList{{Name: "gpu", Count: 1}}}
	id, err := fake.Submit(job)
	if err != nil {
		t.Fatal(err)
	}
	fake.Tick()
	if err := fake.Drain("n1", "test"); err != nil {
		t.Fatal(err)
	}
	refused("is on node n1; wait until the node has no jobs")
	if err := fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	if err := drained(t.Context(), controller{fake}, "n1"); err != nil {
		t.Errorf("a drained node without jobs: %v", err)
	}
	err = drained(t.Context(), controller{fake}, "n2")
	if err == nil || !strings.Contains(err.Error(), "--without-slurm") {
		t.Errorf("an unknown node: %v", err)
	}
}

// TestQualify runs the command on an emulated node, and checks its exit statuses.
func TestQualify(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	node := gputest.New(t, "A30-24GB", 1)
	node.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "caelum.yaml")
	text := "run_dir: " + dir + "\nstate_dir: " + dir + "\ndevice_dir: " + node.Dev + "\nnvml_library: " +
		filepath.Join(node.Build(), "libnvidia-ml.so.1") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	check := func(want int, args ...string) string {
		t.Helper()
		out, err := run(t, append([]string{"qualify", "--config", config}, args...)...)
		got := statusError{}
		if err != nil && !errors.As(err, &got) || got.status != want {
			t.Errorf("qualify %v returned %v, want status %d\n%s", args, err, want, out)
		}
		return out
	}
	check(exitRefused, "--unknown")
	check(exitRefused) // slurmctld does not exist
	file := filepath.Join(dir, "node.json")
	out := check(0, "--read-only", "--json", file)
	if !strings.Contains(out, "\nA24  holds") || !strings.Contains(out, "\nverdict: undecided") {
		t.Errorf("qualify printed\n%s", out)
	}
	if data, err := os.ReadFile(file); err != nil || !bytes.Contains(data, []byte(`"kind": "lgip"`)) {
		t.Errorf("the record is %.100q (%v)", data, err)
	}
	other := filepath.Join(dir, "other")
	if err := errors.Join(os.Remove(file), os.Symlink(other, file)); err != nil {
		t.Fatal(err)
	}
	check(0, "--read-only", "--json", file)
	if _, err := os.Lstat(other); err == nil {
		t.Error("the record was written through a symbolic link")
	}
	theirs := filepath.Join(t.TempDir(), "program")
	if err := errors.Join(os.WriteFile(theirs, nil, 0o755), os.Chown(theirs, 20001, 20001)); err != nil {
		t.Fatal(err)
	}
	check(exitRefused, "--without-slurm", "--cuda", theirs)
	listener, err := net.Listen("unix", filepath.Join(dir, api.RootSocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	check(exitRefused, "--without-slurm")
}

// TestQualifyFractions checks that the command passes the fractions key on.
func TestQualifyFractions(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	node := gputest.New(t, "L40S-48GB", 1)
	node.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "caelum.yaml")
	text := "run_dir: " + dir + "\nstate_dir: " + dir + "\ndevice_dir: " + node.Dev + "\nfractions: {l40s: 4}\n" +
		"nvml_library: " + filepath.Join(node.Build(), "libnvidia-ml.so.1") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "qualify", "--config", config, "--without-slurm")
	want := "the NVIDIA driver 595.45.04 is older than R615"
	if err != nil || !strings.Contains(out, "\nF1   differs") || !strings.Contains(out, want) {
		t.Errorf("qualify returned %v and printed\n%s", err, out)
	}
}

// TestConclude checks the exit statuses of the results that an emulated node cannot have.
func TestConclude(t *testing.T) {
	for want, err := range map[int]error{
		exitRefused:     errors.New("no driver"),
		exitNotRestored: errors.Join(qualify.ErrLeft, errors.New("in use")),
	} {
		var got statusError
		if !errors.As(conclude(&bytes.Buffer{}, "", nil, err), &got) || got.status != want {
			t.Errorf("%v: status %d, want %d", err, got.status, want)
		}
	}
	rep := &qualify.Report{Rows: []qualify.Row{{ID: "A1", Result: qualify.Differs, Blocks: true}}}
	for want, err := range map[int]error{exitUnusable: nil, exitIncomplete: errors.New("interrupted")} {
		var got statusError
		if !errors.As(conclude(&bytes.Buffer{}, "", rep, err), &got) || got.status != want {
			t.Errorf("%v: status %d, want %d", err, got.status, want)
		}
	}
}
