package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/controller/repo"
	"caelum/internal/node/ledger"
	"caelum/internal/sqlite"
)

// newSchema returns the schema command. Before a Debian or RPM package replaces this release with another, it runs
// schema to check that the other release can read the databases.
func newSchema(path *string) *cobra.Command {
	var supported string
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Show the versions of the database schemas, or compare them with another release",
		Long: `schema prints the versions of the database schemas that this release of Caelum uses. Each Debian or
RPM package contains the line that its own release prints. Before it replaces an installed release,
it runs that release's "caelumd schema --supported LINE", which compares LINE with the databases on
this host. schema does not change the databases, and it works while the agent is running.

EXIT STATUS
  0  --supported is not given, or no database has a newer version than LINE
  1  a database has a newer version than LINE or cannot be read; the reason is on standard error`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if supported != "" {
				return checkSchemas(*path, supported)
			}
			return printSchemas(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&supported, "supported", "", "the line printed by the other release's schema command")
	return cmd
}

// database describes a database of caelumd: the ledger or the repository.
type database struct {
	name      string
	path      func(config.Config) string
	supported func() int
	versionAt func(path string) (int, error)
}

var databases = []database{
	{
		"ledger", func(c config.Config) string { return filepath.Join(c.StateDir, "ledger.db") },
		ledger.Supports, ledger.VersionAt,
	},
	{"repository", func(c config.Config) string { return c.Repo }, repo.Supports, repo.VersionAt},
}

// printSchemas prints the schema versions that this release supports, for example "ledger=2,repository=3".
func printSchemas(w io.Writer) error {
	var all []string
	for _, d := range databases {
		all = append(all, fmt.Sprintf("%s=%d", d.name, d.supported()))
	}
	_, err := fmt.Fprintln(w, strings.Join(all, ","))
	return err
}

// checkSchemas returns an error if a database on this host has a newer schema version than supported allows. The
// argument supported is a line in the format of printSchemas. A damaged database is not reported as an error, because
// no release can use it. If the configuration is invalid, the default paths are used.
func checkSchemas(path, supported string) error {
	cfg, err := config.Load(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "caelumd:", err)
		cfg = config.Defaults()
	}
	limits := map[string]int{}
	for word := range strings.SplitSeq(supported, ",") {
		name, number, _ := strings.Cut(word, "=")
		if limits[name], err = strconv.Atoi(number); err != nil {
			return fmt.Errorf("--supported: %q contains no version; specify the line that `caelumd schema` of the "+
				"other release prints", word)
		}
	}
	for _, d := range databases {
		file := d.path(cfg)
		switch has, err := d.versionAt(file); {
		case errors.Is(err, sqlite.ErrDamaged):
		case err != nil:
			return err
		case has > limits[d.name]:
			return fmt.Errorf(
				"the %s %s has schema version %d, but the other release supports at most version %d; "+
					"keep this release, or drain the node and move the file to another directory",
				d.name, file, has, limits[d.name],
			)
		}
	}
	return nil
}
