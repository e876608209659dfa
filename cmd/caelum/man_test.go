package main

import (
	"os"
	"path/filepath"
	"testing"

	"caelum/internal/cli/man"
)

// TestManPages writes a manual page for each command, and caelum.yaml(5). The build runs it with the -man flag.
func TestManPages(t *testing.T) {
	dir := man.Test(t, newRoot, "1")
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
}
