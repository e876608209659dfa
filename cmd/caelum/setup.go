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

	"github.com/spf13/cobra"

	"caelum/internal/cli/setup"
	"caelum/internal/config"
	"caelum/internal/node/inventory"
)

type setupOptions struct {
	slurmConfigOptions
	diff, reverse bool
	conf          string
	inventory     string
	jobSubmit     string
	decisions     string
}

func newSetup(g *globals) *cobra.Command {
	var o setupOptions
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Print the changes to this site's Slurm configuration as a patch",
		Long: `setup merges the lines that slurm-config prints into slurm.conf (and the files that it includes),
gres.conf, plugstack.conf and job_submit.lua, and prints the changes as a unified diff for patch(1).
It changes no files. If the files already contain the lines, it prints nothing.

Run it on slurmctld's host. Because the number of slices depends on the GPUs, first run
` + "`caelum slurm-config --json`" + ` on a GPU node, and pass the output to --inventory. On a
GPU node, --inventory is not needed.

If a file contains something that cannot be changed safely, setup prints the file, the line and the
reason, and exits with status 1 without printing a patch.`,
		Example: `  caelum setup --diff --nodes 'gpu[01-16]' --inventory a100.json > caelum.patch
  patch -p1 -d / < caelum.patch
  patch -R -f -p1 -d / < caelum.patch`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runSetup(cmd.OutOrStdout(), cmd.ErrOrStderr(), g, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.diff, "diff", false, "print the patch; setup has no other function")
	f.BoolVar(&o.reverse, "reverse", false, "print the patch that reverts the changes")
	f.StringVar(&o.conf, "conf", slurmConfPath(), "the site's slurm.conf")
	f.StringVar(&o.inventory, "inventory", "", "the output of `caelum slurm-config --json` on a GPU node; by default, "+
		"setup reads this node's GPUs")
	f.StringVar(&o.config, "config", config.DefaultPath,
		"the configuration file; only its profiles, default_profile and nvml_library keys are used")
	f.StringVar(&o.nodes, "nodes", "", "NodeName expression for the nodes with the same GPUs")
	f.StringVar(&o.partition, "partition", "gpu", "partition whose jobs get slices")
	f.IntVar(&o.catalogue, "catalogue", 2,
		"number of catalogue nodes; job_submit.lua holds jobs that request more nodes")
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
	case !o.diff:
		return usageError{errors.New("setup only prints a patch; add --diff")}
	case o.nodes == "":
		return usageError{errors.New("no nodes are specified; add --nodes, for example --nodes 'gpu[01-16]'")}
	}
	r, err := o.request()
	if err != nil {
		return err
	}
	result, err := setup.Merge(r)
	if err != nil {
		return err
	}
	for _, p := range result.Problems {
		fmt.Fprintln(stderr, "caelum:", printable(p.String()))
	}
	if n := len(result.Problems); n > 0 {
		return fmt.Errorf("couldn't make a patch because of %s, listed above; correct the files and run the command "+
			"again",
			plural(n, "problem"))
	}
	for _, note := range result.Notes {
		fmt.Fprintln(stderr, "caelum: note:", printable(note))
	}
	if _, err := os.Stat(r.JobSubmit); err != nil {
		fmt.Fprintf(stderr, "caelum: note: %s does not exist on this host. Install it on slurmctld's host before you "+
			"restart slurmctld.\n", printable(r.JobSubmit))
	}
	patch := setup.Patch(result.Files)
	if o.reverse {
		patch = setup.Inverse(result.Files)
	}
	if len(patch) == 0 {
		fmt.Fprintln(stderr, "caelum: the configuration already contains Caelum's lines, so the patch is empty")
	}
	_, err = w.Write(patch)
	return err
}

// request reads the inventory and generates the sections that setup merges.
func (o setupOptions) request() (r setup.Request, err error) {
	cfg, err := config.Load(o.config)
	if err != nil {
		return r, err
	}
	var inv inventory.Inventory
	if o.inventory == "" {
		inv, err = readInventory(cfg)
	} else {
		inv, err = loadInventory(o.inventory)
	}
	if err != nil {
		return r, err
	}
	r = setup.Request{
		SlurmConf: o.conf, Decisions: o.decisions, JobSubmit: o.jobSubmit, Nodes: o.nodes, Partition: o.partition,
		Sections: map[string]string{}, Read: readResolved,
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
