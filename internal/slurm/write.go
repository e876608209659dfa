package slurm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// UpdateNode writes a node's whole GRES list and its Extra in one request. slurmctld replaces the whole list: if the
// request omits or misspells a GRES, slurmctld removes it without an error (rc=0, 22.05.8), and a GRES with File= is
// restored only by a restart of slurmctld. For a GRES with File=, slurmctld accepts only the configured count or 0. If
// slurmctld does not accept connections, UpdateNode returns ErrUnreachable after about a second. Errors: ErrNoNode,
// ErrUnreachable.
func (c *Client) UpdateNode(ctx context.Context, node string, gres GRESList, extra string) error {
	if strings.ContainsAny(extra, "\n\r") {
		return fmt.Errorf("node %s: Extra cannot have more than one line", node)
	}
	return c.setNodeGRES(ctx, node, gres, "extra="+extra)
}

// SetNodeGRES is like UpdateNode, but does not change the node's Extra. Errors: ErrNoNode, ErrUnreachable.
func (c *Client) SetNodeGRES(ctx context.Context, node string, gres GRESList) error {
	return c.setNodeGRES(ctx, node, gres)
}

func (c *Client) setNodeGRES(ctx context.Context, node string, gres GRESList, more ...string) error {
	if err := checkNode(node); err != nil {
		return err
	}
	if err := checkGRES(gres); err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	args := append([]string{"update", "nodename=" + node, "gres=" + gres.String()}, more...)
	_, err := c.runWith(ctx, c.once, nil, c.scontrol, args...)
	return err
}

// SetNodeExtra replaces a node's Extra and leaves its GRES unchanged. If slurmctld does not accept connections,
// SetNodeExtra returns ErrUnreachable after about a second. Errors: ErrNoNode, ErrUnreachable.
func (c *Client) SetNodeExtra(ctx context.Context, node, text string) error {
	return c.setNodeText(ctx, node, "Extra", text)
}

// SetNodeComment replaces a node's Comment. slurmctld accepts the request only from root and SlurmUser
// (_slurm_rpc_update_node in proc_req.c, 22.05.8 and 24.11.5). If slurmctld does not accept connections, SetNodeComment
// returns ErrUnreachable after about a second. Errors: ErrNoNode, ErrUnreachable.
func (c *Client) SetNodeComment(ctx context.Context, node, text string) error {
	return c.setNodeText(ctx, node, "Comment", text)
}

// HideNode sets a node to the state FUTURE, in which Slurm does not show it. slurmctld accepts the request only from
// root and SlurmUser. Errors: ErrNoNode, ErrUnreachable.
func (c *Client) HideNode(ctx context.Context, node string) error {
	if err := checkNode(node); err != nil {
		return err
	}
	_, err := c.runWith(ctx, c.once, nil, c.scontrol, "update", "nodename="+node, "state=future")
	return err
}

// SetNodeState sets the state of nodes: "drain", which needs a reason, or "resume". slurmctld accepts the request only
// from operators. Errors: ErrNoNode, ErrUnreachable.
func (c *Client) SetNodeState(ctx context.Context, nodes []string, state, reason string) error {
	for _, node := range nodes {
		if err := checkNode(node); err != nil {
			return err
		}
	}
	args := []string{"update", "nodename=" + strings.Join(nodes, ","), "state=" + state}
	if reason != "" {
		args = append(args, "reason="+reason)
	}
	_, err := c.runWith(ctx, c.once, nil, c.scontrol, args...)
	return err
}

func (c *Client) setNodeText(ctx context.Context, node, field, text string) error {
	if err := checkNode(node); err != nil {
		return err
	}
	if strings.ContainsAny(text, "\n\r\x00") {
		return fmt.Errorf("node %s: %s cannot have several lines", node, field)
	}
	_, err := c.runWith(ctx, c.once, nil, c.scontrol, "update", "nodename="+node, strings.ToLower(field)+"="+text)
	return err
}

func checkGRES(list GRESList) error {
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

// RequeueHold ends a job's run, returns the job to the queue and holds it there. It returns ErrJobState if the job is
// not running or must not be requeued.
//
// It also returns ErrJobState for a job that has ended, because slurmctld 22.05.8 would requeue a cancelled job.
func (c *Client) RequeueHold(ctx context.Context, id uint32) error {
	return c.onJob(ctx, id, func(j Job) ([]string, error) {
		if !j.Present() {
			return nil, fmt.Errorf("job %d is %s: %w", id, j.State, ErrJobState)
		}
		return []string{"requeuehold", ref(j)}, nil
	})
}

// RequeueFailed returns a failed job to the queue while its epilog is still running. Jobs that depend on it then wait
// for its next run and are not affected by the failure. It returns ErrJobState if the job has not failed, if its last
// epilog has ended, or if it must not be requeued.
func (c *Client) RequeueFailed(ctx context.Context, id uint32) error {
	return c.onJob(ctx, id, func(j Job) ([]string, error) {
		if !j.Failed() {
			return nil, fmt.Errorf("job %d is %s (%s): %w", id, j.State, j.Reason, ErrJobState)
		}
		return []string{"requeue", ref(j)}, nil
	})
}

// Hold prevents a pending job from starting. The job's user can release this hold (JobHeldUser). It has no effect on a
// running job.
func (c *Client) Hold(ctx context.Context, id uint32) error {
	return c.onJob(ctx, id, func(j Job) ([]string, error) { return []string{"uhold", ref(j)}, nil })
}

// Release removes a hold, including a hold that slurmctld has set with BadConstraints. With priority/basic, it also
// makes slurmctld assign a new, lower priority to the job, even if it was not held.
func (c *Client) Release(ctx context.Context, id uint32) error {
	return c.onJob(ctx, id, func(j Job) ([]string, error) { return []string{"release", ref(j)}, nil })
}

// SetJobGRES changes the GRES that a pending job requests per node. gres must list all of the job's GRES: as of 23.11,
// slurmctld replaces the whole request. Up to 23.02, slurmctld retains the counts of types that gres omits
// (docs/slurm-releases.md, "Changes to a waiting job").
func (c *Client) SetJobGRES(ctx context.Context, id uint32, gres GRESList) error {
	if err := checkGRES(gres); err != nil {
		return fmt.Errorf("job %d: %w", id, err)
	}
	return c.update(ctx, id, "gres="+gres.String())
}

// SetAdminComment replaces the job's admin_comment. It returns ErrJobState while the epilog of a single-node job is
// running, unless the job has been requeued.
func (c *Client) SetAdminComment(ctx context.Context, id uint32, text string) error {
	return c.update(ctx, id, "admincomment="+text)
}

// update changes one attribute. In an argument to scontrol, the attribute's name ends at the first =, and the rest of
// the argument is the value, including spaces, quotes and further = characters (22.05.8). A value in an argument of its
// own therefore cannot set another attribute.
func (c *Client) update(ctx context.Context, id uint32, attr string) error {
	if strings.ContainsRune(attr, 0) {
		return fmt.Errorf("job %d: %.40q contains a NUL", id, attr)
	}
	return c.onJob(ctx, id, func(j Job) ([]string, error) { return []string{"update", "jobid=" + ref(j), attr}, nil })
}

// onJob runs scontrol for one job. A job id is not sufficient to identify a job: the last task of an array has the
// array's id, and scontrol applies this id to all tasks (22.05.8: requeuehold of the last task requeued the other two).
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

// ref returns a name that identifies exactly one record for scontrol: "12", "12_3", "12_[4-9]" for the remaining tasks
// of a pending array, or "12+0" for the first component of a het job. The id of the first component is also the id of
// the whole het job (22.05.8: show and update of 12 apply to every component).
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
