package metrics

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func testMetrics() *Metrics { return New(func() State { return node([]string{"1g.5gb"}, busyGPU) }) }

func TestWriteFile(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // as in caelumd.service
	path := filepath.Join(t.TempDir(), "caelum.prom")
	m := testMetrics()
	for range 2 {
		before, _ := os.Stat(path)
		if err := m.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		owner := info.Sys().(*syscall.Stat_t)
		if info.Mode() != 0o644 || int(owner.Uid) != os.Geteuid() || int(owner.Gid) != os.Getegid() {
			t.Errorf("the file has the mode %v, the user %d and the group %d", info.Mode(), owner.Uid, owner.Gid)
		}
		if before != nil && os.SameFile(before, info) {
			t.Error("the file was changed in place, so node_exporter can read an incomplete file")
		}
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != page(t, m) {
		t.Errorf("the file contains %q (%v)", text, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("the directory contains %v", left)
	}
}

// TestWriteFileOverLinks checks that a write does not follow links, and replaces a killed agent's incomplete file.
func TestWriteFileOverLinks(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "caelum.prom")
	if err := os.WriteFile(victim, []byte("intact"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{path, filepath.Join(dir, ".caelum.prom.new")} {
		if err := os.Symlink(victim, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := testMetrics().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(victim)
	info, _ := os.Stat(victim)
	if string(text) != "intact" || info.Mode() != 0o600 {
		t.Errorf("the write changed the link's target: %q, %v", text, info.Mode())
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the link was not replaced: %v, %v", info.Mode(), err)
	}
}

func TestWriteFileWithoutDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	if err := testMetrics().WriteFile(filepath.Join(dir, "caelum.prom")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("WriteFile returned %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("WriteFile created the directory")
	}
}

// TestWriteFileOfAnother checks that root does not write to a directory that another user can change.
func TestWriteFileOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this test needs root, because it creates a directory of another user")
	}
	dir := filepath.Join(t.TempDir(), "another")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, 20001, 20001)); err != nil {
		t.Fatal(err)
	}
	err := testMetrics().WriteFile(filepath.Join(dir, "caelum.prom"))
	if err == nil || !strings.Contains(err.Error(), "belongs to uid 20001") {
		t.Errorf("WriteFile returned %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("the directory contains %v", left)
	}
}
