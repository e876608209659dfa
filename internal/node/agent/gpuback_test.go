package agent

import (
	"context"
	"fmt"
	"testing"
)

// shown returns a GPU's problem as the status shows it.
func (w *world) shown(g int) string {
	w.t.Helper()
	status, err := w.agent.Status(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return status.GPUs[g].Problem
}

// TestGPUComesBack checks that, without a restart, the agent resumes managing a lost GPU once it is available again.
// An instance that no longer exists there must be removed from the ledger.
func TestGPUComesBack(t *testing.T) {
	w := newWorld(t, 1)
	first := w.startNow("1g.5gb:1")
	idle := w.lease(first).Slices[0]
	if err := w.fake.Finish(first); err != nil {
		t.Fatal(err)
	}
	in := w.instance(idle.UUID)
	w.node.Emulator(t, "lose", "0")
	if err := w.agent.compareGPUs(); err == nil || w.shown(0) == "" {
		t.Fatalf("a lost GPU: %v, %q", err, w.shown(0))
	}
	w.publish()
	if o := w.offers(); len(o) != 0 {
		t.Errorf("on offer on a lost GPU: %v", o)
	}
	if err := w.agent.compareGPUs(); err != nil || w.shown(0) == "" {
		t.Errorf("the GPU is still lost: %v, %q", err, w.shown(0))
	}

	w.node.Emulator(t, "find", "0")
	w.node.Emulator(t, "destroy", "0", fmt.Sprint(in.GI)) // as a reset of the GPU does
	if err := w.agent.compareGPUs(); err != nil || w.shown(0) != "" {
		t.Fatalf("the GPU is back: %v, %q", err, w.shown(0))
	}
	w.publish()
	if got := w.granted("7g.40gb"); got.Reused {
		t.Errorf("leased %+v", got)
	}
}

// TestGPUBecomesUsable checks that, if a GPU that was not usable when the agent started becomes usable, the agent
// restarts once.
func TestGPUBecomesUsable(t *testing.T) {
	w := newWorld(t, 2)
	w.stop()
	w.node.Emulator(t, "mig-mode", "1", "off")
	w.node.Emulator(t, "reset", "1")
	w.start()
	for range 2 {
		if err := w.agent.compareGPUs(); err != nil || w.shown(1) == "" {
			t.Fatalf("without MIG mode: %v, %q", err, w.shown(1))
		}
	}
	select {
	case err := <-w.agent.outdated:
		t.Fatalf("without MIG mode the agent ends: %v", err)
	default:
	}
	w.node.Emulator(t, "mig-mode", "1", "on")
	w.node.Emulator(t, "reset", "1")
	for range 2 {
		if err := w.agent.compareGPUs(); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.agent.outdated) != 1 {
		t.Fatal("the agent goes on without the GPU")
	}
	why := <-w.agent.outdated
	w.stop()
	a := w.unserved()
	a.outdated <- why
	if err := a.Run(t.Context()); err != why {
		t.Errorf("the agent ended with %v, want %v", err, why)
	}
	w.start()
	if w.shown(1) != "" {
		t.Errorf("the next agent does not manage the GPU: %s", w.shown(1))
	}
	if err := w.agent.compareGPUs(); err != nil || len(w.agent.outdated) > 0 {
		t.Errorf("the next agent ends too: %v", err)
	}
}
