package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/core/eligible"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

func newConvertJobs() *cobra.Command {
	var back bool
	cmd := &cobra.Command{
		Use:   "convert-jobs",
		Short: "Add slices to the requests of the jobs that waited during the installation",
		Long: `convert-jobs adds slices to the requests of all pending jobs in managed partitions that request GPUs
but no slices. Such jobs were submitted before job_submit.lua was installed. Each job gets the request
that it would get if it were submitted now. Run the command as root on slurmctld's host, after
slurmctld has loaded job_submit.lua and before you resume the nodes. Running it again does no harm.

convert-jobs prints a line for each job. If a job cannot be converted, it holds the job and prints the
reason. The exit status is then 1. Cancel these jobs, or remove the reasons, run the command again and
release the jobs. Held jobs stay held.

With --back, the command removes the slices from the requests of all pending jobs, which keep their
GPUs, and releases the jobs that wait held for their slices. Do this while the nodes are drained, before
you remove Caelum from Slurm's configuration.`,
		Example: `  caelum convert-jobs
  caelum convert-jobs --back`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("couldn't change jobs: job_submit.lua accepts this only from root; run the command " +
					"as root")
			}
			return runConvertJobs(cmd.Context(), cmd.OutOrStdout(), back, slurm.New(slurm.Options{}))
		},
	}
	cmd.Flags().BoolVar(&back, "back", false, "remove the slices from the requests of pending jobs")
	return cmd
}

// jobs is the part of slurm.Client that convert-jobs uses.
type jobs interface {
	Queue(ctx context.Context) (slurm.Queue, error)
	Job(ctx context.Context, id uint32) (slurm.Job, error)
	Hold(ctx context.Context, id uint32) error
	Release(ctx context.Context, id uint32) error
	SetAdminComment(ctx context.Context, id uint32, text string) error
	ConvertMarks(ctx context.Context, waiting []slurm.Waiting) (map[uint32]string, error)
	RemoveSlices(ctx context.Context, w slurm.Waiting, shared, comment string) error
}

// indexPause is the pause before another attempt to change a job that slurmdbd has not recorded yet.
var indexPause = time.Second

func runConvertJobs(ctx context.Context, out io.Writer, back bool, ctl jobs) error {
	queue, err := ctl.Queue(ctx)
	var marks map[uint32]string
	if err == nil && !back {
		marks, err = ctl.ConvertMarks(ctx, queue.Waiting)
	}
	if err != nil {
		return err
	}
	failed := 0
	for _, w := range queue.Waiting {
		if back && !touched(w) || !back && marks[w.ID] == "" {
			continue
		}
		var j slurm.Job
		for tries := range 5 {
			if tries > 0 {
				time.Sleep(indexPause)
			}
			if back {
				j, err = convertBack(ctx, ctl, w)
			} else {
				j, err = convert(ctx, ctl, *w.Job, marks[w.ID])
			}
			if !errors.Is(err, slurm.ErrNoIndex) {
				break
			}
		}
		switch {
		case errors.Is(err, slurm.ErrNoJob), errors.Is(err, slurm.ErrJobState), errors.Is(err, errUnmanaged):
			continue // the job has ended or started, or needs no slices
		case errors.Is(err, errNoScript), errors.Is(err, slurm.ErrUnreachable):
			return fmt.Errorf("couldn't convert job %d: %w", w.ID, err)
		}
		text := "requests " + cmp.Or(j.PerNode.String(), "no GRES per node")
		if err != nil {
			failed++
			text = "not changed: " + err.Error()
		}
		if j.Priority == 0 {
			text += " (held)"
		}
		if _, err := fmt.Fprintf(out, "job %d of %s: %s\n", w.ID, printable(w.User), printable(text)); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%w %s; cancel them, or remove the reasons above, run `caelum convert-jobs` again and "+
			"release them", errUnconverted, plural(failed, "job"))
	}
	return nil
}

var (
	errUnconverted = errors.New("couldn't change")
	errUnmanaged   = errors.New("the job's GPUs are not managed")
	errNoScript    = errors.New("slurmctld does not run Caelum's job_submit.lua, or the decision table is not valid " +
		"or has a bypass line; check both and run the command again")
)

// convert makes job_submit.lua add slices to one job, and returns the job as it is then. mark is the job's text from
// ConvertMarks. The script can only set the reason JobHeldAdmin, but agents release only jobs with JobHeldUser.
func convert(ctx context.Context, ctl jobs, w slurm.Job, mark string) (j slurm.Job, err error) {
	switch err = ctl.SetAdminComment(ctx, w.ID, mark); {
	case errors.Is(err, slurm.ErrUnreachable), errors.Is(err, slurm.ErrNoJob), errors.Is(err, slurm.ErrJobState),
		errors.Is(err, slurm.ErrNoIndex):
		return j, err
	case err != nil: // slurmctld refuses the request with slices
		return j, errors.Join(err, ctl.Hold(ctx, w.ID))
	}
	j, err = ctl.Job(ctx, w.ID)
	reason := tags.Value(j.AdminComment, tags.Unconverted)
	switch {
	case err != nil:
	case strings.HasPrefix(j.AdminComment, slurm.ConvertMark):
		err = errors.Join(errNoScript, ctl.SetAdminComment(ctx, w.ID, w.AdminComment))
	case reason != "":
		err = errors.New(strings.ReplaceAll(reason, "_", " "))
	case len(j.PerNode.Named("mig")) == 0:
		err = errUnmanaged
	case tags.Has(j.AdminComment, tags.Held):
		err = ctl.Hold(ctx, w.ID)
	}
	return j, err
}

// touched reports whether Caelum has changed a job. An agent that releases a job while it is converted back can write
// the tag Released afterwards.
func touched(w slurm.Waiting) bool {
	return len(w.PerNode.Named("mig")) > 0 || len(w.OwnExcluded()) < len(w.ExcNodes) ||
		tags.Has(w.AdminComment, tags.Held) || tags.Has(w.AdminComment, tags.Released) ||
		tags.Value(w.AdminComment, tags.Unconverted) != ""
}

// reasonBack is the reason in the tag Unconverted of a job whose slices are removed and that is not yet released.
const reasonBack = "back"

// convertBack removes Caelum's changes to a job, and returns the job as it is then. A job that waits for its slices
// loses the tags of the hold together with its slices, because an agent would add slices again to a job that has only
// the tags. It keeps the others until it is released, so that the command can be repeated.
func convertBack(ctx context.Context, ctl jobs, w slurm.Waiting) (j slurm.Job, err error) {
	var others []string
	for word := range strings.FieldsSeq(w.AdminComment) {
		if !strings.HasPrefix(word, "caelum:") {
			others = append(others, word)
		}
	}
	shared := tags.Value(w.AdminComment, tags.Share)
	again := w.Priority == 0 && tags.Value(w.AdminComment, tags.Unconverted) == reasonBack
	if again || eligible.HeldForSlices(w) {
		comment := tags.Replace(tags.Remove(w.AdminComment, tags.Released), tags.Held, tags.Unconverted+reasonBack)
		if err = ctl.RemoveSlices(ctx, w, shared, comment); err == nil {
			err = ctl.Release(ctx, w.ID)
		}
	}
	if err == nil {
		err = ctl.RemoveSlices(ctx, w, shared, strings.Join(others, " "))
	}
	if err != nil {
		return *w.Job, err
	}
	return ctl.Job(ctx, w.ID)
}
