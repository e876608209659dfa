package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/controller/decisions"
	"caelum/internal/controller/learn"
)

type decisionsOptions struct {
	*globals
	table string
}

func newDecisions(g *globals) *cobra.Command {
	o := decisionsOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "decisions",
		Short: "Check or change the decision table that job_submit.lua reads",
		Long: `decisions checks the decision table or changes one line of it. job_submit.lua rereads a changed
table at the next job submission, so slurmctld does not need to be restarted. Run these commands on
slurmctld's host.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&o.table, "table", "",
		"the decision table; default: the path set by the table key in the configuration file")
	cmd.AddCommand(newDecisionsCheck(g, &o), newDecisionsSet(g, &o), newDecisionsRemove(g, &o),
		newDecisionsBypass(g, &o))
	return cmd
}

func newDecisionsCheck(g *globals, o *decisionsOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Print the lines of a decision table that job_submit.lua would reject",
		Long: `check reads FILE or, without FILE, the site's decision table, and prints each fault with its line.
If job_submit.lua would reject the table, the exit status is 1. If the table is valid, check warns
about partitions that slurmctld does not have. To be safe, edit a copy of the table, check the copy,
and then copy it over the table. Do not move it: the table may be a link.`,
		Example: `  caelum decisions check
  caelum decisions check decisions.new && cp decisions.new /etc/caelum/decisions`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var path string
			var err error
			if len(args) == 1 {
				path = args[0]
			} else if path, err = o.path(); err != nil {
				return err
			}
			err = checkTable(cmd.OutOrStdout(), g, path)
			if err == nil {
				warnPartitions(cmd.Context(), cmd.ErrOrStderr(), newPartitionsClient(), partitionsOfTable(path))
			}
			return err
		},
	}
}

func newDecisionsSet(g *globals, o *decisionsOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "set WORD VALUE...",
		Short: "Write one line into the decision table",
		Long: `set writes one line into the decision table and increments the table's generation. The line begins
with partition, default, whole, grow, max_nodes, max_cpus, size_message, bypass, alias, shard,
per_gpu, args, key, user or site, and replaces any lines with the same key, that is, with the same first
word and, for partition, alias, shard, per_gpu, args, key, user and site, the same second word. A key
line also replaces the learned args line of its key. The file is replaced atomically and keeps its
owner, mode and comments. If job_submit.lua would reject the new table, set changes nothing. If the
table is full (20,000 lines or 1 MiB), set drops the oldest learned lines. To change profile and model
lines, whose order matters, edit the table by hand. set warns if the line names a partition that
slurmctld does not have.`,
		Example: `  caelum decisions set default 1g.5gb
  caelum decisions set partition gpu full grow=oom`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := o.change(cmd.OutOrStdout(), g, "", func(path string) (bool, error) {
				return learn.SetLine(path, args)
			})
			if err == nil {
				warnPartitions(cmd.Context(), cmd.ErrOrStderr(), newPartitionsClient(), partitionsOfLine(args))
			}
			return err
		},
	}
}

// change applies edit to the decision table. It then prints text, which describes the new state, or a general message
// if text is empty.
func (o *decisionsOptions) change(w io.Writer, g *globals, text string, edit func(path string) (bool, error)) error {
	path, err := o.path()
	if err != nil {
		return err
	}
	if err := becomeOwner(path); err != nil {
		return err
	}
	changed, err := edit(path)
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(w, map[string]any{"table": path, "changed": changed})
	}
	state := "the table already contains this line"
	if changed {
		state = "the table was changed; the change applies to jobs submitted from now on"
	}
	if text != "" {
		state += ": " + text
	}
	_, err = fmt.Fprintf(w, "%s: %s\n", path, state)
	return err
}

// path returns the decision table's path.
func (o *decisionsOptions) path() (string, error) {
	if o.table != "" {
		return o.table, nil
	}
	cfg, err := config.Load(o.config)
	return cfg.Table, err
}

// checkTable prints the faults of the decision table at path and returns an error if there are any.
func checkTable(w io.Writer, g *globals, path string) error {
	faults, err := learn.CheckTable(path)
	if err != nil {
		return err
	}
	if g.json {
		all := append([]decisions.Fault{}, faults...) // so that the JSON contains an empty list instead of null
		err = printJSON(w, map[string]any{"table": path, "faults": all})
	} else {
		err = printFaults(w, path, faults)
	}
	if err != nil || len(faults) == 0 {
		return err
	}
	return fmt.Errorf("%s has %s: job_submit.lua would keep its last valid table until slurmctld restarts and "+
		"would then refuse every GPU request", path, plural(len(faults), "fault"))
}

func printFaults(w io.Writer, path string, faults []decisions.Fault) error {
	if len(faults) == 0 {
		_, err := fmt.Fprintf(w, "%s: valid\n", printable(path))
		return err
	}
	for _, f := range faults {
		where := path
		if f.Line > 0 {
			where = fmt.Sprintf("%s:%d", path, f.Line)
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", printable(where), printable(f.Text)); err != nil {
			return err
		}
	}
	return nil
}
