package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"caelum/internal/node/gpu"
)

// switched is a driver whose full GPUs register with the fabric only after a number of queries.
type switched struct {
	gpu.Hardware
	mu      sync.Mutex
	queries map[int]int // by GPU, the number of queries before the GPU has registered; negative for never
}

func (h *switched) Fabric(g int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queries[g] == 0 {
		return nil
	}
	h.queries[g]--
	return fmt.Errorf("%w (state In Progress)", gpu.ErrFabric)
}

func (h *switched) set(g, queries int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queries[g] = queries
}

// onFabric makes the agent use a driver whose GPUs register after the given numbers of queries.
func (w *world) onFabric(queries map[int]int) *switched {
	h := &switched{Hardware: w.agent.hw, queries: queries}
	w.agent.hw, w.agent.fabricLimit = h, 2*fabricPoll
	return h
}

// heldBack returns the reason why GPU g is not offered as a full GPU.
func (w *world) heldBack(g int) string {
	w.t.Helper()
	status, err := w.agent.Status(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return status.GPUs[g].Held
}

// TestFabricRegisters checks that a prolog waits until the GPU has registered with the fabric.
func TestFabricRegisters(t *testing.T) {
	w := newH100s(t, 1)
	h := w.onFabric(map[int]int{0: 1})
	if s := w.lease(w.startNow("full:1")).Slices; len(s) != 1 || s[0].Profile != "full" {
		t.Errorf("slices %+v", s)
	}
	if h.queries[0] != 0 || w.heldBack(0) != "" {
		t.Errorf("%d queries are left, held back: %q", h.queries[0], w.heldBack(0))
	}
}

// TestFabricNotReady checks that a full GPU which does not register is not given to a job. The job gets another GPU,
// the status names the reason, and the GPU is offered again once it has registered.
func TestFabricNotReady(t *testing.T) {
	w := newH100s(t, 2)
	h := w.onFabric(map[int]int{0: -1})
	first := w.startNow("full:1")
	l := w.lease(first)
	if len(l.Slices) != 1 || l.Slices[0].GPU != 1 {
		t.Fatalf("lease %+v", l)
	}
	if got := w.file(0); got != "0 0600" {
		t.Errorf("device file of the GPU that has not registered: %s", got)
	}
	for _, want := range []string{"state In Progress", "nvidia-fabricmanager.service", "nvidia-smi -q -i 0"} {
		if got := w.heldBack(0); !strings.Contains(got, want) {
			t.Errorf("held back: %q, want %q", got, want)
		}
	}
	w.publish()
	if got := w.offers(); got["full"] != 0 || got["1g.10gb"]+got["7g.80gb"]+got["3g.40gb"] == 0 {
		t.Errorf("on offer: %v, want slices of GPU 0 only", got)
	}
	h.set(0, 0)
	if err := w.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	if got := w.heldBack(0); got != "" {
		t.Errorf("still held back: %q", got)
	}
	if s := w.lease(w.startNow("full:1")).Slices; len(s) != 1 || s[0].GPU != 0 || !s[0].Reused {
		t.Errorf("slices %+v", s)
	}
}

// TestFabricOnlyGPU checks that a job is requeued if no full GPU registers, and that the GPU can be used for slices.
func TestFabricOnlyGPU(t *testing.T) {
	w := newH100s(t, 1)
	w.onFabric(map[int]int{0: -1})
	id := w.submit(job(1, "full:1"))
	w.publish()
	w.fake.Tick()
	w.prologs.Wait()
	if l := w.agent.leaseOf(id); l != nil && len(l.Slices) > 0 {
		t.Errorf("leased %+v", l)
	}
	if got := w.heldBack(0); !strings.Contains(got, "has not registered") {
		t.Errorf("held back: %q", got)
	}
	w.fake.Cancel(id)
	w.fake.RunEpilogs()
	if s := w.lease(w.startNow("3g.40gb:1")).Slices; len(s) != 1 || w.file(0) != "0 0666" {
		t.Errorf("slices %+v, device file %s", s, w.file(0))
	}
}

// TestFabricAtBoot checks a GPU whose MIG mode was off at boot while Fabric Manager was not running.
func TestFabricAtBoot(t *testing.T) {
	w := newH100s(t, 1)
	w.stop()
	w.node.Emulator(t, "mig-mode", "0", "off")
	w.start()
	h := w.onFabric(map[int]int{0: -1})
	if err := w.agent.adoptFull(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := w.heldBack(0); !strings.Contains(got, "has not registered") {
		t.Errorf("held back: %q", got)
	}
	h.set(0, 0)
	if err := w.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	if s := w.lease(w.startNow("full:1")).Slices[0]; !s.Reused {
		t.Errorf("%+v", s)
	}
}

// TestFabricWait checks that a prolog stops waiting when its time is over.
func TestFabricWait(t *testing.T) {
	w := newH100s(t, 1)
	w.onFabric(map[int]int{0: -1})
	w.agent.fabricLimit = time.Hour
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.agent.registered(ctx, 0); !errors.Is(err, gpu.ErrFabric) {
		t.Errorf("error %v", err)
	}
}

// asVirtual is a driver in a virtual machine.
type asVirtual struct{ gpu.Hardware }

func (h asVirtual) GPUs() ([]gpu.GPU, error) {
	all, err := h.Hardware.GPUs()
	for i := range all {
		all[i].Virtual = true
	}
	return all, err
}

// TestFullInVirtualMachine checks that the agent never switches MIG mode off in a virtual machine, and still uses a GPU
// whose MIG mode is off.
func TestFullInVirtualMachine(t *testing.T) {
	w := newH100s(t, 1)
	w.stop()
	w.driver = func(hw gpu.Hardware) gpu.Hardware { return asVirtual{hw} }
	w.start()
	if got := w.heldBack(0); !strings.Contains(got, "virtual machine") || !strings.Contains(got, "whole_gpus") {
		t.Errorf("held back: %q", got)
	}
	w.publish()
	if got := w.offers(); got["full"] != 0 {
		t.Errorf("on offer: %v", got)
	}
	if _, err := w.agent.make(0, "full", 0); !errors.Is(err, gpu.ErrVirtual) {
		t.Errorf("a switch: %v", err)
	}
	if err := w.agent.compareGPUs(); err != nil || w.heldBack(0) == "" {
		t.Errorf("after a comparison: %q, %v", w.heldBack(0), err)
	}
	w.stop()
	w.node.Emulator(t, "mig-mode", "0", "off")
	w.start()
	if err := w.agent.adoptFull(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := w.lease(w.startNow("full:1")).Slices; len(s) != 1 || !s[0].Reused {
		t.Errorf("slices of a GPU that was full at boot: %+v", s)
	}
}

// persistent is a driver whose persistence mode is on.
type persistent struct{ gpu.Hardware }

func (persistent) Persistent(int) bool { return true }

// TestSwitchRefused checks that the reason for a refused switch names all causes that the agent finds.
func TestSwitchRefused(t *testing.T) {
	w := newH100s(t, 1)
	c := w.agent.node.Cards[0]
	w.agent.caps.Sys = t.TempDir()
	w.agent.hw = persistent{w.agent.hw}
	if got := w.agent.users(0, c); !strings.HasPrefix(got, "the GPU is in use") {
		t.Errorf("no reset is needed: %q", got)
	}
	c.Reset = true
	if got := w.agent.users(0, c); !strings.Contains(got, "persistence mode is on") ||
		!strings.Contains(got, "-i 0 -pm 0") ||
		strings.Contains(got, "nvidia_drm") {
		t.Errorf("persistence mode is on: %q", got)
	}
	if err := os.MkdirAll(filepath.Join(w.agent.caps.Sys, "module/nvidia_drm"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.agent.hw = w.node.NVML
	if got := w.agent.users(0, c); !strings.Contains(got, "modprobe -r nvidia_drm") ||
		strings.Contains(got, "persistence") {
		t.Errorf("nvidia_drm is loaded: %q", got)
	}
}

// TestFabricFiles checks that the agent creates the files of Fabric Manager and the IMEX daemon if the driver does not.
func TestFabricFiles(t *testing.T) {
	for modify, want := range map[int]string{0: "0400", 1: "missing"} {
		t.Run(fmt.Sprint("modify ", modify), func(t *testing.T) {
			w := newWorld(t, 1)
			w.stop()
			for name, minor := range map[string]int{gpu.FabricMgmt: 0, gpu.IMEXMgmt: 4323} {
				path := filepath.Join(w.node.Proc, "driver", name)
				text := fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: 256\nDeviceFileModify: %d\n", minor, modify)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o444); err != nil {
					t.Fatal(err)
				}
			}
			w.start()
			for _, minor := range []int{0, 4323} {
				got := "missing"
				var st unix.Stat_t
				path := filepath.Join(w.node.Dev, "nvidia-caps", fmt.Sprint("nvidia-cap", minor))
				if unix.Stat(path, &st) == nil {
					got = fmt.Sprintf("%#o", st.Mode&0o7777)
				}
				if got != want {
					t.Errorf("nvidia-cap%d: %s, want %s", minor, got, want)
				}
			}
		})
	}
}
