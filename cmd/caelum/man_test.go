package main

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"caelum/internal/cli/man"
)

var manDir = flag.String("man", "", "write the manual pages into this directory")

// TestManPages writes a manual page for each command, and caelum.yaml(5). The build runs it with the -man flag.
func TestManPages(t *testing.T) {
	dir := cmp.Or(*manDir, t.TempDir())
	if err := man.Commands(newRoot(), dir, "1"); err != nil {
		t.Fatal(err)
	}
	keys, err := os.ReadFile("../../docs/configure.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := man.Configuration(string(keys))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "caelum.yaml.5"), page, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range append(documented(newRoot()), newRoot()) {
		name := man.Page(cmd, "1")
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s has no page: %v", cmd.CommandPath(), err)
		}
	}
}
