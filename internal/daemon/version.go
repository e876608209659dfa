package daemon

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"caelum/internal/version"
)

// VersionCommand returns the version command of a program.
func VersionCommand(program string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the release of Caelum",
		Long: `version shows this program's release and commit, and the Go release that compiled it.

EXIT STATUS
  0  always`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := version.Current()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\ncommit %s\n%s\n", program, v.Version, v.Commit, v.Go)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
