package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/agent"
	"caelum/internal/place"
	"caelum/internal/plan"
	"caelum/internal/slurm"
)

func newExplain(g *globals) *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "explain ID",
		Short: "Say why a job waits: no room, room that is kept for another, or something that no slice would help",
		Long: `explain makes the plan that the agents make, from what slurmctld shows of nodes and queue, and says what it has in mind for a job. It runs wherever squeue
and scontrol do. Where slurm.conf hides others' jobs (PrivateData=jobs), only an operator's plan is the agents'.`,
		Example: `  caelum explain 4711
  caelum explain 4711_3      # a task of an array
  caelum explain 4711+1      # a component of a het job
  caelum explain 4711 --json | jq -r .verdict`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, _, err := jobRef(args[0]); err != nil {
				return err
			}
			cfg, err := agent.LoadConfig(config)
			if err != nil {
				return err
			}
			policy, err := place.ByName(cfg.Policy)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), slurmTimeout)
			defer cancel()
			snapshot, err := plan.Read(ctx, slurm.New(slurm.Options{}), time.Now)
			if err != nil {
				return err
			}
			e, err := plan.Explain(snapshot, policy, find(snapshot.Queue.All, args[0]))
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), e)
			}
			return printExplanation(cmd.OutOrStdout(), e)
		},
	}
	cmd.Flags().
		StringVar(&config, "config", agent.DefaultConfig, "caelumd's configuration, for the policy; without this file the default's")
	return cmd
}

// slurmTimeout bounds what is asked of slurmctld.
const slurmTimeout = time.Minute

func printExplanation(w io.Writer, e plan.Explanation) error {
	fmt.Fprintf(w, "job %d, %s", e.Job, printable(e.State))
	if e.Place > 0 {
		fmt.Fprintf(w, ", is number %d of %d that wait for slices", e.Place, e.Of)
	}
	_, err := fmt.Fprintf(w, "\n%s\n", printable(e.Text))
	if e.Sized != "" && err == nil {
		_, err = fmt.Fprintf(
			w,
			"it named no profile, and Caelum chose %s: by its --mig-mem or --mig=off if it has one, else by its earlier runs, as `caelum predict %d` tells, else by default\n",
			printable(e.Sized),
			e.Job,
		)
	}
	if e.State != "PENDING" || err != nil {
		return err
	}
	if e.Held {
		e.Reason += ", and it is Caelum that holds it, and releases it"
	}
	_, err = fmt.Fprintf(w, "slurmctld's reason: %s\n", printable(e.Reason))
	return err
}

// find is the id of the job that a text names as squeue does: see jobRef.
func find(jobs []slurm.Job, text string) uint32 {
	id, task, _ := jobRef(text)
	for _, j := range jobs {
		if task != "" && j.ArrayJob == id && j.ArrayTask == task {
			return j.ID
		}
	}
	return id
}

// jobRef reads a job's id from the command line, with the array's task if it names one (12_3). The components of a het
// job (12+1) have ids of their own, one after the other.
func jobRef(text string) (id uint32, task string, err error) {
	text, task, isTask := strings.Cut(text, "_")
	text, component, isComponent := strings.Cut(text, "+")
	n, wrong := strconv.ParseUint(cmp.Or(task, component, "0"), 10, 32)
	if wrong != nil || (isTask || isComponent) && task+component == "" || isTask && isComponent {
		return 0, "", usageError{
			fmt.Errorf("%q is no task of an array, nor a component of a het job: want a number", task+component),
		}
	}
	if id, err = jobID(text); isComponent {
		id += uint32(n)
	}
	return id, task, err
}

// jobID reads a job's id from the command line.
func jobID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil || id == 0 {
		return 0, usageError{
			fmt.Errorf("%q is no job id: want a number (`squeue --format=%%A` prints it for array tasks)", text),
		}
	}
	return uint32(id), nil
}
