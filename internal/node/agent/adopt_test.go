package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

// loseLedger removes the ledger of an agent that has one idle instance, starts a new agent, and returns the
// instance's UUID.
func (w *world) loseLedger() string {
	w.t.Helper()
	id := w.startNow("3g.20gb:1")
	uuid := w.lease(id).Slices[0].UUID
	if err := w.fake.Finish(id); err != nil {
		w.t.Fatal(err)
	}
	w.stop()
	w.removeLedger()
	w.start()
	w.publish()
	return uuid
}

// adopted asks the agent to adopt an instance and returns the result.
func (w *world) adopted(uuid string) api.Adoption {
	w.t.Helper()
	all, err := w.agent.Adopt(w.t.Context(), api.AdoptRequest{UUIDs: []string{uuid}})
	if err != nil || len(all) != 1 {
		w.t.Fatalf("%+v, %v", all, err)
	}
	return all[0]
}

// states returns the states of the first GPU's instances by UUID.
func (w *world) states() map[string]string {
	w.t.Helper()
	status, err := w.agent.Status(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	states := map[string]string{}
	for _, in := range status.GPUs[0].Instances {
		states[in.UUID] = in.State
	}
	return states
}

// TestAdopt checks that the agent adopts an idle instance from a lost ledger. This agent and the next one must
// restrict its capability files to root, and lease it like any other.
func TestAdopt(t *testing.T) {
	w := newWorld(t, 1)
	uuid := w.loseLedger()
	if s := w.states()[uuid]; s != "foreign" {
		t.Fatalf("after the ledger was lost the instance is %s", s)
	}
	in := w.instance(uuid)
	files := w.agent.caps.Files(0, in)
	for _, path := range files {
		if err := os.Chmod(path, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if d := w.adopted(uuid); d.Reason != "" || d.State != "idle" || d.UUID != uuid {
		t.Fatalf("%+v", d)
	}
	for _, path := range files {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o400 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	w.stop()
	w.start()
	w.publish()
	if s := w.states()[uuid]; s != "idle" {
		t.Errorf("after a restart the instance is %s", s)
	}
	got := w.granted("3g.20gb")
	if got.UUID == uuid || !got.Reused || got.Start != in.Start {
		t.Errorf("leased %+v, although another program may use the compute instance of %s", got, uuid)
	}
	if d := w.adopted(got.UUID); d.Reason == "" {
		t.Errorf("adopted a leased instance: %+v", d)
	}
}

// TestAdoptAll checks that a request without UUIDs adopts every foreign instance that the agent can adopt, and destroys
// those without a compute instance. For each instance that stays foreign, the result must give a reason.
func TestAdoptAll(t *testing.T) {
	w := newWorld(t, 1)
	uuid := w.loseLedger()
	w.node.Emulator(t, "create", "0", "1g.5gb", "0", "--no-ci")
	w.node.Emulator(t, "fault", "add", "--call", "DESTROY_GI", "--times", "100", "--error", "IN_USE")
	if err := w.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	all, err := w.agent.Adopt(t.Context(), api.AdoptRequest{})
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, d := range all {
		if (d.Reason == "") != (d.UUID == uuid) {
			t.Errorf("%+v", d)
		}
	}
	w.node.Emulator(t, "fault", "clear")
	var incomplete gpu.Instance
	for _, in := range w.agent.node.Cards[0].Foreign {
		incomplete = in
	}
	files := w.agent.caps.Files(0, incomplete)
	all, err = w.agent.Adopt(t.Context(), api.AdoptRequest{})
	if err != nil || len(all) != 1 || all[0].Reason != "" || all[0].State != "" {
		t.Fatalf("%+v, %v, want the instance without a compute instance destroyed", all, err)
	}
	if found, err := w.agent.hw.Instances(0); err != nil || len(found) != 1 || found[0].UUID != uuid {
		t.Errorf("the GPU has %+v, %v, want only %s", found, err, uuid)
	}
	for _, path := range files {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("the destroyed instance's file %s has the mode %v", path, info.Mode())
		}
	}
	if len(files) == 0 {
		t.Error("the instance has no files")
	}
	if states := w.states(); len(states) != 1 || states[uuid] != "idle" {
		t.Errorf("the agent shows %v", states)
	}
}

// TestAdoptRefused checks that the agent does not adopt an instance that a process may be using.
func TestAdoptRefused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *held, uuid string)
		why     string
	}{
		"a process computes on it": {func(w *held, uuid string) { w.compute(uuid) }, "are using the instance"},
		"a process has its file open": {func(w *held, uuid string) {
			w.process(41, 20002, [2]string{w.agent.caps.Files(0, w.instance(uuid))[0], ""})
		}, "held open by"},
		"processes are not listed": {func(w *held, uuid string) {
			w.agent.hw = mute{w.node.NVML}
		}, "couldn't list the processes on the instance"},
		"the instance was removed": {func(w *held, uuid string) {
			w.node.Emulator(w.t, "destroy", "0", fmt.Sprint(w.instance(uuid).GI))
		}, "no foreign instance"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHeld(t, 1)
			uuid := w.loseLedger()
			c.prepare(w, uuid)
			if d := w.adopted(uuid); !strings.Contains(d.Reason, c.why) {
				t.Errorf("%+v, want %q", d, c.why)
			}
			if s := w.states()[uuid]; s == "idle" {
				t.Error("the instance is idle")
			}
		})
	}
}

// TestAdoptBesideUnknownJob checks that no instance is adopted while a job without a lease may hold one.
func TestAdoptBesideUnknownJob(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startNow("3g.20gb:1")
	uuid := w.lease(id).Slices[0].UUID
	file := filepath.Join(w.cfg.RunDir, "jobs", fmt.Sprint(id))
	text := w.leaseFile(id)
	w.stop()
	w.removeLedger()
	// The lease file is also damaged, so the agent cannot restore the lease.
	if err := os.WriteFile(file, []byte(text[:len(text)/2]), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	refused := func(why string) {
		t.Helper()
		all, err := w.agent.Adopt(t.Context(), api.AdoptRequest{UUIDs: []string{uuid}})
		if err == nil || !strings.Contains(err.Error(), why) || w.states()[uuid] != "foreign" {
			t.Errorf("%+v, %v: want %q; the instance is %s", all, err, why, w.states()[uuid])
		}
	}
	refused(fmt.Sprintf("job %d is on this node but has no lease", id))
	w.fake.Epilog(nil)
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	refused(fmt.Sprintf("if job %d is not running on this node, remove the file", id))
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if d := w.adopted(uuid); d.Reason != "" {
		t.Errorf("%+v", d)
	}
}

// TestAdoptBesideOddJob checks that a job whose request cannot be parsed prevents adoptions only if it holds slices.
func TestAdoptBesideOddJob(t *testing.T) {
	for wants, adopts := range map[string]bool{"": true, "3g.20gb:1": false} {
		w := newWorld(t, 1)
		w.stop()
		o := odd{w.fake, map[uint32]bool{}, map[uint32]string{}}
		w.ctl = o
		w.start()
		w.fake.Prolog(func(slurm.Job, string) {})
		j := job(1, "3g.20gb:1")
		if wants == "" {
			j.PerNode = nil
		}
		id := w.submit(j)
		w.publish()
		w.fake.Tick()
		o.problem[id] = "tres-per-node"
		if err := w.agent.allJobsLeased(t.Context()); (err == nil) != adopts || w.state(id) != "RUNNING" {
			t.Errorf("%q, %s: %v", wants, w.state(id), err)
		}
	}
}
