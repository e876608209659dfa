package slurm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Preempts reports whether slurmctld is configured to preempt jobs. With PreemptMode=OFF, slurmctld does not preempt
// jobs, regardless of the modes of partitions and QOS (PREEMPT_DATA_ENABLED in the plugins, 22.05.8).
func (c Config) Preempts() bool {
	kind, mode := c.Values["PreemptType"], c.Values["PreemptMode"]
	return kind != "" && kind != "preempt/none" && mode != "" && !strings.EqualFold(mode, "OFF")
}

// PreemptExempt returns PreemptExemptTime, or 0 if it is not set.
func (c Config) PreemptExempt() (time.Duration, error) {
	text := c.Values["PreemptExemptTime"]
	if strings.EqualFold(text, "NONE") || text == "" {
		return 0, nil
	}
	return ParseLimit(text)
}

// Requeue ends the run of a job and returns the job to the queue if still, called with the job's current record,
// returns true. Otherwise, it returns ErrJobState, as it does for a job that has ended or must not be requeued.
func (c *Client) Requeue(ctx context.Context, id uint32, still func(Job) bool) error {
	return c.onRun(ctx, id, still, func(ref string) (string, []string) { return c.scontrol, []string{"requeue", ref} })
}

// Cancel ends a job, under the same condition as Requeue.
func (c *Client) Cancel(ctx context.Context, id uint32, still func(Job) bool) error {
	return c.onRun(ctx, id, still, func(ref string) (string, []string) { return c.scancel, []string{ref} })
}

// EndJob writes a reason to the standard error of a job's batch script, or of its salloc or srun command, and ends the
// job, under the same condition as Requeue.
func (c *Client) EndJob(ctx context.Context, id uint32, reason string, still func(Job) bool) error {
	_, err := c.run(ctx, nil, c.scontrol, "notify", strconv.FormatUint(uint64(id), 10), reason)
	return errors.Join(err, c.Cancel(ctx, id, still))
}

// Warn sends SIGCONT and SIGTERM to the steps of a job, under the same condition as Requeue. slurmctld sends the same
// signals when a preempted job's GraceTime begins (_job_check_grace_internal in preempt.c, 22.05.8).
func (c *Client) Warn(ctx context.Context, id uint32, still func(Job) bool) error {
	for _, signal := range []string{"CONT", "TERM"} {
		err := c.onRun(ctx, id, still, func(ref string) (string, []string) {
			return c.scancel, []string{"--signal=" + signal, ref}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// onRun runs a command for a job if the job holds its nodes and the function still returns true for it.
func (c *Client) onRun(
	ctx context.Context, id uint32, still func(Job) bool, command func(ref string) (name string, args []string),
) error {
	j, err := c.record(ctx, id)
	if err != nil {
		return err
	}
	if !j.Holds() || !still(j) {
		return fmt.Errorf("job %d is %s, or has changed: %w", id, j.State, ErrJobState)
	}
	name, args := command(ref(j))
	_, err = c.run(ctx, nil, name, args...)
	return err
}
