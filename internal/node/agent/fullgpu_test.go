package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"caelum/internal/config"
	"caelum/internal/core/offer"
	"caelum/internal/node/gpu"
)

const (
	closedH100 = "gpu:h100:%d,mig:1g.10gb:0,mig:1g.20gb:0,mig:2g.20gb:0,mig:3g.40gb:0,mig:4g.40gb:0,mig:7g.80gb:0," +
		"mig:full:0,mig:closed:%d"
	allH100 = "gpu:h100:28,mig:1g.10gb:28,mig:1g.20gb:16,mig:2g.20gb:12,mig:3g.40gb:8,mig:4g.40gb:4,mig:7g.80gb:4," +
		"mig:full:4"
)

// newH100s returns a world with H100s whose MIG mode the agent may switch.
func newH100s(t testing.TB, gpus int, options ...func(*config.Config)) *world {
	whole := func(c *config.Config) { c.WholeGPUs = "auto" }
	return newWorldOf(t, "H100-80GB", gpus, fmt.Sprintf(closedH100, 7*gpus, 28*gpus), allH100,
		append(options, whole)...)
}

// file returns the owner and mode of a GPU's device file.
func (w *world) file(g int) string {
	w.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(w.agent.caps.DeviceFile(g), &st); err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf("%d %#o", st.Uid, st.Mode&0o777)
}

// TestFullGPUs runs a job with full GPUs alongside a job with a slice.
func TestFullGPUs(t *testing.T) {
	w := newH100s(t, 3)
	small := w.startNow("1g.10gb:1")
	slice := w.lease(small).Slices[0]
	id := w.submit(job(2, "full:2"))
	w.publish()
	w.fake.Tick()
	l := w.lease(id)
	if len(l.Slices) != 2 {
		t.Fatalf("%+v", l)
	}
	for k, s := range l.Slices {
		if s.Profile != "full" || !strings.HasPrefix(s.UUID, "GPU-") || s.GPU == slice.GPU || s.MemoryMiB != 81559 {
			t.Errorf("slice %d: %+v alongside GPU %d", k, s, slice.GPU)
		}
		if got := w.file(s.GPU); got != "20001 0600" {
			t.Errorf("device file of GPU %d: %s", s.GPU, got)
		}
	}
	if got := w.file(slice.GPU); got != "0 0666" {
		t.Errorf("device file of the GPU with slices: %s", got)
	}
	if got := w.offers(); got["full"] != 0 {
		t.Errorf("on offer alongside the leases: %v", got)
	}
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	for _, s := range l.Slices {
		if got := w.file(s.GPU); got != "0 0600" {
			t.Errorf("device file of the idle GPU %d: %s", s.GPU, got)
		}
	}
	// The next job with a full GPU reuses an idle one, and slices go to the GPU whose MIG mode is on.
	next := w.startNow("full:1")
	if s := w.lease(next).Slices[0]; !s.Reused {
		t.Errorf("%+v", s)
	}
	if s := w.lease(w.startNow("3g.40gb:1")).Slices[0]; s.GPU != slice.GPU {
		t.Errorf("%+v; want GPU %d", s, slice.GPU)
	}
	// MIG mode is switched on again only when no other GPU is free.
	s := w.lease(w.startNow("7g.80gb:1")).Slices[0]
	if s.GPU == slice.GPU || w.file(s.GPU) != "0 0666" {
		t.Errorf("%+v, device file %s", s, w.file(s.GPU))
	}
}

// TestFullAfterRestart checks that a new agent keeps the leases of full GPUs, and repairs the device files.
func TestFullAfterRestart(t *testing.T) {
	w := newH100s(t, 2)
	id := w.startNow("full:1")
	s := w.lease(id).Slices[0]
	w.stop()
	if err := os.Chmod(w.agentDevice(1-s.GPU), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	if got := w.file(1 - s.GPU); got != "0 0666" {
		t.Errorf("device file of the GPU whose MIG mode is on: %s", got)
	}
	if got := w.file(s.GPU); got != "20001 0600" {
		t.Errorf("device file of the leased GPU: %s", got)
	}
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	if got := w.lease(w.startNow("full:1")).Slices[0]; !got.Reused || got.GPU != s.GPU {
		t.Errorf("%+v", got)
	}
}

func (w *world) agentDevice(g int) string { return gpu.Caps{Dev: w.node.Dev}.DeviceFile(g) }

// TestFullAtBoot checks that the agent takes over a GPU whose MIG mode is off when the agent starts, but not while
// there is a job without a lease, which could be using the GPU.
func TestFullAtBoot(t *testing.T) {
	w := newH100s(t, 1)
	w.stop()
	w.node.Emulator(t, "mig-mode", "0", "off")
	w.start()
	if got := w.shown(0); got != "" {
		t.Fatalf("problem %q", got)
	}
	w.publish()
	if got := w.offers(); len(got) != 0 {
		t.Errorf("on offer before the GPU was adopted: %v", got)
	}
	if err := w.agent.adoptFull(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := w.file(0); got != "0 0600" {
		t.Errorf("device file: %s", got)
	}
	if s := w.lease(w.startNow("full:1")).Slices[0]; !s.Reused {
		t.Errorf("%+v", s)
	}
}

// newSwitchedOn returns a world with one GPU, which was full and idle until another program switched MIG mode on.
func newSwitchedOn(t *testing.T) *world {
	w := newH100s(t, 1)
	id := w.startNow("full:1")
	w.lease(id)
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	w.node.Emulator(t, "mig-mode", "0", "on")
	return w
}

// TestFullGone checks a GPU whose MIG mode another program has switched on while the GPU was idle.
func TestFullGone(t *testing.T) {
	w := newSwitchedOn(t)
	s := w.lease(w.startNow("full:1")).Slices[0]
	if s.Reused || w.file(s.GPU) != "20001 0600" {
		t.Errorf("%+v, device file %s", s, w.file(s.GPU))
	}
}

// TestSliceAfterFullGone checks that users can open the device file after another program has switched MIG mode on.
func TestSliceAfterFullGone(t *testing.T) {
	w := newSwitchedOn(t)
	if err := w.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	s := w.lease(w.startNow("3g.40gb:1")).Slices[0]
	if s.Profile == "full" || w.file(s.GPU) != "0 0666" {
		t.Errorf("%+v, device file %s", s, w.file(s.GPU))
	}
}

// TestFullHeldOpen checks that a GPU does not become full while a user process has its device file open. The job
// waits, other GPUs become full, and the GPU is available again once the process has closed the file.
func TestFullHeldOpen(t *testing.T) {
	w := heldIn(t, newH100s(t, 2, func(c *config.Config) { c.DestroyHook = "/etc/caelum/destroy-hook" }))
	end := w.process(madeUp, 20002, [2]string{w.agent.caps.DeviceFile(0), ""})
	id := w.submit(job(2, "full:2"))
	w.publish()
	w.fake.Tick()
	w.prologs.Wait()
	if got := w.agent.leaseOf(id); got != nil && got.Error == "" {
		t.Fatalf("leased %+v", got)
	}
	status, err := w.agent.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if note := status.GPUs[0].Held; !strings.Contains(note, "held open by") || !strings.Contains(note, "9999999") {
		t.Errorf("the status of the GPU that is held open: %q", note)
	}
	if got := w.world.file(0); got != "0 0666" {
		t.Errorf("device file of the GPU whose MIG mode is on: %s", got)
	}
	if w.agent.hooking() {
		t.Error("the destroy hook is to run for the process of a user")
	}
	w.fake.Cancel(id)
	w.fake.RunEpilogs()
	one := w.lease(w.startNow("full:1"))
	if len(one.Slices) != 1 || one.Slices[0].GPU != 1 {
		t.Fatalf("%+v", one)
	}
	if got := w.lease(w.startNow("1g.10gb:1")); got.Slices[0].GPU != 0 {
		t.Errorf("%+v", got)
	}
	end()
	if err := w.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	if status, err = w.agent.Status(context.Background()); err != nil || status.GPUs[0].Held != "" {
		t.Errorf("status %+v, %v", status.GPUs[0], err)
	}
}

// TestFullHook checks a GPU whose MIG mode the driver does not switch off, because a monitoring program of root keeps
// the GPU in use. The destroy hook pauses the program, the prolog waits, and the job gets the GPU instead of a requeue.
// If the driver still refuses, the job is requeued, and the hook does not run again soon; -short skips this case.
func TestFullHook(t *testing.T) {
	for name, c := range map[string]struct {
		unhold string
		want   string // the profile of the job's slice
		logged string
	}{
		"in use until the pause": {`[ $1 = resume ] || NVML_EMULATOR_STATE=%s %s/nvml-emulator unhold $2`,
			"full", "the GPU's MIG mode is no longer stuck after the destroy hook"},
		"still in use": {`: %s %s`, "", "the GPU's MIG mode is still stuck after the destroy hook"},
	} {
		t.Run(name, func(t *testing.T) {
			onlyShort(t, name, "in use until the pause")
			hook := filepath.Join(t.TempDir(), "hook")
			m := &monitored{calls: hook + ".calls"}
			m.held = heldIn(t, newH100s(t, 1, func(c *config.Config) { c.DestroyHook = hook }))
			script := "#!/bin/sh\necho \"$@\" >>$0.calls\n" + fmt.Sprintf(c.unhold, m.node.State, m.node.Build()) + "\n"
			if err := os.WriteFile(hook, []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			m.uuid = m.agent.node.Cards[0].UUID
			m.node.Emulator(t, "hold", "0")
			stop := m.hooks()
			l := m.leaseOf("full:1")
			stop()
			if c.want != "" && (len(l.Slices) != 1 || l.Slices[0].Profile != c.want) {
				t.Errorf("lease %+v", l)
			} else if c.want == "" && !strings.Contains(l.Error, "requeued") {
				t.Errorf("lease %+v, want a requeue", l)
			}
			if got := strings.Join(m.called(), ";"); got != "pause 0 full;resume 0 full" {
				t.Errorf("calls %q", got)
			}
			if !strings.Contains(m.logged(), c.logged) || m.agent.hooking() || m.paused() != "" {
				t.Errorf("hooking %v, record %q, log %s", m.agent.hooking(), m.paused(), m.logged())
			}
			if _, err := m.agent.make(0, "full", 0); c.want == "" && (err == nil || m.agent.hooking()) {
				t.Errorf("a second attempt: %v, hooking %v", err, m.agent.hooking())
			}
			m.fake.Advance(hookBackoff)
			if _, err := m.agent.make(0, "full", 0); c.want == "" && (err == nil || !m.agent.hooking()) {
				t.Errorf("an attempt after the pause: %v, hooking %v", err, m.agent.hooking())
			}
		})
	}
}

// TestFullHookOfSharedGPU checks that an attempt with the help of the hook does not change a GPU on which another job
// has got slices in the meantime.
func TestFullHookOfSharedGPU(t *testing.T) {
	w := newH100s(t, 1)
	s := w.lease(w.startNow("1g.10gb:1")).Slices[0]
	if err := w.agent.makeFullHeld(0); err == nil {
		t.Error("the GPU became full")
	}
	if in := w.agent.node.Cards[0].Ours; len(in) != 1 || w.file(0) != "0 0666" {
		t.Errorf("instances %v, device file %s, slice %+v", in, w.file(0), s)
	}
}

// TestOfferOfHeldGPU checks prologs whose jobs are planned on a full GPU that cannot become full any more: the job that
// has a pending lease there, and a job that takes the offer.
func TestOfferOfHeldGPU(t *testing.T) {
	w := newH100s(t, 2)
	w.submit(job(1, "full:1"))
	w.submit(job(1, "full:1"))
	w.publish()
	w.fake.Prolog(nil)
	w.fake.Tick()
	w.publish() // records pending leases
	w.agent.node.Lock()
	placed := 0
	for _, pr := range w.agent.node.Pending {
		placed += len(pr.Spots)
	}
	w.agent.node.Unlock()
	if placed != 2 {
		t.Fatalf("%d pending slices", placed)
	}
	w.agent.holdBack(0, "in use")
	w.agent.node.Lock()
	defer w.agent.node.Unlock()
	w.agent.node.Offers[0] = w.agent.node.Cards[0].Model.Full()
	wants := []offer.Want{{Profile: "full", Count: 1}}
	gpus := w.agent.node.View()
	if s, ok := w.agent.node.Choose(gpus, w.agent.node.Offers, 9, wants[0]); ok && s.GPU == 0 {
		t.Errorf("chose the full GPU %d", s.GPU)
	}
}
