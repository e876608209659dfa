package slurm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// UpdateNode writes a node's GRES, all of them, and its Extra, in one. slurmctld replaces the node's whole list and
// answers nothing to what it drops: a GRES left out, or misspelt, is gone (rc=0, 22.05.8), one with File= until
// slurmctld restarts. A GRES with File= takes its own count or 0 only. A slurmctld that does not listen is not waited
// for. ErrNoNode, ErrUnreachable.
func (c *Client) UpdateNode(ctx context.Context, node string, gres []GRES, extra string) error {
	if err := checkNode(node); err != nil {
		return err
	}
	if err := checkGRES(gres); err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	if strings.ContainsAny(extra, "\n\r") {
		return fmt.Errorf("node %s: a text of several lines cannot be its Extra", node)
	}
	_, err := c.runWith(
		ctx,
		c.once,
		nil,
		c.scontrol,
		"update",
		"nodename="+node,
		"gres="+FormatGRES(gres),
		"extra="+extra,
	)
	return err
}

func checkGRES(list []GRES) error {
	if len(list) == 0 {
		return errors.New("an empty GRES list would remove every GRES")
	}
	for _, g := range list {
		if err := g.valid(); err != nil {
			return err
		}
	}
	return nil
}

// RequeueHold ends the job's run and puts it back, held. ErrJobState if it has no run, or may not be requeued.
//
// A job that is over is refused here: slurmctld would do it and bring back a job that its user has cancelled (22.05.8).
func (c *Client) RequeueHold(ctx context.Context, id uint32) error {
	return c.onJob(ctx, id, func(j Job) ([]string, error) {
		if !j.Present() {
			return nil, fmt.Errorf("job %d is %s: %w", id, j.State, ErrJobState)
		}
		return []string{"requeuehold", ref(j)}, nil
	})
}

// Hold keeps a pending job from starting, by a hold that its user may lift (JobHeldUser). It does nothing to a run.
func (c *Client) Hold(ctx context.Context, id uint32) error {
	return c.onJob(ctx, id, func(j Job) ([]string, error) { return []string{"uhold", ref(j)}, nil })
}

// Release lifts a hold, also one that slurmctld set with BadConstraints. It gives the job a new, lower priority under
// priority/basic, also if it was not held.
func (c *Client) Release(ctx context.Context, id uint32) error {
	return c.onJob(ctx, id, func(j Job) ([]string, error) { return []string{"release", ref(j)}, nil })
}

// SetJobGRES changes what a pending job requests per node: name the GPUs too. From 23.11 on that is then all that it
// requests (source); through 23.02 the counts of types that are named are replaced and those of others stay (22.05.8).
func (c *Client) SetJobGRES(ctx context.Context, id uint32, gres []GRES) error {
	if err := checkGRES(gres); err != nil {
		return fmt.Errorf("job %d: %w", id, err)
	}
	return c.update(ctx, id, "gres="+FormatGRES(gres))
}

// SetJobComment replaces the comment that the user sees and may have written.
func (c *Client) SetJobComment(ctx context.Context, id uint32, text string) error {
	return c.update(ctx, id, "comment="+text)
}

// SetAdminComment replaces the admin's comment. It is too late in the epilog of a job on one node (ErrJobState).
func (c *Client) SetAdminComment(ctx context.Context, id uint32, text string) error {
	return c.update(ctx, id, "admincomment="+text)
}

// update changes one attribute. scontrol takes an argument's first = for the end of its name and the rest as it stands,
// blanks, quotes and further = too (22.05.8), so text in an argument of its own cannot become another attribute.
func (c *Client) update(ctx context.Context, id uint32, attr string) error {
	if strings.ContainsRune(attr, 0) {
		return fmt.Errorf("job %d: a NUL in %.40q", id, attr)
	}
	return c.onJob(ctx, id, func(j Job) ([]string, error) { return []string{"update", "jobid=" + ref(j), attr}, nil })
}

// onJob runs scontrol on one job. The id alone would not do: the last task of an array carries the array's own id, and
// scontrol takes that for all its tasks (22.05.8: requeuehold of the last task requeued the other two).
func (c *Client) onJob(ctx context.Context, id uint32, args func(Job) ([]string, error)) error {
	j, err := c.record(ctx, id)
	if err != nil {
		return err
	}
	argv, err := args(j)
	if err != nil {
		return err
	}
	_, err = c.run(ctx, nil, c.scontrol, argv...)
	return err
}

// ref names exactly one record to scontrol: "12", "12_3", "12_[4-9]" for what is left of a pending array, or "12+0" for
// the first component of a het job, whose id is the whole job's too (22.05.8: show and update of 12 take every
// component).
func ref(j Job) string {
	if j.HetJob != 0 && j.HetJob == j.ID {
		return strconv.FormatUint(uint64(j.ID), 10) + "+0"
	}
	if j.ArrayJob == 0 {
		return strconv.FormatUint(uint64(j.ID), 10)
	}
	tasks := j.ArrayTask
	if strings.ContainsAny(tasks, ",-") {
		tasks = "[" + tasks + "]"
	}
	return strconv.FormatUint(uint64(j.ArrayJob), 10) + "_" + tasks
}
