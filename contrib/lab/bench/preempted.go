package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// preemptionResult is the outcome of a case, formatted as table cells.
type preemptionResult struct {
	jobs string // what happened to the jobs
	wait string // the time from the preemptor's submission until its last task has started
	room string // the time from the last epilog of a stopped job until the next start of the preemptor
}

// result reads the outcome of a case. from is the length of slurmctld's log before the preemptor was submitted.
func (w *preemptionWay) result(
	ctx context.Context, from int, victims []string, by string, starts bool,
) (r preemptionResult, err error) {
	out, stderr, err := w.c.Exec(ctx, "root", "sacct", "-n", "-P", "-X", "-D", "-j", strings.Join(victims, ","),
		"-o", "JobID,State")
	if err != nil {
		return r, fmt.Errorf("sacct: %w: %s", err, stderr)
	}
	count := map[string]int{}
	var states []string
	for line := range strings.Lines(out) {
		_, state, _ := strings.Cut(strings.TrimSpace(line), "|")
		state, _, _ = strings.Cut(state, " ") // CANCELLED by 0
		if state == "PENDING" {
			continue // the next run of a requeued job
		}
		if count[state]++; count[state] == 1 {
			states = append(states, state)
		}
	}
	for _, state := range states {
		r.jobs += fmt.Sprintf("%d %s, ", count[state], state)
	}
	requeued, err := w.requeued(ctx, victims)
	if err != nil {
		return r, err
	}
	r.jobs += fmt.Sprintf("%d in the queue", requeued)
	if r.wait, r.room = "does not start", ""; !starts {
		return r, nil
	}
	log, err := w.c.Log("slurmctld")
	if err != nil {
		return r, err
	}
	r.wait, r.room, err = preemptionTimes(log[from:], victims, by)
	return r, err
}

// requeued returns the number of victims that are waiting again after exactly one requeue. A second requeue is an
// error.
func (w *preemptionWay) requeued(ctx context.Context, victims []string) (n int, err error) {
	for _, id := range victims {
		out, stderr, err := w.c.Exec(ctx, "root", "scontrol", "show", "job", id)
		if err != nil {
			return n, fmt.Errorf("scontrol: %w: %s", err, stderr)
		}
		for _, m := range regexp.MustCompile(` Restarts=(\d+) `).FindAllStringSubmatch(out, -1) {
			switch m[1] {
			case "0":
			case "1":
				n++
			default:
				return n, fmt.Errorf("job %s was requeued %s times", id, m[1])
			}
		}
	}
	return n, nil
}

// preemptLogged matches the lines of slurmctld's log about submissions, epilogs and starts. The id of an array task or
// a het job component is followed by the task number or the offset.
var preemptLogged = regexp.MustCompile(`(?m)^\[([^\]]+)\] (?:debug2?: +)?.*?(_slurm_rpc_submit_batch_job:|` +
	`_slurm_rpc_submit_batch_het_job:|_slurm_rpc_epilog_complete:|sched: Allocate|_start_job: Started) JobId=(\d+)`)

// preemptionTimes returns the preemptor's wait since its submission and its wait since the last epilog of a victim,
// according to slurmctld's log.
func preemptionTimes(log string, victims []string, by string) (wait, room string, err error) {
	var submitted, ended, last time.Time
	after, starts := time.Duration(0), 0
	for _, m := range preemptLogged.FindAllStringSubmatch(log, -1) {
		at, err := time.Parse("2006-01-02T15:04:05.000", m[1])
		if err != nil {
			return "", "", err
		}
		victim := false
		for _, id := range victims {
			victim = victim || id == m[3]
		}
		switch {
		case strings.Contains(m[2], "submit") && m[3] == by:
			submitted = at
		case strings.Contains(m[2], "epilog") && victim:
			ended = at
		case !strings.Contains(m[2], "epilog") && m[3] == by:
			last = at
			if starts++; !ended.IsZero() {
				after = max(after, at.Sub(ended))
			}
		}
	}
	if submitted.IsZero() || starts == 0 {
		return "", "", fmt.Errorf("slurmctld's log does not contain the submission and the start of job %s", by)
	}
	room = "before it"
	if after > 0 {
		room = fmt.Sprintf("%.1f s", after.Seconds())
	}
	return fmt.Sprintf("%.1f s", last.Sub(submitted).Seconds()), room, nil
}
