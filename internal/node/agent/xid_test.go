package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
)

// watching runs the agent's watch for Xid errors until the test ends or stop is called.
func (w *world) watching() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	a := w.agent
	go func() {
		a.watchXids(ctx)
		close(ended)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	w.t.Cleanup(stop)
	return stop
}

// raise makes the emulator raise an Xid error on a GPU until the agent has recorded it, and returns its count. The
// agent does not see errors from before it began to watch.
func (w *world) raise(g, code int, gi ...string) api.XidCount {
	w.t.Helper()
	for range 1000 {
		w.node.Emulator(w.t, append([]string{"xid", fmt.Sprint(g), fmt.Sprint(code)}, gi...)...)
		for range 20 {
			status, _ := w.agent.Status(context.Background())
			for _, x := range status.GPUs[g].Xids {
				if x.Xid == code {
					return x
				}
			}
			time.Sleep(time.Millisecond)
		}
	}
	w.t.Fatalf("the agent did not record Xid %d on GPU %d", code, g)
	return api.XidCount{}
}

// offersOn reports whether the node offers slices on a GPU.
func (w *world) offersOn(g int) bool {
	w.publish()
	status, _ := w.agent.Status(context.Background())
	return len(status.GPUs[g].Offers) > 0
}

// TestApplicationXid checks that an Xid error on a job's slice is logged, counted and shown with the job, and does not
// withdraw the GPU.
func TestApplicationXid(t *testing.T) {
	w := newWorld(t, 1, tightest)
	id := w.startNow("1g.5gb:1")
	slice := w.lease(id).Slices[0]
	stop := w.watching()
	x := w.raise(0, 31, fmt.Sprint(w.instance(slice.UUID).GI))
	stop()
	if x.Job != id || x.On != fmt.Sprintf("1g.5gb at %d", slice.Start) || x.Fatal || x.Count == 0 {
		t.Errorf("%+v", x)
	}
	for _, want := range []string{
		"the driver reported Xid 31 (memory page fault)", slice.UUID, fmt.Sprint("job=", id),
	} {
		if log := w.log.String(); !strings.Contains(log, want) {
			t.Errorf("the log does not contain %q:\n%s", want, log)
		}
	}
	if l, err := w.agent.Job(context.Background(), id); err != nil || !strings.HasPrefix(l.Xids, "31") {
		t.Errorf("the job's errors are %+v, %v", l, err)
	}
	if r, ok := w.agent.usage.Run(id); !ok || !strings.Contains(r.Summary(), ",xid=31") {
		t.Errorf("the run is %+v", r)
	}
	if !w.offersOn(0) || w.shown(0) != "" {
		t.Errorf("the GPU is not offered: %q", w.shown(0))
	}
}

// TestManyApplicationXids checks that any number of Xid errors that a program can cause never withdraws a GPU, and that
// the agent logs one line per code and minute for each job.
func TestManyApplicationXids(t *testing.T) {
	w := newWorld(t, 1)
	codes := []int{13, 31, 32, 43, 45, 68, 69, 94, 109}
	for range 500 {
		for _, code := range codes {
			w.agent.noteXid(gpu.Xid{GPU: 0, Code: code, GI: -1, CI: -1})
		}
	}
	if n := strings.Count(w.log.String(), "the driver reported Xid"); n != len(codes) {
		t.Errorf("%d lines for %d codes", n, len(codes))
	}
	if !w.offersOn(0) {
		t.Errorf("the GPU is not offered: %q", w.shown(0))
	}
	w.fake.Advance(logInterval)
	w.agent.noteXid(gpu.Xid{GPU: 0, Code: 13, GI: -1, CI: -1})
	if !strings.Contains(w.log.String(), "count=501") {
		t.Error("after a minute, the log does not show the number of errors")
	}
	w.wantMetrics(`caelum_xid_errors_total{gpu="0",xid="13"} 501`, `caelum_gpus{state="managed"} 1`)
}

// TestFatalXid checks that a GPU is not offered after a fatal Xid error, not even by the next agent, until root
// readmits it. A job on the GPU keeps its slice.
func TestFatalXid(t *testing.T) {
	w := newWorld(t, 2, tightest)
	id := w.startNow("1g.5gb:1")
	g := w.lease(id).Slices[0].GPU
	stop := w.watching()
	if x := w.raise(g, 95); !x.Fatal {
		t.Errorf("%+v", x)
	}
	for w.shown(g) == "" {
		time.Sleep(time.Millisecond)
	}
	withdrawn := func(when string) {
		t.Helper()
		if err := w.agent.compareGPUs(); err != nil {
			t.Fatal(err)
		}
		if w.offersOn(g) || !w.offersOn(1-g) || w.shown(g) != gpu.Withdrawn(g, 95) {
			t.Fatalf("%s, GPU %d: %q, offers on it: %v, offers on the other GPU: %v",
				when, g, w.shown(g), w.offersOn(g), w.offersOn(1-g))
		}
	}
	withdrawn("after the error")
	w.wantMetrics(`caelum_gpus{state="unmanaged"} 1`)
	stop()
	w.restart()
	withdrawn("after a restart")
	if l := w.agent.leaseOf(id); l == nil || len(l.Slices) != 1 {
		t.Errorf("the job's lease is %+v", l)
	}
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	w.fake.RunEpilogs()
	w.nothingHeld()
	withdrawn("after the end of the job")

	if err := w.agent.Readmit(context.Background(), 1-g); api.CodeOf(err) != 409 {
		t.Errorf("readmitted a GPU that was not withdrawn: %v", err)
	}
	if err := w.agent.Readmit(context.Background(), 2); api.CodeOf(err) != 409 {
		t.Errorf("readmitted a GPU that does not exist: %v", err)
	}
	w.node.Emulator(t, "lose", fmt.Sprint(g))
	if err := w.agent.Readmit(context.Background(), g); api.CodeOf(err) != 409 || w.shown(g) == "" {
		t.Errorf("readmitted a lost GPU: %v", err)
	}
	w.node.Emulator(t, "find", fmt.Sprint(g))
	if err := w.agent.Readmit(context.Background(), g); err != nil || !w.offersOn(g) {
		t.Errorf("not readmitted: %v, %q", err, w.shown(g))
	}
	w.restart()
	if !w.offersOn(g) {
		t.Errorf("after a restart, the GPU is not offered: %q", w.shown(g))
	}
}

// TestFatalXidEndsWithReboot checks that the agent offers a GPU again after a reboot of the node.
func TestFatalXidEndsWithReboot(t *testing.T) {
	w := newWorld(t, 1)
	w.agent.noteXid(gpu.Xid{GPU: 0, Code: 119, GI: -1, CI: -1})
	if w.offersOn(0) {
		t.Fatal("the GPU is offered")
	}
	if err := w.agent.ledger.SetMeta("boot_id", "of an earlier boot"); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if !w.offersOn(0) {
		t.Errorf("the GPU is not offered: %q", w.shown(0))
	}
}

// TestOffBusXid checks that a GPU that falls off the bus is withdrawn immediately, and comes back when the driver can
// reach it again. If the driver still answers, the GPU stays withdrawn.
func TestOffBusXid(t *testing.T) {
	w := newWorld(t, 2)
	w.node.Emulator(t, "lose", "0")
	for g := range 2 {
		w.agent.noteXid(gpu.Xid{GPU: g, Code: gpu.XidOffBus, GI: -1, CI: -1})
	}
	if w.shown(0) != gpu.Lost || w.shown(1) != gpu.Withdrawn(1, gpu.XidOffBus) {
		t.Errorf("GPU 0: %q, GPU 1: %q", w.shown(0), w.shown(1))
	}
	w.node.Emulator(t, "find", "0")
	if err := w.agent.compareGPUs(); err != nil || w.shown(0) != "" || w.shown(1) == "" {
		t.Errorf("GPU 0: %q, GPU 1: %q, %v", w.shown(0), w.shown(1), err)
	}
}

// TestStartedJobOnWithdrawnGPU checks that a job that slurmctld has already started gets a slice on another GPU.
func TestStartedJobOnWithdrawnGPU(t *testing.T) {
	w := newWorld(t, 2)
	id, s := w.pendingLease("3g.20gb:1")
	w.agent.noteXid(gpu.Xid{GPU: s.GPU, Code: 48, GI: -1, CI: -1})
	j, err := w.fake.Job(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	w.prolog(j)
	if l := w.lease(id); l.Error != "" || len(l.Slices) != 1 || l.Slices[0].GPU == s.GPU {
		t.Errorf("GPU %d was withdrawn: %+v", s.GPU, l)
	}
}
