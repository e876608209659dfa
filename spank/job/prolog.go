package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"caelum/internal/node/api"
)

// call holds the arguments of one prolog or epilog. wait is in seconds. restart, slots and sluid are the values of
// environment variables that Slurm sets.
type call struct {
	id, uid, gid                                        uint32
	wait                                                int
	restart, slots, partition, sluid, node, mig, runDir string
}

// prolog requests the job's lease. It returns an error only if the node is faulty, because Slurm drains the node if the
// prolog fails.
func prolog(c call) error {
	restart, err := parseRestart(c.restart)
	if err != nil {
		return err
	}
	slots, err := parseSlots(c.slots)
	if err != nil {
		return err
	}
	if err := removeStale(c, restart); err != nil {
		return err
	}
	client := api.NewClient(c.runDir)
	err = within(c.wait, func(ctx context.Context) error {
		_, err := client.Lease(ctx, c.id, api.LeaseRequest{
			Restart: restart, UID: c.uid, GID: c.gid, Partition: c.partition, Slots: slots, MIG: c.mig,
			SLUID: parseSLUID(c.sluid), Wait: retrySeconds(ctx, c.wait),
		})
		return err
	})
	if err == nil {
		return nil
	}
	next := fmt.Sprintf("then run scontrol update nodename=%s state=resume", c.node)
	var refused *api.Error
	switch {
	case errors.As(err, &refused) && refused.Code == 503:
		return fmt.Errorf(
			"couldn't get a lease in %d s: the agent says: %s; see 'caelum status' on %s, %s",
			c.wait,
			refused.Message,
			c.node,
			next,
		)
	case errors.As(err, &refused):
		return fmt.Errorf(
			"couldn't get a lease: the agent says: %s (%d); see 'caelum status' on %s, %s",
			refused.Message,
			refused.Code,
			c.node,
			next,
		)
	}
	return fmt.Errorf(
		"couldn't get a lease: no agent answered at %s for %d s (%s); see 'systemctl status caelumd' on %s, %s",
		client.Socket(),
		c.wait,
		api.Reason(err),
		c.node,
		next,
	)
}

// maxReserve limits the part of the prolog's time that is reserved for the agent's last answer, which rejects or
// requeues the job.
const maxReserve = 5 * time.Second

// retrySeconds returns the number of seconds during which the agent may answer "not now". The result is never 0.
// retrySeconds reserves a quarter of the prolog's time, but at most maxReserve, for the agent's last answer.
func retrySeconds(ctx context.Context, wait int) float64 {
	end, _ := ctx.Deadline()
	reserve := min(time.Duration(wait)*time.Second/4, maxReserve)
	return max((time.Until(end) - reserve).Seconds(), 0.001)
}

// epilog releases the job's slices. If it returns an error, the C code logs it and reports success to Slurm.
func epilog(c call) error {
	restart, err := parseRestart(c.restart)
	if err != nil {
		return err
	}
	client := api.NewClient(c.runDir)
	err = within(c.wait, func(ctx context.Context) error { return client.Release(ctx, c.id, restart) })
	if err != nil {
		return fmt.Errorf("couldn't release the slices at %s in %d s: %s", client.Socket(), c.wait, api.Reason(err))
	}
	return nil
}

// within repeats f until it succeeds or fails permanently, or until the time limit has passed. Slurm's own time limit
// is not suitable: none is set by default, and once it is reached, Slurm kills the process within 10 ms.
func within(seconds int, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer cancel()
	return api.Retry(ctx, f)
}

// removeStale removes the lease file from an earlier run of the job. A requeued job keeps its id, and a task cannot
// recognize an earlier run's lease file, because it does not know its own restart count.
func removeStale(c call, restart int) error {
	path := filepath.Join(c.runDir, "jobs", strconv.FormatUint(uint64(c.id), 10))
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && bytes.Contains(text, fmt.Appendf(nil, "\nrestart %d\n", restart)) {
		return nil
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf(
			"couldn't remove the lease file of an earlier run: %w; remove it, then run scontrol update nodename=%s "+
				"state=resume",
			err,
			c.node,
		)
	}
	return nil
}

// parseRestart parses SLURM_JOB_RESTART_COUNT. An empty string means that the job has never been restarted.
func parseRestart(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("couldn't read SLURM_JOB_RESTART_COUNT=%q; report this error", text)
	}
	return int(n), nil
}

// parseSlots parses SLURM_JOB_GPUS, for example "0,3,4".
func parseSlots(text string) ([]int, error) {
	var slots []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(word, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("couldn't read SLURM_JOB_GPUS=%q; check the gpu lines of gres.conf", text)
		}
		slots = append(slots, int(n))
	}
	return slots, nil
}

// parseSLUID returns the value of SLURM_JOB_SLUID, or an empty string if it cannot name a cgroup. The value is then not
// sent, because the agent would reject the request, which drains the node.
func parseSLUID(text string) string {
	if !api.ValidSLUID(text) {
		return ""
	}
	return text
}

// oneLine replaces control characters with spaces, so that a message occupies a single line in slurmd's log.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
