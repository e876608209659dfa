package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"caelum/internal/config"
	"caelum/internal/slurm"
)

const (
	// pollInterval is the interval between slurmdbd queries for a job.
	pollInterval = 5 * time.Second
	// summaryWait is the maximum time that profile-job waits, after a job has ended, for the agents to write the job's
	// summaries to slurmdbd.
	summaryWait = time.Minute
)

// measure submits the script for each profile, and waits until all of the jobs have ended. If an error occurs, it
// cancels the jobs that have not ended.
func (o profileJobOptions) measure(
	ctx context.Context, cfg config.Config, script []string,
) (ended []measurement, err error) {
	var jobs []measurement
	defer func() {
		if err != nil && len(jobs) > len(ended) {
			err = cancelled(err, jobs[len(ended):])
		}
	}()
	for _, profile := range o.profiles {
		m := measurement{Profile: profile, Util: -1}
		if m.Job, err = o.submit(ctx, profile, script); err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "submitted job %d: %s\n", m.Job, profile)
		jobs = append(jobs, m)
	}
	for _, m := range jobs {
		if m, err = await(ctx, cfg, m); err != nil {
			return ended, err
		}
		ended = append(ended, m)
	}
	return ended, nil
}

var errInterrupted = errors.New("interrupted")

// submit submits the script and returns the job's id. Ctrl-C does not interrupt sbatch, because profile-job would then
// not know the id of the job that it has to cancel. Requeueing is disabled, because a requeued job would have several
// runs.
func (o profileJobOptions) submit(ctx context.Context, profile string, script []string) (uint32, error) {
	if ctx.Err() != nil {
		return 0, errInterrupted
	}
	args := append(o.sbatch[:len(o.sbatch):len(o.sbatch)], "--parsable", "--no-requeue", "--mig="+profile)
	cmd := exec.Command("sbatch", append(args, script...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C in the terminal does not reach sbatch
	text, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("couldn't submit the job for %s: sbatch: %w", profile, err)
	}
	id, _, _ := strings.Cut(strings.TrimSpace(string(text)), ";") // sbatch may append the cluster's name to the id
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("sbatch for %s printed %.40q instead of a job id", profile, text)
	}
	return uint32(n), nil
}

// await polls slurmdbd until m's job has ended, and returns a copy of m that includes the results.
func await(ctx context.Context, cfg config.Config, m measurement) (measurement, error) {
	ctl, wait := slurm.New(slurm.Options{Sacct: "sacct"}), summaryWait
	field, err := cfg.Field()
	if err != nil {
		field, wait = slurm.AdminComment, 0
	}
	for warned := false; ; {
		records, err := ctl.RecordsOf(ctx, field, m.Job)
		switch {
		case ctx.Err() != nil:
			return m, errInterrupted
		case err == nil && strings.Contains(records[0].Ref, "_"):
			return m, fmt.Errorf("job %d is an array; submit the script without --array", m.Job)
		case err == nil:
			if done, over, err := m.ended(records[len(records)-1], time.Now(), wait); over || err != nil {
				return done, err
			}
		case errors.Is(err, slurm.ErrNoJob): // the record of a new job reaches slurmdbd with a delay
		case errors.Is(err, slurm.ErrNoAccounting):
			if !warned {
				fmt.Fprintln(os.Stderr, "caelum: "+printable(err.Error())+"; trying again")
			}
			warned = true
		default:
			return m, err
		}
		select {
		case <-ctx.Done():
			return m, errInterrupted
		case <-time.After(pollInterval):
		}
	}
}

// cancelled cancels the jobs and returns an error that wraps the given error and lists the ids of the jobs.
func cancelled(why error, jobs []measurement) error {
	var ids []string
	for _, m := range jobs {
		ids = append(ids, strconv.FormatUint(uint64(m.Job), 10))
	}
	text, err := scancel(ids)
	if ended := new(exec.ExitError); errors.As(err, &ended) && !ended.Exited() {
		text, err = scancel(ids) // a signal may have arrived before scancel was in its own process group
	}
	if err != nil {
		return fmt.Errorf(
			"%w; couldn't cancel the jobs %s: %w: %.200s; cancel these jobs with scancel",
			why, strings.Join(ids, " "), err, text,
		)
	}
	return fmt.Errorf("%w; cancelled the jobs %s", why, strings.Join(ids, " "))
}

// scancel cancels the jobs and returns the output of scancel(1). A second Ctrl-C does not interrupt scancel.
func scancel(ids []string) ([]byte, error) {
	cmd := exec.Command("scancel", append([]string{"--quiet"}, ids...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.CombinedOutput()
}
