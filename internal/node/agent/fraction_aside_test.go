package agent

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"caelum/internal/node/api"
)

// compare compares the GPUs with the ledger, and checks that the given number of instances is stuck.
func (f fractional) compare(stuck int) {
	f.t.Helper()
	if err := f.agent.compareGPUs(); err != nil {
		f.t.Fatal(err)
	}
	if n := f.stuck(); n != stuck {
		f.t.Errorf("%d instances are stuck, want %d", n, stuck)
	}
}

// TestFractionGroupNotRemoved checks that a fraction is not offered until its last job's cgroup has been removed, and
// that the status shows the reason.
func TestFractionGroupNotRemoved(t *testing.T) {
	f := newFractional(t, 1)
	l := f.lease(f.startNow("1f.11gb:1"))
	f.groups.Fail("Remove", errors.New("the cgroup is busy"))
	f.finish(l.Job)
	for range 2 {
		f.compare(1)
		status, _ := f.agent.Status(context.Background())
		if in := status.GPUs[0].Instances; len(in) != 1 || in[0].Note != "the cgroup is busy" {
			t.Errorf("%+v", in)
		}
	}
	f.groups.Fail("Remove", nil)
	if f.compare(0); f.groups.Exists(l.Cgroup) {
		t.Error("the cgroup still exists")
	}
}

// TestFractionFileNotClosed checks that a fraction or a full GPU whose device file could not be closed stays limited
// while its last job has processes, also after a restart of the agent.
func TestFractionFileNotClosed(t *testing.T) {
	for _, slices := range []string{"1f.11gb:1", "full:1"} {
		f := newFractional(t, 1)
		l := f.lease(f.startNow(slices))
		f.groups.Enter(l.Cgroup, true)
		file := f.agent.caps.DeviceFile(0)
		if err := os.Rename(file, file+".away"); err != nil {
			t.Fatal(err)
		}
		f.finish(l.Job)
		if err := os.Rename(file+".away", file); err != nil {
			t.Fatal(err)
		}
		f.compare(1)
		f.stop()
		f.start()
		if f.compare(1); !f.groups.Exists(l.Cgroup) {
			t.Errorf("%s: the cgroup of the remaining processes does not exist", slices)
		}
		f.groups.Enter(l.Cgroup, false)
		if f.compare(0); f.groups.Exists(l.Cgroup) {
			t.Errorf("%s: the cgroup still exists", slices)
		}
	}
}

// TestFractionUnscanned checks that fractions do not depend on a search for open files, which cannot find them.
func TestFractionUnscanned(t *testing.T) {
	f := newFractional(t, 1)
	h := heldIn(t, f.world)
	first, second := f.lease(f.startNow("1f.11gb:1")), f.lease(f.startNow("1f.11gb:1"))
	f.groups.Enter(second.Cgroup, true)
	if err := os.Rename(h.proc, h.proc+".away"); err != nil {
		t.Fatal(err)
	}
	f.finish(first.Job)
	if n := f.stuck(); n != 0 {
		t.Errorf("%d fractions were set aside", n)
	}
	f.finish(second.Job)
	f.compare(1)
	f.groups.Enter(second.Cgroup, false)
	f.compare(0)
}

// TestNoteWhileRelabelled checks, with the race detector, that an instance can change its start while it is noted.
func TestNoteWhileRelabelled(t *testing.T) {
	f := newFractional(t, 1)
	l := f.lease(f.startNow("1f.11gb:1"))
	in := f.agent.node.Held(l.Job, api.Slice{GPU: 0, UUID: l.Slices[0].UUID})
	var all sync.WaitGroup
	all.Go(func() { f.agent.note(placed{0, in}, "held open") })
	all.Go(func() {
		f.agent.node.Lock()
		defer f.agent.node.Unlock()
		for in.Note == "" {
			f.agent.node.Unlock()
			runtime.Gosched()
			f.agent.node.Lock()
		}
		in.Start, in.Job = 0, l.Job
	})
	all.Wait()
}
