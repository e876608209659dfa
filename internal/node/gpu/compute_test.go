package gpu_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
)

// modes runs a test with both values of NVreg_ModifyDeviceFiles.
func modes(t *testing.T, test func(t *testing.T, option ...string)) {
	for _, value := range []string{"0", "1"} {
		t.Run("ModifyDeviceFiles="+value, func(t *testing.T) { test(t, "--modify-device-files", value) })
	}
}

// TestWholeComputeInstances checks that a new instance of each profile has all SMs, and that listing and re-creating
// agree.
func TestWholeComputeInstances(t *testing.T) {
	modes(t, func(t *testing.T, option ...string) {
		for _, model := range []string{"A30-24GB", "A100-40GB", "H100-80GB", "B200-180GB", "RTX-PRO-6000-96GB"} {
			node := gputest.New(t, model, 2, option...)
			gpus, err := node.GPUs()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range gpus[1].Model.Profiles {
				if p.Gfx {
					continue
				}
				for _, start := range p.Starts {
					in, err := node.Create(1, p.Name, start)
					if err != nil || !in.Whole || in.SMs != p.SM || in.MaxSMs != p.SM || in.Start != start {
						t.Fatalf("%s: %s at %d, which has %d SMs: %+v, %v", model, p.Name, start, p.SM, in, err)
					}
					list, err := node.Instances(1)
					if err != nil || len(list) != 1 || fmt.Sprint(list[0]) != fmt.Sprint(in) {
						t.Fatalf("%s: listed %+v, %v, but created %+v", model, list, err, in)
					}
					made, err := node.Remake(1, in)
					if err != nil || made.UUID == in.UUID || !made.Whole || made.GI != in.GI {
						t.Fatalf("%s: re-created %+v, %v, before %+v", model, made, err, in)
					}
					if there, err := node.Exists(1, in); err != nil || there {
						t.Errorf("%s: an instance with an earlier UUID exists (%v)", model, err)
					}
					if there, err := node.Exists(1, made); err != nil || !there {
						t.Errorf("%s: an instance does not exist (%v)", model, err)
					}
					if err := node.Destroy(1, in.GI); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}

// TestOtherPrograms lists, checks and destroys instances that another program created, whose capability files may not
// exist. The files' owners and modes must not change.
func TestOtherPrograms(t *testing.T) {
	modes(t, func(t *testing.T, option ...string) {
		node := gputest.New(t, "H100-80GB", 1, option...)
		if _, err := node.GPUs(); err != nil {
			t.Fatal(err)
		}
		own, err := node.Create(0, "1g.10gb", 0)
		if err != nil {
			t.Fatal(err)
		}
		caps := gpu.Caps{Dev: node.Dev, Proc: node.Proc}
		if err := caps.Make(0, own); err != nil {
			t.Fatal(err)
		}
		if err := caps.Open(0, own, 20001); err != nil {
			t.Fatal(err)
		}
		node.Emulator(t, "create", "0", "3g.40gb", "4")
		node.Emulator(t, "create", "0", "1g.10gb", "2", "--no-ci")
		before := owners(t, node)
		list, err := node.Instances(0)
		if err != nil || len(list) != 3 {
			t.Fatalf("%+v, %v", list, err)
		}
		if list[0].UUID != own.UUID || len(list[1].CIs) != 0 || list[1].UUID != "" || list[2].UUID == "" ||
			!list[2].Whole {
			t.Errorf("%+v", list)
		}
		for path, was := range before {
			if now := owners(t, node)[path]; now != was {
				t.Errorf("%s changed from %s to %s", path, was, now)
			}
		}
		for _, in := range list {
			if there, err := node.Exists(0, in); err != nil || !there {
				t.Errorf("%+v does not exist (%v)", in, err)
			}
			if err := node.Destroy(0, in.GI); err != nil {
				t.Error(err)
			}
			if there, err := node.Exists(0, in); err != nil || there {
				t.Errorf("%+v exists after its destruction (%v)", in, err)
			}
		}
	})
}

// owners describes the owner and mode of each capability file.
func owners(t *testing.T, node *gputest.Node) map[string]string {
	t.Helper()
	found := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(node.Dev, "nvidia-caps", "*"))
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		found[path] = fmt.Sprint(info.Mode(), " owner ", info.Sys().(*syscall.Stat_t).Uid)
	}
	return found
}

// TestRemakeInUse checks that the driver refuses to destroy a compute instance with a subscribed client, and that the
// compute instance then still exists.
func TestRemakeInUse(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 1)
	in := create2g(t, node)
	node.Emulator(t, "hold", "0", fmt.Sprint(in.GI))
	if _, err := node.Remake(0, in); !errors.Is(err, gpu.ErrInUse) {
		t.Errorf("re-creating a compute instance in use: %v", err)
	}
	node.Emulator(t, "unhold", "0", fmt.Sprint(in.GI))
	if there, err := node.Exists(0, in); err != nil || !there {
		t.Errorf("exists: %v, %v", there, err)
	}
	node.Emulator(t, "destroy", "0", fmt.Sprint(in.GI))
	if _, err := node.Remake(0, in); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("re-creating the compute instance of an instance that does not exist: %v", err)
	}
}

// TestConfigFiles checks the files of mig/config and mig/monitor after OpenNVML, with both settings.
func TestConfigFiles(t *testing.T) {
	modes(t, func(t *testing.T, option ...string) {
		node := gputest.New(t, "A100-40GB", 1, option...)
		for _, minor := range []string{"1", "2"} {
			path := filepath.Join(node.Dev, "nvidia-caps", "nvidia-cap"+minor)
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o400 {
				t.Errorf("%s: %v, %v", path, info, err)
			}
		}
		for _, name := range []string{"config", "monitor"} {
			text, err := os.ReadFile(filepath.Join(node.Proc, "driver/nvidia/capabilities/mig", name))
			if err != nil || !strings.Contains(string(text), "DeviceFileModify: 0") {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
		path := filepath.Join(node.Dev, "nvidia-caps", "nvidia-cap2")
		if err := os.Chmod(path, 0o440); err != nil { // an administrator's decision
			t.Fatal(err)
		}
		if err := (gpu.Caps{Dev: node.Dev, Proc: node.Proc}).Prepare(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o440 {
			t.Errorf("Prepare changed the mode to %v, %v", info.Mode(), err)
		}
	})
}
