package daemon

import (
	"fmt"

	"github.com/spf13/cobra"

	"caelum/internal/config"
)

// ConfigCommand returns the config command of a program, which omits the keys that only the service other reads. The
// argument path is the value of --config.
func ConfigCommand(path *string, other config.Services) *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Print all settings and where each comes from",
		Long: `config prints each key that this program reads with its value, and as a comment the file and line that
set it, or "default". The output is a valid configuration file. config changes nothing.

EXIT STATUS
  0  the settings are printed
  1  the configuration file has an error or cannot be read`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lines, err := config.Effective(*path, other)
			for _, line := range lines {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			return err
		},
	}
}
