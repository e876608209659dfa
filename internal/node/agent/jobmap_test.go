package agent

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/internal/config"
	"caelum/internal/node/gpu"
)

// mapped reads a job map.
func mapped(t testing.TB, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // a directory, or a file that the agent has just removed
		}
		files[e.Name()] = string(text)
	}
	return files
}

// mapOf returns the files of the job map that a lease requires.
func mapOf(w *world, id uint32) map[string]string {
	files := map[string]string{}
	for _, s := range w.lease(id).Slices {
		name := fmt.Sprint(s.GPU)
		if in := w.agent.node.Held(id, s); in.GI != gpu.FullGI {
			name += fmt.Sprintf(".%d", in.GI)
		}
		files[name] = fmt.Sprintf("%d\n", id)
		files[s.UUID] = fmt.Sprintf("%d 20001\n", id)
	}
	return files
}

func newMapWorld(t *testing.T) *world {
	return newWorld(t, 2, func(c *config.Config) { c.JobMapDir = filepath.Join(t.TempDir(), "map") })
}

// TestJobMap checks that a job's slices are in the job map when its prolog ends, and that the map is empty when its
// epilog has ended. A restart of the agent must restore the map.
func TestJobMap(t *testing.T) {
	w := newMapWorld(t)
	one, two := w.startNow("1g.5gb:1"), w.submit(job(2, "3g.20gb:2"))
	w.publish()
	w.fake.Tick()
	want := mapOf(w, one)
	maps.Copy(want, mapOf(w, two))
	if got := mapped(t, w.cfg.JobMapDir); len(want) != 6 || !maps.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for name := range want {
		info, err := os.Stat(filepath.Join(w.cfg.JobMapDir, name))
		if err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	w.stop()
	for name, text := range map[string]string{
		"1": "7\n", "0.9": "7\n", "MIG-0-0": "7 7\n", ".new-1": "", "README": "kept", "0x1": "kept",
	} {
		if err := os.WriteFile(filepath.Join(w.cfg.JobMapDir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lost := w.lease(two).Slices[0].UUID
	if err := os.Remove(filepath.Join(w.cfg.JobMapDir, lost)); err != nil {
		t.Fatal(err)
	}
	w.start()
	want["README"], want["0x1"] = "kept", "kept"
	if got := mapped(t, w.cfg.JobMapDir); !maps.Equal(got, want) {
		t.Errorf("after a restart: %q, want %q", got, want)
	}
	w.fake.Finish(one)
	w.fake.Finish(two)
	w.fake.RunEpilogs()
	if got := mapped(t, w.cfg.JobMapDir); len(got) != 2 {
		t.Errorf("after the epilogs: %q", got)
	}
}

// TestJobMapOfReusedSlice checks that the job map names the new job after a slice has been reused.
func TestJobMapOfReusedSlice(t *testing.T) {
	w := newMapWorld(t)
	first := w.startNow("1g.5gb:1")
	uuid := w.lease(first).Slices[0].UUID
	w.fake.Finish(first)
	w.fake.RunEpilogs()
	second := w.startNow("1g.5gb:1")
	if s := w.lease(second).Slices[0]; s.UUID != uuid {
		t.Fatalf("the second job got another instance: %+v", s)
	}
	if got, want := mapped(t, w.cfg.JobMapDir), mapOf(w, second); !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestJobMapOfAnother checks that, if another user can change the directory, the agent writes no files there but
// starts the job nevertheless, and writes the missing files later.
func TestJobMapOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change the owner of a directory")
	}
	w := newMapWorld(t)
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.Mkdir(victim, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(w.cfg.JobMapDir, 20002, 20002); err != nil {
		t.Fatal(err)
	}
	// The user replaces the directory's files with links. Root must neither follow nor remove them.
	if err := os.Symlink(filepath.Join(victim, "f"), filepath.Join(w.cfg.JobMapDir, "0")); err != nil {
		t.Fatal(err)
	}
	id := w.startNow("1g.5gb:1")
	w.lease(id)
	entries, _ := os.ReadDir(w.cfg.JobMapDir)
	if left, _ := os.ReadDir(victim); len(entries) != 1 || len(left) != 0 {
		t.Errorf("the agent changed %v and %v", entries, left)
	}
	if !strings.Contains(w.log.String(), "couldn't update the job map") {
		t.Error(w.log.String())
	}
	if err := os.Chown(w.cfg.JobMapDir, 0, 0); err != nil {
		t.Fatal(err)
	}
	w.agent.updateJobMap()
	if got, want := mapped(t, w.cfg.JobMapDir), mapOf(w, id); !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
