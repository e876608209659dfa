package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"caelum/internal/agent"
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
		Short: "Find what is wrong with this node, and say what to do",
		Long: `doctor checks the agent and its GPUs, slurm.conf as slurmctld has it, this node and the catalogue in slurmctld, the
SPANK plugin's files, and who may open the slices. It changes nothing. Run it as root on a GPU node, and with --controller on
slurmctld's host, where the decision table is; a check that could not be made is reported as such. Its exit status is 0 when
nothing is an error, warnings or not, else 1.`,
		Example: `  caelum doctor
  caelum doctor --controller
  caelum doctor --json | jq '.findings[] | select(.severity == "error")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd, g, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", agent.DefaultConfig, "the agent's configuration")
	f.BoolVar(&o.controller, "controller", false, "this is slurmctld's host: leave out what only GPU nodes have")
	f.StringVar(&o.decisions, "decisions", "/etc/caelum/decisions", "the decision table, where job_submit.lua reads it")
	return cmd
}

func runDoctor(cmd *cobra.Command, g *globals, o doctorOptions) error {
	cfg, err := agent.LoadConfig(o.config)
	if err != nil {
		return err
	}
	// The agent's socket is where caelum.yaml says, unless the caller says otherwise.
	runDir := cfg.RunDir
	if cmd.Flags().Changed("run-dir") {
		runDir = g.runDir
	}
	facts := doctor.Read(
		context.Background(),
		doctor.Place{Config: cfg, RunDir: runDir, Controller: o.controller, Decisions: o.decisions},
		slurm.New(slurm.Options{}),
	)
	found := doctor.Examine(facts)
	where := map[string]any{"node": cfg.Node, "findings": found}
	title := "node " + cfg.Node
	if o.controller {
		title = "slurmctld's host"
		where = map[string]any{"controller": true, "findings": found}
	}
	if g.json {
		err = printJSON(cmd.OutOrStdout(), where)
	} else {
		err = printFindings(cmd.OutOrStdout(), title, found)
	}
	if err != nil {
		return err
	}
	if n := doctor.Count(found, doctor.Error); n > 0 {
		return fmt.Errorf("%s has something wrong: %s", strings.TrimPrefix(title, "node "), count(n, "error"))
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
		count(doctor.Count(found, doctor.Error), "error"),
		count(doctor.Count(found, doctor.Warning), "warning"),
	)
	return err
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
