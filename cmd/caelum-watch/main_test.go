package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"caelum/internal/cli/man"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"caelum-watch": main})
}

// TestScripts runs testdata/*.txtar without slurmctld.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata"})
}

// TestManPages writes a manual page for each command. The build runs it with the -man flag.
func TestManPages(t *testing.T) { man.Test(t, command, "8") }
