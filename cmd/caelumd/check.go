package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"caelum/internal/config"
)

func newCheck(path *string) *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file, and print each fault with its line number",
		Long: `check reads FILE or, without FILE, the agent's configuration file. It prints each unknown key, wrong
type and invalid value with its line number. It needs neither root privileges nor a GPU and changes
nothing. Without a GPU, it cannot know the node's profiles, so it prints a warning for profiles that
no known GPU model has. If it runs as root and without FILE, it also checks whether other users can
change the file.

EXIT STATUS
  0  the file has no error; it may have warnings
  1  the file has an error or cannot be read`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return checkFile(cmd.OutOrStdout(), args[0])
			}
			err := checkFile(cmd.OutOrStdout(), *path)
			if err == nil || *path == config.DefaultPath && errors.Is(err, fs.ErrNotExist) {
				_, err = config.Load(*path)
			}
			return err
		},
	}
}

// checkFile prints the faults in the file at path. It returns an error if any of them is not a warning.
func checkFile(w io.Writer, path string) error {
	faults, err := config.CheckFile(path)
	if err != nil {
		return fmt.Errorf("couldn't read the configuration: %w", err)
	}
	count := 0
	for _, f := range faults {
		severity := "error"
		if f.Warning {
			severity = "warning"
		} else {
			count++
		}
		fmt.Fprintf(w, "%s:%d: %s: %s\n", path, cmp.Or(f.Line, 1), severity, f.Text)
	}
	switch {
	case count == 1:
		return fmt.Errorf("%s: 1 invalid line; correct the line listed above", path)
	case count > 1:
		return fmt.Errorf("%s: %d invalid lines; correct the lines listed above", path, count)
	}
	_, err = fmt.Fprintf(w, "%s: valid\n", path)
	return err
}
