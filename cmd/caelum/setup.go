package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"caelum/internal/cli/setup"
	"caelum/internal/config"
	"caelum/internal/node/inventory"
	"caelum/internal/slurm"
)

type setupOptions struct {
	*globals
	slurmConfigOptions
	diff        bool
	apply, undo bool
	trial       string
	conf        string
	inventory   string
	jobSubmit   string
	decisions   string
}

// trialPartition is the default partition of a trial.
const trialPartition = "caelum-trial"

func newSetup(g *globals) *cobra.Command {
	o := setupOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Convert this site's nodes to Caelum, or print the changes to its Slurm configuration",
		Long: `setup merges the lines that slurm-config prints into slurm.conf (and the files that it includes),
gres.conf, plugstack.conf and job_submit.lua. It prints the changes as a unified diff for patch(1), and
then, on standard error, the steps of --apply. It changes nothing. With --diff, it prints only the diff.
If the files already contain the lines, it prints nothing.

With --apply, setup carries out the steps: it drains the nodes, changes the files, converts the waiting
jobs and resumes the nodes. It restarts slurmctld if systemd on this host runs it. For everything that
must be done on other hosts, it prints the commands and waits until slurmctld shows that this was done.
After an interruption, run the command again to continue. --undo takes the last conversion back, even if
it is not complete: it restores the files, unless they have other changes, for which it prints a patch.
/etc/caelum/setup.json contains the progress and the former files.

With --trial NODE, setup converts only this node. The node gets a partition of its own and leaves its
other partitions, whose jobs continue to get whole GPUs on the other nodes.

Run it on slurmctld's host. Because the number of slices depends on the GPUs, first run
` + "`caelum slurm-config --json`" + ` on a GPU node, and pass the output to --inventory. On a
GPU node, --inventory is not needed.

If a file contains something that cannot be changed safely, setup prints the file, the line and the
reason, and exits with status 1 without printing a patch.`,
		Example: `  caelum setup --nodes 'gpu[01-16]' --inventory a100.json
  caelum setup --apply --nodes 'gpu[01-16]' --inventory a100.json
  caelum setup --apply --trial gpu01 --inventory a100.json
  caelum setup --undo
  caelum setup --diff --nodes 'gpu[01-16]' --inventory a100.json > caelum.patch`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.trial != "" {
				if o.nodes == "" {
					o.nodes = o.trial
				}
				if !cmd.Flags().Changed("partition") {
					o.partition = trialPartition
				}
				if !cmd.Flags().Changed("catalogue") {
					o.catalogue = 1
				}
			}
			return runSetup(cmd.OutOrStdout(), cmd.ErrOrStderr(), g, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.apply, "apply", false, "convert the nodes, or continue an interrupted conversion")
	f.BoolVar(&o.undo, "undo", false, "take the last conversion back, or continue to do so")
	f.StringVar(&o.trial, "trial", "", "convert only this node, in a partition of its own")
	f.BoolVar(&o.diff, "diff", false, "print only the patch")
	f.StringVar(&o.conf, "conf", slurmConfPath(), "the site's slurm.conf")
	f.StringVar(&o.inventory, "inventory", "", "the output of `caelum slurm-config --json` on a GPU node; by default, "+
		"setup reads this node's GPUs")
	f.StringVar(&o.nodes, "nodes", "", "NodeName expression for the nodes with the same GPUs")
	f.StringVar(&o.partition, "partition", "gpu", "partition whose jobs get slices; with --trial, the new partition "+
		"(default "+trialPartition+")")
	f.IntVar(&o.catalogue, "catalogue", 2,
		"number of catalogue nodes (default with --trial: 1); job_submit.lua holds jobs that request more nodes")
	f.StringVar(&o.jobSubmit, "job-submit", "/usr/share/caelum/job_submit.lua",
		"path of Caelum's job_submit.lua on slurmctld's host")
	f.StringVar(&o.decisions, "decisions", "/etc/caelum/decisions", "path of the decision table on slurmctld's host")
	return cmd
}

func slurmConfPath() string {
	if path := os.Getenv("SLURM_CONF"); path != "" {
		return path
	}
	return "/etc/slurm/slurm.conf"
}

func runSetup(w, stderr io.Writer, g *globals, o setupOptions) error {
	switch {
	case g.json:
		return usageError{errors.New("setup has no JSON output; remove --json")}
	case o.undo && o.apply, (o.undo || o.apply) && o.diff:
		return usageError{errors.New("--apply, --undo and --diff cannot be combined")}
	case o.trial != "" && (o.nodes != o.trial || !slurm.ValidNode(o.trial)):
		return usageError{errors.New("--trial takes the name of one node, and no --nodes")}
	case o.undo || o.apply:
		return runConversion(w, stderr, o)
	}
	r, files, err := o.merge(stderr)
	if err != nil {
		return err
	}
	patch := setup.Patch(files)
	if len(patch) == 0 {
		fmt.Fprintln(stderr, "caelum: the configuration already contains Caelum's lines, so the patch is empty")
		return nil
	}
	if _, err = w.Write(patch); err == nil && !o.diff {
		printSteps(stderr, r)
	}
	return err
}

// merge returns the request and the files that it changes. It prints the notes and the problems.
func (o setupOptions) merge(stderr io.Writer) (r setup.Request, files []setup.File, err error) {
	if o.nodes == "" {
		return r, nil, usageError{
			errors.New("no nodes are specified; add --nodes, for example --nodes 'gpu[01-16]', or --trial NODE"),
		}
	}
	if r, err = o.request(); err != nil {
		return r, nil, err
	}
	result, err := setup.Merge(r)
	if err != nil {
		return r, nil, err
	}
	for _, p := range result.Problems {
		fmt.Fprintln(stderr, "caelum:", printable(p.String()))
	}
	if n := len(result.Problems); n > 0 {
		return r, nil, fmt.Errorf("couldn't make a patch because of %s, listed above; correct the files and run the "+
			"command again", plural(n, "problem"))
	}
	if len(result.Files) > 0 {
		fmt.Fprintln(stderr, "caelum: note: jobs that request GPUs in these partitions get slices:",
			printable(strings.Join(result.Partitions, ", ")))
	}
	for _, note := range result.Notes {
		fmt.Fprintln(stderr, "caelum: note:", printable(note))
	}
	if _, err := os.Stat(r.JobSubmit); err != nil {
		fmt.Fprintf(stderr, "caelum: note: %s does not exist on this host. Install it on slurmctld's host before you "+
			"restart slurmctld.\n", printable(r.JobSubmit))
	}
	return r, result.Files, nil
}

// printSteps prints the steps of a conversion.
func printSteps(w io.Writer, r setup.Request) {
	hosts, _ := slurm.ExpandHosts(r.Nodes) // Merge has expanded them
	fmt.Fprintln(w, "With --apply, setup would make the changes above in these steps:")
	for i, s := range forward {
		fmt.Fprintf(w, "  %d. %s\n", i+1, printable(stepTitle(s, &setup.Conversion{Nodes: hosts})))
	}
	fmt.Fprintf(w, "Before that, install the package caelum on %s only, and caelum-spank on every host that reads "+
		"plugstack.conf.\nCaelum manages every host with a directory /run/caelum, which the package caelum creates.\n",
		printable(slurm.FoldHosts(hosts)))
	printStartSmall(w, r)
}

// request reads the inventory and generates the sections that setup merges.
func (o setupOptions) request() (r setup.Request, err error) {
	cfg, err := config.Load(o.config)
	if err != nil {
		return r, err
	}
	var inv inventory.Inventory
	if o.inventory == "" {
		if inv, err = readInventory(cfg); err != nil {
			err = fmt.Errorf("%w. If this host has no GPUs, run `caelum slurm-config --json` on one of the nodes, "+
				"copy the output to this host, and pass it with --inventory", err)
		}
	} else {
		inv, err = loadInventory(o.inventory)
	}
	if err != nil {
		return r, err
	}
	r = setup.Request{
		SlurmConf: o.conf, Decisions: o.decisions, JobSubmit: o.jobSubmit, Nodes: o.nodes, Partition: o.partition,
		Trial: o.trial != "", Sections: map[string]string{}, Read: readResolved,
	}
	for _, path := range []*string{&r.SlurmConf, &r.Decisions, &r.JobSubmit} {
		if *path, err = filepath.Abs(*path); err != nil {
			return r, err
		}
	}
	for _, name := range sections {
		var text bytes.Buffer
		o.section = name
		if err := renderSlurmConfig(&text, o.slurmConfigOptions, cfg, inv); err != nil {
			return r, err
		}
		r.Sections[name] = text.String()
	}
	return r, nil
}

// loadInventory reads the output of `caelum slurm-config --json`.
func loadInventory(path string) (inv inventory.Inventory, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return inv, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&inv); err != nil || len(inv.Slots) == 0 || len(inv.Most) == 0 {
		return inv, fmt.Errorf("couldn't read %s: it is not an inventory (%v); write it with `caelum slurm-config "+
			"--json` on a GPU node", path, err)
	}
	return inv, checkTypes(inv)
}

// gresPattern matches the names that are allowed in an inventory. These names become part of lines in Slurm's
// configuration files.
var gresPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)

// checkTypes returns an error if a name in an inventory could inject lines or options into Slurm's configuration files.
func checkTypes(inv inventory.Inventory) error {
	var names []string
	for _, s := range inv.Slots {
		names = append(names, s.Type)
	}
	for _, o := range inv.Most {
		names = append(names, o.Type, o.Whole)
	}
	for _, m := range inv.Models {
		names = append(append(names, m.Type), m.Profiles...)
	}
	for _, name := range names {
		if name != "" && !gresPattern.MatchString(name) {
			return fmt.Errorf("the inventory contains %q, which is not the name of a GRES type or profile", name)
		}
	}
	return nil
}

// readResolved returns the content of a file and its path without symbolic links.
func readResolved(path string) ([]byte, string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		if dir, derr := filepath.EvalSymlinks(filepath.Dir(path)); derr == nil {
			path = filepath.Join(dir, filepath.Base(path))
		}
		return nil, path, err
	}
	if err != nil {
		return nil, path, err
	}
	info, err := os.Stat(resolved)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("couldn't read %s: it is not a regular file; check the path", resolved)
	}
	if err != nil {
		return nil, resolved, err
	}
	text, err := os.ReadFile(resolved)
	return text, resolved, err
}
