package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"caelum/internal/agent"
	"caelum/internal/doctor"
	"caelum/internal/slurm"
)

func newDoctor(g *globals) *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong with this node, and say what to do",
		Long: `doctor checks the agent and its GPUs, slurm.conf as slurmctld has it, this node and the catalogue in slurmctld, the
SPANK plugin's files, and who may open the slices. It changes nothing. Run it as root on a GPU node; a check that could not
be made is reported as such. Its exit status is 0 when nothing is an error, warnings or not, else 1.`,
		Example: `  caelum doctor
  caelum doctor --json | jq '.findings[] | select(.severity == "error")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd, g, config) },
	}
	cmd.Flags().StringVar(&config, "config", "/etc/caelum/caelum.yaml", "the agent's configuration")
	return cmd
}

func runDoctor(cmd *cobra.Command, g *globals, config string) error {
	cfg, err := agent.LoadConfig(config)
	if err != nil {
		return err
	}
	// The agent's socket is where caelum.yaml says, unless the caller says otherwise.
	runDir := cfg.RunDir
	if cmd.Flags().Changed("run-dir") {
		runDir = g.runDir
	}
	facts := doctor.Read(context.Background(), doctor.Place{Config: cfg, RunDir: runDir}, slurm.New(slurm.Options{}))
	found := doctor.Examine(facts)
	if g.json {
		err = printJSON(cmd.OutOrStdout(), map[string]any{"node": cfg.Node, "findings": found})
	} else {
		err = printFindings(cmd.OutOrStdout(), cfg.Node, found)
	}
	if err != nil {
		return err
	}
	if n := doctor.Count(found, doctor.Error); n > 0 {
		return fmt.Errorf("%s has something wrong: %s", cfg.Node, count(n, "error"))
	}
	return nil
}

func printFindings(w io.Writer, node string, found []doctor.Finding) error {
	fmt.Fprintf(w, "node %s\n", node)
	for _, f := range found {
		fmt.Fprintf(w, "%-8s %s: %s\n", f.Severity, f.Check, printable(f.Text))
		if f.Next != "" {
			fmt.Fprintf(w, "         -> %s\n", f.Next)
		}
	}
	_, err := fmt.Fprintf(w, "%s, %s\n", count(doctor.Count(found, doctor.Error), "error"), count(doctor.Count(found, doctor.Warning), "warning"))
	return err
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
