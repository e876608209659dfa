package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/controller/learn"
	"caelum/internal/slurm"
)

func newDecisionsBypass(g *globals, o *decisionsOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "bypass PARTITION|off",
		Short: "Send new GPU jobs to a partition that Caelum does not manage",
		Long: `bypass PARTITION makes job_submit.lua send each new job that requests GPUs in a managed partition to
PARTITION, whose nodes must have GPUs but no slices. Because the command only writes the bypass line
of the decision table, it takes effect with the next submission, without a restart. slurmctld checks
the jobs as if the users had named PARTITION, so the partition's AllowAccounts and AllowGroups
apply. Jobs that name a profile (--gres=mig:...) are refused. Jobs that are already waiting or
running keep their slices. Until "bypass off" is run, users can neither move a job into a managed
partition nor add GPUs to a job there.

If the site has no suitable partition, create one without a restart:

  scontrol create PartitionName=whole Nodes=NODES

Also add the partition to slurm.conf. Otherwise, it disappears when slurmctld restarts or reads
slurm.conf again, and slurmctld then rejects new GPU jobs until "bypass off" is run.

Run the command on slurmctld's host. If slurmctld does not answer, "caelum decisions set bypass
PARTITION" writes the line without checking the partition.`,
		Example: `  caelum decisions bypass whole
  caelum decisions bypass off`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "off" {
				ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
				defer cancel()
				if err := checkBypass(ctx, slurm.New(slurm.Options{}), args[0]); err != nil {
					return err
				}
			}
			text := "new jobs that request GPUs in managed partitions are sent to partition " + args[0]
			if args[0] == "off" {
				text = "new jobs that request GPUs in managed partitions get slices again"
			}
			return o.change(cmd.OutOrStdout(), g, text, func(path string) (bool, error) {
				return learn.SetLine(path, []string{"bypass", args[0]})
			})
		},
	}
}

// partitions is the subset of a slurmctld client's methods that checkBypass uses. *slurm.Client implements it.
type partitions interface {
	Partitions(ctx context.Context) ([]slurm.Partition, error)
	AllNodes(ctx context.Context) ([]slurm.Node, error)
}

// checkBypass returns an error if GPU jobs in the partition cannot run without slices. This is the case if slurmctld
// does not know the partition, if one of its nodes has slices, or if none of its nodes has GPUs.
func checkBypass(ctx context.Context, ctl partitions, name string) error {
	all, err := ctl.Partitions(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	if !slices.Contains(names, name) {
		return fmt.Errorf("slurmctld has no partition %q; the partitions are %s", name, strings.Join(names, ", "))
	}
	nodes, err := ctl.AllNodes(ctx)
	if err != nil {
		return err
	}
	gpus, with, catalogue := false, "", false
	for _, n := range nodes {
		if !slices.Contains(n.Partitions, name) {
			continue
		}
		for _, gres := range n.Gres {
			// Name a real node rather than a catalogue node, because users do not see catalogue nodes.
			future := slices.Contains(n.States, "FUTURE")
			if gres.Name == "mig" && !n.Unmanaged() && (with == "" || catalogue && !future) {
				with, catalogue = n.Name, future
			}
			gpus = gpus || gres.Name == "gpu" && gres.Count > 0
		}
	}
	if with != "" {
		return fmt.Errorf("node %s in partition %s has slices (gres/mig); choose a partition whose nodes Caelum does "+
			"not manage, or create one with `scontrol create PartitionName=NAME Nodes=NODES`",
			with, name)
	}
	if !gpus {
		return fmt.Errorf("no node in partition %s has GPUs (gres/gpu); choose another partition", name)
	}
	return nil
}

func newDecisionsRemove(g *globals, o *decisionsOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "remove WORD [VALUE]",
		Short: "Remove one line from the decision table",
		Long: `remove deletes the administrator's lines that begin with WORD or, for partition, alias, shard, per_gpu,
args, key, user and site, with WORD VALUE. Like set, it replaces the file atomically and changes nothing if
job_submit.lua would reject the new table. It cannot remove learned lines, because the watcher would add
them again; use set to override them.`,
		Example: `  caelum decisions remove partition gpu
  caelum decisions remove key 1001:16e6c08ad68451a8`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.change(cmd.OutOrStdout(), g, "", func(path string) (bool, error) {
				changed, err := learn.RemoveLine(path, args)
				if err == nil && !changed {
					err = fmt.Errorf("%s: none of your lines begins with %q; see the lines above the learned lines",
						path, strings.Join(args, " "))
				}
				return changed, err
			})
		},
	}
}
