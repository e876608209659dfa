package main

import (
	"testing"

	"caelum/internal/cli/man"
)

// TestManPages writes a manual page for each command. The build runs it with the -man flag.
func TestManPages(t *testing.T) { man.Test(t, command, "8") }
