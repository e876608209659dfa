package main

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"caelum/internal/cli/man"
)

var manDir = flag.String("man", "", "write the manual pages into this directory")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"caelum-watch": main})
}

// TestScripts runs testdata/*.txtar without slurmctld.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata"})
}

// TestManPages writes a manual page for each command. The build runs it with the -man flag.
func TestManPages(t *testing.T) {
	dir := cmp.Or(*manDir, t.TempDir())
	if err := man.Commands(command(), dir, "8"); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"caelum-watch.8", "caelum-watch-prepare.8", "caelum-watch-version.8"} {
		if _, err := os.Stat(filepath.Join(dir, page)); err != nil {
			t.Error(err)
		}
	}
}
