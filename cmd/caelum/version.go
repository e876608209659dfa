package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"caelum/internal/cli/doctor"
	"caelum/internal/version"
)

func newVersion(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the release of Caelum, and the Slurm release of the installed plugin",
		Long: `version shows this program's release and commit, and the Go release that compiled it. It also lists
the spank_caelum.so files in the directories where packages install Slurm's plugins, and the Slurm
release for which each one was built. It needs neither an agent nor slurmctld.`,
		Example: `  caelum version
  caelum version --json | jq -r .plugins[].slurm`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printVersion(cmd.OutOrStdout(), g, versionJSON{version.Current(), doctor.InstalledPlugins()})
		},
	}
}

// versionJSON is the JSON form of caelum version.
type versionJSON struct {
	version.Build
	Plugins []doctor.InstalledPlugin `json:"plugins"`
}

func printVersion(w io.Writer, g *globals, v versionJSON) error {
	if g.json {
		return printJSON(w, v)
	}
	_, err := fmt.Fprintf(w, "caelum %s\ncommit %s\n%s\n", v.Version, v.Commit, v.Go)
	for _, p := range v.Plugins {
		if err == nil {
			_, err = fmt.Fprintf(w, "plugin for Slurm %s: %s\n", cmp.Or(p.Slurm, "unknown"), printable(p.File))
		}
	}
	return err
}
