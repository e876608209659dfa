package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/doctor"
	"caelum/internal/slurm"
)

type doctorOptions struct {
	config     string
	controller bool
	decisions  string
}

func newDoctor(g *globals) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this node for problems, and print how to solve them",
		Long: `doctor checks the agent and its GPUs, the configuration that slurmctld has loaded,
slurmctld's records of this node and of the catalogue nodes, the files of the SPANK plugin, and the
owners and modes of the slices' device files. It makes no changes.

Run doctor as root on a GPU node. On slurmctld's host, which has the decision table, use
--controller. A check that doctor cannot carry out is reported as "not checked". The exit status is
1 if doctor finds an error, and 0 otherwise, even if it finds warnings.`,
		Example: `  caelum doctor
  caelum doctor --controller
  caelum doctor --json | jq '.findings[] | select(.severity == "error")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd, g, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", config.DefaultPath, "the agent's configuration file")
	f.BoolVar(&o.controller, "controller", false, "this is slurmctld's host: omit the checks of GPU nodes")
	f.StringVar(&o.decisions, "decisions", "/etc/caelum/decisions", "the decision table that job_submit.lua reads")
	return cmd
}

func runDoctor(cmd *cobra.Command, g *globals, o doctorOptions) error {
	cfg, err := config.Load(o.config)
	if err != nil {
		return err
	}
	// If the command line does not contain --run-dir, the agent's socket is in the run_dir of caelum.yaml.
	runDir := cfg.RunDir
	if cmd.Flags().Changed("run-dir") {
		runDir = g.runDir
	}
	facts := doctor.Read(
		context.Background(),
		doctor.Host{Config: cfg, RunDir: runDir, Controller: o.controller, Decisions: o.decisions},
		slurm.New(slurm.Options{}),
	)
	found := doctor.Examine(facts)
	output := map[string]any{"node": cfg.Node, "findings": found}
	title := "node " + cfg.Node
	if o.controller {
		title = "slurmctld's host"
		output = map[string]any{"controller": true, "findings": found}
	}
	if g.json {
		err = printJSON(cmd.OutOrStdout(), output)
	} else {
		err = printFindings(cmd.OutOrStdout(), title, found)
	}
	if err != nil {
		return err
	}
	if n := doctor.Count(found, doctor.Error); n > 0 {
		return fmt.Errorf("found %s on %s", plural(n, "error"), strings.TrimPrefix(title, "node "))
	}
	return nil
}

func printFindings(w io.Writer, title string, found []doctor.Finding) error {
	fmt.Fprintln(w, title)
	for _, f := range found {
		fmt.Fprintf(w, "%-8s %s: %s\n", f.Severity, f.Check, printable(f.Text))
		if f.Next != "" {
			fmt.Fprintf(w, "         -> %s\n", f.Next)
		}
	}
	_, err := fmt.Fprintf(
		w,
		"%s, %s\n",
		plural(doctor.Count(found, doctor.Error), "error"), plural(doctor.Count(found, doctor.Warning), "warning"),
	)
	return err
}
