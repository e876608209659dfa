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

// TestManPages writes a manual page for each command. The build runs it with the -man flag.
func TestManPages(t *testing.T) {
	dir := cmp.Or(*manDir, t.TempDir())
	if err := man.Commands(command(), dir, "8"); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range append(command().Commands(), command()) {
		if cmd.Hidden {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, man.Page(cmd, "8"))); err != nil {
			t.Error(err)
		}
	}
}
