package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/cli/doctor"
	"caelum/internal/config"
	"caelum/internal/controller/repo"
	"caelum/internal/slurm"
)

type doctorOptions struct {
	controller bool
	decisions  string
	nhc        bool
}

func newDoctor(g *globals) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this node for problems and explain how to fix them",
		Long: `doctor checks the agent and its GPUs, the configuration that slurmctld has loaded,
slurmctld's records of this node and of the catalogue nodes, the files of the SPANK plugin, and the
owners and modes of the slices' device files. It makes no changes.

Run doctor as root on a GPU node. On slurmctld's host, which has the decision table, use
--controller. Without it, doctor checks nothing on a host of slurmctld that has no agent and is not
a node in slurm.conf. Checks that cannot be carried out are reported as "not checked". The exit
status is 1 if doctor finds an error, and 0 otherwise, even if there are warnings.

With --nhc, doctor serves as a check for node health checkers: it checks only this node, runs no
Slurm commands, waits at most 4 seconds for the agent and the driver, and prints a single line, "OK:
..." (exit status 0) or "ERROR: ..." (exit status 1).`,
		Example: `  caelum doctor
  caelum doctor --controller
  caelum doctor --nhc
  caelum doctor --json | jq '.findings[] | select(.severity == "error")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.nhc && (o.controller || g.json):
				return usageError{errors.New("--nhc cannot be combined with --controller or --json")}
			case o.nhc:
				return runNHC(cmd, g, o)
			}
			return runDoctor(cmd, g, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.controller, "controller", false, "this is slurmctld's host: omit the checks for GPU nodes")
	f.StringVar(&o.decisions, "decisions", "/etc/caelum/decisions", "the decision table that job_submit.lua reads")
	f.BoolVar(&o.nhc, "nhc", false, "check only this node, without slurmctld, and print one line for a node health "+
		"checker")
	return cmd
}

// nhcTimeout is the time limit for --nhc. LBNL Node Health Check's check_cmd_status and check_cmd_output kill a command
// after 5 seconds by default (scripts/lbnl_cmd.nhc).
const nhcTimeout = 4 * time.Second

// runNHC prints one line for a node health checker. If it returns an error, it has already printed the reason.
func runNHC(cmd *cobra.Command, g *globals, o doctorOptions) error {
	var found []doctor.Finding
	node := ""
	if cfg, err := config.Load(g.config); err != nil {
		found = []doctor.Finding{{Check: "configuration", Text: err.Error()}}
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), nhcTimeout)
		defer cancel()
		found = doctor.NodeFaults(ctx, doctor.Host{Config: cfg, RunDir: runDirOf(cmd, g, cfg)})
		node = cfg.Node
	}
	if len(found) == 0 {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "OK: caelum found no faults on node %s\n", node)
		return err
	}
	more := ""
	if n := len(found) - 1; n > 0 {
		more = fmt.Sprintf(" (and %s; run `caelum doctor`)", plural(n, "more error"))
	}
	line := fmt.Sprintf("ERROR: caelum %s: %s%s", found[0].Check, found[0].Text, more)
	fmt.Fprintln(cmd.OutOrStdout(), printable(strings.ReplaceAll(line, "\n", " ")))
	return errPrinted
}

// runDirOf returns the directory of the agent's socket: the value of --run-dir or, if this flag is not given, run_dir
// in caelum.yaml.
func runDirOf(cmd *cobra.Command, g *globals, cfg config.Config) string {
	if cmd.Flags().Changed("run-dir") {
		return g.runDir
	}
	return cfg.RunDir
}

func runDoctor(cmd *cobra.Command, g *globals, o doctorOptions) error {
	cfg, err := config.Load(g.config)
	if err != nil {
		return err
	}
	facts := doctor.Read(
		context.Background(),
		doctor.Host{Config: cfg, RunDir: runDirOf(cmd, g, cfg), Controller: o.controller, Decisions: o.decisions},
		slurm.New(slurm.Options{}),
	)
	// Reading the repository is last, because this process then no longer runs as root.
	if path := repo.Find(cfg.Repo); o.controller && becomeOwner(path) == nil {
		facts.ReadLearning(context.Background(), cfg, path, slurm.New(slurm.Options{}))
	}
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
	return errors.Join(err, foundErrors(title, found))
}

// foundErrors returns an error if the findings contain errors.
func foundErrors(title string, found []doctor.Finding) error {
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
