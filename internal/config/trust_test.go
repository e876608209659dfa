package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigOfOthers loads configuration files that an ordinary user can change. A process that runs as root must
// reject these files, because the configuration names a library that the process loads.
func TestConfigOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this test needs root, because it creates files of another user")
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
		t.Fatalf("Load of root's own file returned %+v, %v", c, err)
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
			t.Errorf("Load returned %v, want an error with %q", err, name)
		}
		if _, err := load(path, user); err != nil {
			t.Errorf("load rejected the file for a user other than root: %v", err)
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
		t.Error("LoadOwn returned no error for a file that does not exist")
	}
}
