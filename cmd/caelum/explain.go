package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/cli/jobreport"
	"caelum/internal/config"
	"caelum/internal/core/mig"
	"caelum/internal/core/plan"
	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

func newExplain(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Explain why a job is waiting: no free slice, reserved slices, or another reason",
		Long: `explain reads the nodes and the queue from slurmctld, computes the same plan as the agents do, and
prints the part that concerns the job. It runs on any host where squeue and scontrol work.

If slurm.conf hides other users' jobs (PrivateData=jobs), run explain as a Slurm operator.
Otherwise, slurmctld omits these jobs, and the plan that explain computes may differ from the
agents'.`,
		Example: `  caelum explain 4711
  caelum explain 4711_3      # an array task
  caelum explain 4711+1      # a component of a het job
  caelum explain 4711 --json | jq -r .verdict`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, _, err := jobRef(args[0]); err != nil {
				return err
			}
			cfg, err := config.Load(g.config)
			if err != nil {
				return err
			}
			settings, err := cfg.Planning()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), slurmTimeout)
			defer cancel()
			nodes, queue, err := slurm.List(ctx, slurm.New(slurm.Options{}))
			if err != nil {
				return err
			}
			snapshot := plan.Snapshot{Nodes: nodes, Queue: queue, At: time.Now()}
			e, err := plan.Explain(snapshot, settings, find(snapshot.Queue.All, args[0]))
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), e)
			}
			if all := plan.DifferentSettings(snapshot.Nodes, settings.Text); len(all) > 0 {
				fmt.Fprintf(os.Stderr, "caelum: this host has the policy and sizing %s, but other nodes have a "+
					"different policy or sizing, so the explanation may be wrong: %s\n",
					settings.Text, printable(strings.Join(all, "; ")))
			}
			printExplanation(cmd.OutOrStdout(), e)
			for _, line := range notConverted(nodes, queue.Waiting, e.Job) {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			return nil
		},
	}
}

// slurmTimeout limits the total time that a command spends on calls to slurmctld and slurmdbd. It is four times
// slurm.DefaultTimeout, the limit for a single call.
const slurmTimeout = time.Minute

func printExplanation(w io.Writer, e plan.Explanation) {
	fmt.Fprintf(w, "job %s, %s", e.Ref, printable(e.State))
	switch {
	case e.Place == 1 && e.Of == 1:
		fmt.Fprint(w, ", is the only job waiting for slices")
	case e.Place > 0:
		fmt.Fprintf(w, ", is number %d of %d jobs waiting for slices", e.Place, e.Of)
	}
	fmt.Fprintf(w, "\n%s\n", printable(e.Text))
	if e.Misses != "" {
		fmt.Fprintf(w, "the job cannot meet its deadline, %s, because %s\n",
			time.Unix(e.Deadline, 0).Format(time.DateTime), printable(e.Misses))
	}
	printGrowths(w, e)
	if len(e.Grown) > 0 {
		e.Sized, e.InsteadOf = "", "" // the profile is the result of a growth
	}
	if e.Sized == mig.Full && (e.By == "" || e.By == "full" || e.By == "off") {
		fmt.Fprintln(w, "the job gets full GPUs, which are not divided into slices, because it sets "+
			"--mig=off or requests several GPUs per node; to get slices instead, name a profile with --mig")
	} else if e.Sized != "" {
		fmt.Fprintf(w, "Caelum chose %s for the job: %s\n", printable(e.Sized), printable(sourceOf(e)))
	}
	if e.InsteadOf != "" {
		fmt.Fprintf(w, "Caelum chose %[1]s instead of %[2]s because of the time limit of %[3]s, which the job could "+
			"reach on %[2]s\n", printable(e.Sized), printable(e.InsteadOf), limitText(e.TimeLimit))
	}
	if e.State != "PENDING" {
		return
	}
	if e.Held {
		e.Reason += " (Caelum holds this job until its slices are on offer)"
	}
	fmt.Fprintf(w, "slurmctld's reason: %s\n", printable(e.Reason))
}

// sources describes the values of tags.By. %s is the job for `caelum predict`.
var sources = map[string]string{
	"args":    "its arguments and its user's earlier runs determine the size (see `caelum predict %s`)",
	"key":     "its user's earlier runs of this job determine the size (see `caelum predict %s`)",
	"user":    "its user's earlier runs of this script determine the size (see `caelum predict %s`)",
	"name":    "its user's earlier jobs with this name determine the size (see `caelum predict %s`)",
	"owner":   "its user's earlier jobs determine the size (see `caelum predict %s`)",
	"site":    "other users' runs of this script determine the size (see `caelum predict %s`)",
	"default": "no earlier runs were known when it was submitted, so it gets the default profile",
	"full":    "it requests several GPUs per node",
	"memory":  "it is the smallest profile for --mig-mem",
	"off":     "the job sets --mig=off",
}

// sourceOf returns what determined the profile that Caelum chose for a job.
func sourceOf(e plan.Explanation) string {
	text, known := sources[e.By]
	if !known {
		text = "according to its options, its earlier runs (see `caelum predict %s`) or the default profile"
	}
	predictable := e.Ref
	if strings.Contains(predictable, "[") { // predict does not accept a list of tasks
		predictable = fmt.Sprint(e.Job)
	}
	return strings.ReplaceAll(text, "%s", predictable)
}

// notConverted describes the GPU nodes in a waiting job's partitions that are not converted to Caelum.
func notConverted(nodes []slurm.Node, waiting []slurm.Waiting, id uint32) (lines []string) {
	i := slices.IndexFunc(waiting, func(w slurm.Waiting) bool { return w.ID == id && len(w.SlicesPerNode()) > 0 })
	if i < 0 {
		return nil
	}
	for _, n := range nodes {
		shared := func(p string) bool { return slices.Contains(n.Partitions, p) }
		switch {
		case n.Managed() || n.Catalogue() || n.Gres.Total("gpu") == 0 ||
			!slices.ContainsFunc(waiting[i].Partitions(), shared):
		case n.Unmanaged():
			lines = append(lines, n.Name+" is not converted to Caelum: there, the job would get a whole GPU")
		default:
			lines = append(lines, n.Name+" is not converted to Caelum, and has no gres/mig counts: the job cannot "+
				"start there (`caelum doctor --controller`)")
		}
	}
	return lines
}

// printGrowths prints, for each growth of a job, the reason why an agent replaced the job's profile with a larger one.
func printGrowths(w io.Writer, e plan.Explanation) {
	for k, g := range e.Grown {
		next := e.Sized
		if k+1 < len(e.Grown) {
			next = e.Grown[k+1].Profile
		}
		why := "the job failed on %s, probably because it ran out of GPU memory: it used up to %.0f MiB"
		if g.Cause == predict.Foreseen {
			why = "the job would have run out of GPU memory on %s: its forecast peak was %.0f MiB"
		}
		why += ". An agent requeued the job with %s\n"
		fmt.Fprintf(w, why, printable(g.Profile), g.MiB, printable(next))
	}
}

// limitText converts a time limit in seconds to Slurm's format. If seconds is 0, the limit is the partition's, and
// limitText returns "the partition".
func limitText(seconds int) string {
	if seconds == 0 {
		return "the partition"
	}
	return jobreport.Clock(seconds)
}

// find returns the id of the job identified by text, which has squeue's format (see jobRef). If text identifies an
// array task that is not in jobs, find returns the array's id.
func find(jobs []slurm.Job, text string) uint32 {
	id, task, _ := jobRef(text)
	for _, j := range jobs {
		if task != "" && j.ArrayJob == id && j.ArrayTask == task {
			return j.ID
		}
	}
	return id
}

// jobRef parses a job id from the command line. For an array task (12_3), it returns the array's id and the task
// number. For a component of a het job (12+1), it returns the component's own id, which is 13 in this example, because
// the components of a job have consecutive ids.
func jobRef(text string) (id uint32, task string, err error) {
	text, task, isTask := strings.Cut(text, "_")
	text, component, isComponent := strings.Cut(text, "+")
	n, wrong := strconv.ParseUint(cmp.Or(task, component, "0"), 10, 32)
	if wrong != nil || (isTask || isComponent) && task+component == "" || isTask && isComponent {
		return 0, "", usageError{
			fmt.Errorf("%q is not the number of an array task or of a het job's component", task+component),
		}
	}
	if id, err = jobID(text); isComponent {
		id += uint32(n)
	}
	return id, task, err
}

// jobID parses a plain job id, that is, one that does not refer to an array task or to a component of a het job.
func jobID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil || id == 0 {
		return 0, usageError{
			fmt.Errorf("%q is not a job id; specify a number (`squeue --format=%%A` prints the job id of an array "+
				"task)",
				text),
		}
	}
	return uint32(id), nil
}
