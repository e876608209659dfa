package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/cli/overview"
	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/node/api"
	"caelum/internal/slurm"
)

// completeTimeout is the timeout for each call made to complete a word. It is short because the user is waiting at the
// prompt.
const completeTimeout = 2 * time.Second

// values returns the possible values of a word on the command line. A tab separates each value from its description.
type values func(cmd *cobra.Command, args []string) []string

// complete registers the shell completions for flag values and arguments. A flag takes the same values in every
// command. For all other flags, and for the arguments of profile-job and repo import, the shell completes file names.
func complete(root *cobra.Command, g *globals) {
	flags := map[string]cobra.CompletionFunc{
		"board":    single(modelNames),
		"section":  single(constant(sections...)),
		"queue":    single(constant(slices.Sorted(maps.Keys(disciplines))...)),
		"policies": several(constant(append(place.Names(), "whole", "static")...)),
		"profiles": several(profiles),
		"gpus":     several(modelsOfCluster),
	}
	arguments := map[string]cobra.CompletionFunc{
		"job":      first(func(cmd *cobra.Command, _ []string) []string { return leases(cmd.Context(), g) }),
		"explain":  first(queue("PENDING")),
		"predict":  first(queue("")),
		"report":   first(queue("")),
		"status":   first(nodeNames),
		"top":      first(nodeNames),
		"profiles": first(modelNames),
	}
	for _, cmd := range allBelow(root) {
		for name, f := range flags {
			// In predict, --gpus is a number and needs no completion. In simulate, it describes the cluster.
			if flag := cmd.Flags().Lookup(name); flag != nil && flag.Value.Type() != "int" {
				cobra.CheckErr(cmd.RegisterFlagCompletionFunc(name, f))
			}
		}
		switch {
		case arguments[cmd.Name()] != nil:
			cmd.ValidArgsFunction = arguments[cmd.Name()]
		case cmd.Name() != "profile-job" && cmd.Name() != "import":
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
}

// allBelow returns all subcommands of cmd, at every depth.
func allBelow(cmd *cobra.Command) (all []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		all = append(append(all, sub), allBelow(sub)...)
	}
	return all
}

// single returns a completion that offers the values returned by f for a flag or for each argument.
func single(f values) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return f(cmd, args), cobra.ShellCompDirectiveNoFileComp
	}
}

// first is like single, but only for the first argument of a command.
func first(f values) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return single(f)(cmd, args, word)
	}
}

// several returns a completion for the last value in a comma-separated list. It leaves out values that are already in
// the list.
func several(f values) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		before := word[:strings.LastIndexByte(word, ',')+1]
		var all []string
		for _, value := range f(cmd, args) {
			if !slices.Contains(strings.Split(before, ","), value) {
				all = append(all, before+value)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

func constant(all ...string) values { return func(*cobra.Command, []string) []string { return all } }

func modelNames(*cobra.Command, []string) []string {
	var names []string
	for _, b := range mig.Models() {
		names = append(names, b.Name)
	}
	return names
}

// modelsOfCluster returns the "BOARD:" part of BOARD:COUNT for each GPU model.
func modelsOfCluster(cmd *cobra.Command, args []string) []string {
	names := modelNames(cmd, args)
	for i := range names {
		names[i] += ":"
	}
	return names
}

// profiles returns the profiles of the GPU models named on the command line, or of all models if none are named.
func profiles(cmd *cobra.Command, _ []string) []string {
	var models []*mig.Model
	for _, name := range namedModels(cmd) {
		if b, err := modelNamed(name); err == nil {
			models = append(models, b)
		}
	}
	if len(models) == 0 {
		models = mig.Models()
	}
	var names []string
	for _, b := range models {
		for _, name := range profileNames(b.Select(mig.Plain)) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// namedModels returns the values of --board and --gpus.
func namedModels(cmd *cobra.Command) (names []string) {
	if f := cmd.Flag("board"); f != nil && f.Changed {
		names = append(names, f.Value.String())
	}
	gpus, _ := cmd.Flags().GetStringSlice("gpus")
	for _, text := range gpus {
		name, _, _ := strings.Cut(text, ":")
		names = append(names, name)
	}
	return names
}

// leases returns the jobs that hold slices on this node. It returns nil if the agent does not answer.
func leases(ctx context.Context, g *globals) (jobs []string) {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	status, err := api.NewClient(g.runDir).Status(ctx)
	if err != nil {
		return nil
	}
	for _, l := range status.Leases {
		jobs = append(jobs, described(fmt.Sprint(l.Job), l.Name, l.User))
	}
	return jobs
}

// nodeNames returns the nodes that Caelum manages, or nil if slurmctld does not answer.
func nodeNames(cmd *cobra.Command, _ []string) (names []string) {
	ctl := slurm.New(slurm.Options{Scontrol: "scontrol", Timeout: completeTimeout})
	records, err := ctl.NodeRecords(cmd.Context())
	if err != nil {
		return nil
	}
	for _, n := range overview.Nodes(records) {
		names = append(names, n.Name)
	}
	return names
}

// listJobs reads the jobs from slurmctld. Tests replace it.
var listJobs = func(ctx context.Context) ([]slurm.Job, error) {
	return slurm.New(slurm.Options{Timeout: completeTimeout}).Jobs(ctx)
}

// queue returns the jobs in the given state as values, or all jobs if state is empty. The result is empty if slurmctld
// does not answer.
func queue(state string) values {
	return func(cmd *cobra.Command, _ []string) (ids []string) {
		jobs, err := listJobs(cmd.Context())
		if err != nil {
			return nil
		}
		for _, j := range jobs {
			if state == "" || j.State == state {
				ids = append(ids, described(fmt.Sprint(j.ID), j.Name, j.User))
			}
		}
		return ids
	}
}

// described returns a completion value followed by the description that the shell shows next to it: the name and the
// user of the job.
func described(value, name, user string) string {
	return value + "\t" + printable(name+" of "+user)
}
