package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigOfOthers loads a configuration file that an ordinary user could change. A process that runs as root must
// reject this file, because the file contains the path of a library to load.
func TestConfigOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes files of another user")
	}
	const user = 20001
	path := filepath.Join(t.TempDir(), "caelum.yaml")
	write := func() {
		if err := os.WriteFile(path, []byte("nvml_library: /tmp/evil.so\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if c, err := Load(path); err != nil || c.NVMLLibrary != "/tmp/evil.so" {
		t.Fatalf("root's own file: %+v, %v", c, err)
	}
	for name, spoil := range map[string]func() error{
		"belongs to uid 20001": func() error { return os.Chown(path, user, user) },
		"is writable by group": func() error { return os.Chmod(path, 0o664) },
		"caelum is writable by group and others": func() error {
			dir := filepath.Join(filepath.Dir(path), "caelum")
			path = filepath.Join(dir, "caelum.yaml")
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			write()
			return os.Chmod(dir, 0o777)
		},
	} {
		was := path
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if c, err := Load(path); err == nil || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "couldn't use "+path) ||
			c.NVMLLibrary != "" {
			t.Errorf("want %q, got %v", name, err)
		}
		if _, err := load(path, user); err != nil {
			t.Errorf("a command that a user runs refuses the file: %v", err)
		}
		path = was
		if err := os.Chown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := LoadOwn(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a file that does not exist was loaded")
	}
}
