package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/node/gpu"
	"caelum/internal/node/ledger"
)

// removals lists the ways in which another program can remove an idle instance.
var removals = map[string]func(w *world, in gpu.Instance){
	"both": func(w *world, in gpu.Instance) { w.node.Emulator(w.t, "destroy", "0", fmt.Sprint(in.GI)) },
	"its compute instance": func(w *world, in gpu.Instance) {
		w.removeCI(in.GI)
	},
	"both, and made again at the same start": func(w *world, in gpu.Instance) {
		w.node.Emulator(w.t, "destroy", "0", fmt.Sprint(in.GI))
		w.node.Emulator(w.t, "create", "0", in.Profile, fmt.Sprint(in.Start))
	},
}

// removeCI removes a compute instance, like `nvidia-smi mig -dci`.
func (w *world) removeCI(id int) {
	w.t.Helper()
	lib := nvml.New(nvml.WithLibraryPath(filepath.Join(w.node.Build(), "libnvidia-ml.so.1")))
	if ret := lib.Init(); ret != nvml.SUCCESS {
		w.t.Fatal(ret)
	}
	defer lib.Shutdown()
	device, ret := lib.DeviceGetHandleByIndex(0)
	gi, ret2 := device.GetGpuInstanceById(id)
	ci, ret3 := gi.GetComputeInstanceById(0)
	for _, ret := range []nvml.Return{ret, ret2, ret3, ci.Destroy()} {
		if ret != nvml.SUCCESS {
			w.t.Fatal(nvml.ErrorString(ret))
		}
	}
}

// TestIdleInstanceRemoved checks that the agent does not lease an idle instance that another program has removed. The
// job must get an existing slice.
func TestIdleInstanceRemoved(t *testing.T) {
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			first := w.startNow("1g.5gb:1")
			old := w.lease(first).Slices[0]
			if err := w.fake.Finish(first); err != nil {
				t.Fatal(err)
			}
			w.publish()
			remove(w, w.instance(old.UUID))

			got := w.granted("1g.5gb")
			in := w.instance(got.UUID) // fails the test if the instance does not exist
			if got.UUID == old.UUID || got.Reused || in.Start != got.Start || len(in.CIs) != 1 {
				t.Errorf("leased %+v after %+v was removed; the GPU has %+v", got, old, in)
			}
			if log := w.log.String(); !strings.Contains(log, "removed by another program") {
				t.Error("the removal was not logged")
			}
		})
	}
}

// TestLeasedInstanceRemoved checks a leased instance that another program has removed. None of its capability files
// may remain once the job has ended.
func TestLeasedInstanceRemoved(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startNow("1g.5gb:1")
	removals["both"](w, w.instance(w.lease(id).Slices[0].UUID))
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	w.node.Emulator(t, "check")
}

// TestReusedID checks that an old intent to destroy an instance, and the loss of an old instance, do not remove from
// the ledger a new instance that has the same id. Both can remain after a failed write to the ledger.
func TestReusedID(t *testing.T) {
	w := newWorld(t, 1, tightest)
	id := w.startNow("4g.20gb:1")
	now := w.instance(w.lease(id).Slices[0].UUID)
	card := w.agent.node.Cards[0]
	if _, err := w.agent.ledger.Begin(ledger.Intent{
		Op: ledger.OpDestroy, GPU: card.UUID, GI: now.GI, Profile: "3g.20gb", Start: now.Start, Size: now.Size,
	}); err != nil {
		t.Fatal(err)
	}
	old, _ := card.Model.Placement("3g.20gb", 4)
	w.agent.node.Lock()
	card.Ours[old] = card.NewInstance(old, gpu.Instance{GI: now.GI, Profile: "3g.20gb", Start: 4, UUID: "MIG-old"})
	w.agent.node.Unlock()
	if err := w.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if all, err := w.agent.ledger.Instances(); err != nil || len(all) != 1 || all[0].Job != id || all[0].GI != now.GI {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestUnusedFilesClosed checks that an agent restricts the files that another program's instance has left readable by
// all users.
func TestUnusedFilesClosed(t *testing.T) {
	w := newWorld(t, 1)
	w.stop()
	w.node.Emulator(t, "create", "0", "3g.20gb", "4")
	foreign := w.listed(0)[0]
	files := (gpu.Caps{Dev: w.node.Dev, Proc: w.node.Proc}).Files(0, foreign)
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o444 {
		t.Fatalf("%v, %v", info, err)
	}
	w.node.Emulator(t, "destroy", "0", strconv.Itoa(foreign.GI))
	w.start()
	w.publish()
	w.ownedBy(files, 0)
}

// instance returns the instance with the given UUID from the driver's list.
func (w *world) instance(uuid string) gpu.Instance {
	w.t.Helper()
	found, err := w.node.Instances(0)
	if err != nil {
		w.t.Fatal(err)
	}
	i := slices.IndexFunc(found, func(f gpu.Instance) bool { return f.UUID == uuid })
	if i < 0 {
		w.t.Fatalf("the GPU has no instance %s: %+v", uuid, found)
	}
	return found[i]
}
