package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

// small mounts a file system of the given size on a directory. fill fills it up, and room frees the space again.
func small(t *testing.T, dir, size string) (fill, room func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mount := exec.Command("mount", "-t", "tmpfs", "-o", "mode=700,size="+size, "tmpfs", dir)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", "-l", dir).Run() })
	filler := filepath.Join(dir, "filler")
	fill = func() {
		f, err := os.OpenFile(filler, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	return fill, func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
}

// starting returns a world, and a function that runs the prolog of a job.
func starting(t *testing.T) (*world, func(slurm.Job) (*api.Lease, error)) {
	w := newWorld(t, 1)
	w.fake.Prolog(nil)
	return w, func(j slurm.Job) (*api.Lease, error) {
		return w.agent.Lease(
			context.Background(),
			j.ID,
			api.LeaseRequest{Restart: j.Restarts, UID: 20001, GID: 20001, Slots: []int{0}},
		)
	}
}

// notNow checks that the error asks the plugin to repeat the call, and that its message contains the given parts.
func notNow(t *testing.T, err error, parts ...string) {
	t.Helper()
	if code := api.CodeOf(err); err == nil || code != 503 {
		t.Errorf("code %d, %v", code, err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not contain %q", err, part)
		}
	}
}

// whole checks that no instance is foreign or stuck, that the emulator finds no inconsistency, and that no intents
// are left in the ledger.
func (w *world) whole() {
	w.t.Helper()
	if err := w.agent.compareGPUs(); err != nil {
		w.t.Error(err)
	}
	status, _ := w.agent.Status(context.Background())
	for _, in := range status.GPUs[0].Instances {
		if in.State == "foreign" || in.State == "stuck" {
			w.t.Errorf("%+v", in)
		}
	}
	w.node.Emulator(w.t, "check")
	if intents, err := w.agent.ledger.Intents(); err != nil || len(intents) > 0 {
		w.t.Errorf("intents %v, %v", intents, err)
	}
}

// TestStateDirectoryFull checks that the agent asks the prolog and the epilog to repeat their calls while the state
// directory is full. The error must name the directory. The agent must neither requeue nor refuse the job, which must
// start once the directory has free space.
func TestStateDirectoryFull(t *testing.T) {
	w, prolog := starting(t)
	w.stop()
	fill, room := small(t, w.cfg.StateDir, "512k")
	w.start()
	first := w.startNow("1g.5gb:1")
	j1, _ := w.fake.Job(context.Background(), first)
	if _, err := prolog(j1); err != nil {
		t.Fatal(err)
	}
	id := w.startNow("3g.20gb:1")
	j, _ := w.fake.Job(context.Background(), id)
	w.filled(fill)
	for range 3 {
		_, err := prolog(j)
		notNow(t, err, "no space left", "make room in "+w.cfg.StateDir)
	}
	if s := w.state(id); s == "PENDING" {
		t.Errorf("the job is %s: it was requeued because of a full disk", s)
	}
	if err := w.agent.Release(context.Background(), first, 0); api.CodeOf(err) != 503 {
		t.Errorf("release: %v", err)
	}
	if l, err := w.agent.Job(context.Background(), first); err != nil || len(l.Slices) != 1 {
		t.Errorf("a lease that could not be released is %+v, %v", l, err)
	}
	// An agent that starts while the disk is full must keep the leases.
	w.stop()
	w.start()
	if l, err := w.agent.Job(context.Background(), first); err != nil || len(l.Slices) != 1 {
		t.Errorf("after a restart: %+v, %v", l, err)
	}
	room()
	if l, err := prolog(j); err != nil || len(l.Slices) != 1 || l.Error != "" {
		t.Errorf("with room: %+v, %v", l, err)
	}
	if err := w.fake.Finish(first); err != nil {
		t.Fatal(err)
	}
	w.whole()
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	large := w.startNow("7g.40gb:1")
	j, _ = w.fake.Job(context.Background(), large)
	if l, err := prolog(j); err != nil || len(l.Slices) != 1 {
		t.Errorf("the whole GPU in the end: %+v, %v", l, err)
	}
}

// filled fills the disk, and also the free pages in SQLite's files.
func (w *world) filled(fill func()) {
	w.t.Helper()
	fill()
	for range 10000 {
		if err := w.agent.ledger.Writable(); err != nil {
			return
		}
		fill()
	}
	w.t.Fatal("the ledger can still be written")
}

// afterCreate wraps a driver and calls do after each creation of an instance.
type afterCreate struct {
	gpu.Hardware
	do func()
}

func (h afterCreate) Create(g int, profile string, start int) (gpu.Instance, error) {
	in, err := h.Hardware.Create(g, profile, start)
	h.do()
	return in, err
}

// TestDiskFullDuringCreate checks a disk that becomes full while the driver creates an instance. The instance exists,
// but the agent cannot record it in the ledger. The job must get its slice and start once the disk has free space.
func TestDiskFullDuringCreate(t *testing.T) {
	w, prolog := starting(t)
	w.stop()
	fill, room := small(t, w.cfg.StateDir, "512k")
	w.start()
	id := w.startNow("3g.20gb:1")
	j, _ := w.fake.Job(context.Background(), id)
	w.agent.hw = afterCreate{w.agent.hw, func() { w.filled(fill) }}
	_, err := prolog(j)
	notNow(t, err, "make room in "+w.cfg.StateDir)
	w.agent.hw = w.node.NVML
	room()
	if l, err := prolog(j); err != nil || len(l.Slices) != 1 {
		t.Errorf("with room: %+v, %v", l, err)
	}
	w.whole()
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	w.whole()
}

// TestRunDirectoryFull checks that the agent keeps the lease while the run directory is full. It must ask the prolog to
// repeat its call until it can write the lease file.
func TestRunDirectoryFull(t *testing.T) {
	w, prolog := starting(t)
	w.stop()
	fill, room := small(t, w.cfg.RunDir, "64k")
	w.start()
	id := w.startNow("3g.20gb:1")
	j, _ := w.fake.Job(context.Background(), id)
	fill()
	for range 2 {
		_, err := prolog(j)
		notNow(t, err, "no space left", w.cfg.RunDir)
	}
	if files, _ := os.ReadDir(filepath.Join(w.cfg.RunDir, "jobs")); len(files) > 0 {
		t.Errorf("unfinished files: %v", files)
	}
	room()
	if l, err := prolog(j); err != nil || len(l.Slices) != 1 {
		t.Errorf("with room: %+v, %v", l, err)
	}
	if !strings.Contains(w.leaseFile(id), "\nslot 0 MIG-") {
		t.Errorf("lease file:\n%s", w.leaseFile(id))
	}
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	w.whole()
}
