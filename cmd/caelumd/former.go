package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// newFormer returns the hidden commands watch and prepare, which caelum-watch replaces. They run caelum-watch, so that
// units with the earlier commands continue to work.
func newFormer(path *string) []*cobra.Command {
	former := func(use string, args ...string) *cobra.Command {
		return &cobra.Command{
			Use:    use,
			Hidden: true,
			Args:   cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				return becomeWatcher(append([]string{"caelum-watch", "--config", *path}, args...))
			},
		}
	}
	return []*cobra.Command{former("watch"), former("prepare", "prepare")}
}

// becomeWatcher replaces this process with the program caelum-watch in caelumd's directory.
func becomeWatcher(args []string) error {
	own, err := os.Executable()
	if err == nil {
		err = syscall.Exec(filepath.Join(filepath.Dir(own), args[0]), args, os.Environ())
	}
	return fmt.Errorf("couldn't start caelum-watch: %w; install the caelum-controller package", err)
}
