package slurmtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"caelum/internal/slurm"
)

// Node behaves like slurm.Client.Node.
func (f *Fake) Node(_ context.Context, name string) (out slurm.Node, err error) {
	err = f.call(Call{Op: "Node", Node: name}, func() error {
		n, err := f.node(name)
		if err == nil {
			out = f.show(n)
		}
		return err
	})
	return out, err
}

// NamedNodes behaves like slurm.Client.NamedNodes.
func (f *Fake) NamedNodes(_ context.Context, names ...string) (out []slurm.Node, err error) {
	err = f.call(Call{Op: "NamedNodes", Node: strings.Join(names, ",")}, func() error {
		for _, name := range names {
			n, err := f.node(name)
			if err != nil {
				return err
			}
			out = append(out, f.show(n))
		}
		return nil
	})
	return out, err
}

// Nodes behaves like slurm.Client.Nodes, which omits the catalogue nodes.
func (f *Fake) Nodes(context.Context) (out []slurm.Node, err error) {
	err = f.call(Call{Op: "Nodes"}, func() error {
		for _, n := range f.nodes {
			if !n.Catalogue {
				out = append(out, f.show(n))
			}
		}
		return nil
	})
	return out, err
}

func (f *Fake) show(n *node) slurm.Node {
	used := f.used(n)
	out := slurm.Node{
		Name:            n.Name,
		Addr:            n.Addr,
		Asked:           time.Now(),
		Extra:           n.extra,
		Comment:         n.comment,
		Reason:          n.reason,
		Partitions:      slices.Clone(n.Partitions),
		Features:        slices.Clone(n.Features),
		Unregistered:    n.unregistered,
		Gres:            slices.Clone(n.gres),
		BootTime:        n.boot,
		SlurmdStartTime: n.slurmd,
	}
	if strings.Contains(f.config["AccountingStorageTRES"], "gres/mig") {
		out.MIGTotal = total(n.Gres)
	}
	busy, completing := false, false
	for _, j := range f.jobs {
		busy = busy || j.Holds() && slices.Contains(j.Nodes, n.Name)
		completing = completing || j.State == "COMPLETING" && slices.Contains(j.Nodes, n.Name)
	}
	switch {
	case busy:
		out.States = []string{"MIXED"}
	default:
		out.States = []string{"IDLE"}
	}
	if completing {
		out.States = append(out.States, "COMPLETING")
	}
	out.States = append(out.States, n.drain...)
	// GresUsed lists all types in slurm.conf, even those that an update omitted, plus the types that an update added.
	shown := slices.Clone(n.Gres)
	for _, g := range n.gres {
		if !slices.ContainsFunc(shown, func(s slurm.GRES) bool { return s.Name == g.Name && s.Type == g.Type }) {
			shown = append(shown, g)
		}
	}
	for _, g := range shown {
		out.GresUsed = append(out.GresUsed, slurm.GRES{Name: g.Name, Type: g.Type, Count: used[kind{g.Name, g.Type}]})
	}
	return out
}

// UpdateNode behaves like slurm.Client.UpdateNode.
func (f *Fake) UpdateNode(_ context.Context, name string, gres slurm.GRESList, extra string) error {
	return f.call(Call{Op: "UpdateNode", Node: name, GRES: gres}, func() error {
		n, err := f.node(name)
		if err != nil {
			return err
		}
		var list slurm.GRESList
		for _, g := range gres {
			known := slices.IndexFunc(n.Gres, func(c slurm.GRES) bool { return c.Name == g.Name })
			if known < 0 {
				continue // slurmctld ignores an unknown GRES without an error (rc=0)
			}
			if g.Name == "gpu" && g.Count != 0 && g.Count != n.Gres[known].Count {
				return fmt.Errorf("invalid generic resource (gres) specification: %v", g)
			}
			list = append(list, g)
		}
		n.gres, n.total, n.extra = list, total(list), extra
		return nil
	})
}

// SetNodeGRES behaves like slurm.Client.SetNodeGRES.
func (f *Fake) SetNodeGRES(ctx context.Context, name string, gres slurm.GRESList) error {
	n, err := f.Node(ctx, name)
	if err != nil {
		return err
	}
	return f.UpdateNode(ctx, name, gres, n.Extra)
}

// SetNodeExtra behaves like slurm.Client.SetNodeExtra.
func (f *Fake) SetNodeExtra(_ context.Context, name, text string) error {
	return f.call(Call{Op: "SetNodeExtra", Node: name}, func() error {
		n, err := f.node(name)
		if err == nil {
			n.extra = text
		}
		return err
	})
}

// SetNodeComment behaves like slurm.Client.SetNodeComment.
func (f *Fake) SetNodeComment(_ context.Context, name, text string) error {
	return f.call(Call{Op: "SetNodeComment", Node: name, Text: text}, func() error {
		n, err := f.node(name)
		if err == nil {
			n.comment = text
		}
		return err
	})
}

// HideNode behaves like slurm.Client.HideNode, but does not change the node's state.
func (f *Fake) HideNode(_ context.Context, name string) error {
	return f.call(Call{Op: "HideNode", Node: name}, func() error {
		_, err := f.node(name)
		return err
	})
}

// Job behaves like slurm.Client.Job.
func (f *Fake) Job(_ context.Context, id uint32) (out slurm.Job, err error) {
	err = f.call(Call{Op: "Job", Job: id}, func() error {
		j, err := f.job(id)
		if err == nil {
			out = j.view(true)
		}
		return err
	})
	return out, err
}

// view returns a copy of the job as slurmctld shows it.
func (j *job) view(allocation bool) slurm.Job {
	out := j.Job
	out.Nodes = slices.Clone(j.Nodes)
	if allocation && j.Holds() {
		out.Allocated = make(map[string]slurm.GRESList)
		for n, list := range j.alloc {
			out.Allocated[n] = slices.Clone(list)
		}
	}
	return out
}

// Queue behaves like slurm.Client.Queue.
func (f *Fake) Queue(context.Context) (out slurm.Queue, err error) {
	err = f.call(Call{Op: "Queue"}, func() error {
		for _, j := range f.sorted() {
			out.All = append(out.All, j.view(false))
		}
		out.Waiting = f.waiting()
		return nil
	})
	return out, err
}

// Jobs behaves like slurm.Client.Jobs.
func (f *Fake) Jobs(context.Context) (all []slurm.Job, err error) {
	err = f.call(Call{Op: "Jobs"}, func() error {
		for _, j := range f.sorted() {
			all = append(all, j.view(false))
		}
		return nil
	})
	return all, err
}

func (f *Fake) waiting() (all []slurm.Waiting) {
	for _, j := range f.sorted() {
		if j.State == "PENDING" {
			all = append(all, slurm.Waiting{Job: new(j.view(false)), Elements: 1})
		}
	}
	return all
}

// Config behaves like slurm.Client.Config.
func (f *Fake) Config(context.Context) (out slurm.Config, err error) {
	err = f.call(Call{Op: "Config"}, func() error {
		out.Values = maps.Clone(f.config)
		return nil
	})
	return out, err
}

// RequeueHold behaves like slurm.Client.RequeueHold. The epilogs of the finished run are run by RunEpilogs.
func (f *Fake) RequeueHold(_ context.Context, id uint32) error {
	return f.call(Call{Op: "RequeueHold", Job: id}, func() error {
		j, err := f.job(id)
		if err != nil {
			return err
		}
		if !j.Present() || j.State == "COMPLETING" || !j.Batch || !j.Requeue {
			return fmt.Errorf("job %d is %s: %w", id, j.State, slurm.ErrJobState)
		}
		f.requeue(j)
		j.hold("job requeued in held state")
		return nil
	})
}

// RequeueFailed behaves like slurm.Client.RequeueFailed. The remaining epilogs of the finished run are run by
// RunEpilogs.
func (f *Fake) RequeueFailed(_ context.Context, id uint32) error {
	return f.call(Call{Op: "RequeueFailed", Job: id}, func() error {
		j, err := f.job(id)
		if err != nil {
			return err
		}
		if !j.Failed() || j.final != "FAILED" || !j.Batch || !j.Requeue {
			return fmt.Errorf("job %d is %s: %w", id, j.State, slurm.ErrJobState)
		}
		f.requeue(j)
		return nil
	})
}

// EndJob behaves like slurm.Client.EndJob.
func (f *Fake) EndJob(_ context.Context, id uint32, reason string, still func(slurm.Job) bool) error {
	return f.call(Call{Op: "EndJob", Job: id, Text: reason}, func() error {
		j, err := f.job(id)
		if err != nil {
			return err
		}
		if !still(j.Job) {
			return slurm.ErrJobState
		}
		return f.endLocked(id, "CANCELLED")
	})
}

// Hold behaves like slurm.Client.Hold.
func (f *Fake) Hold(_ context.Context, id uint32) error {
	return f.call(Call{Op: "Hold", Job: id}, func() error {
		j, err := f.job(id)
		if err == nil && j.queued() {
			j.hold("JobHeldUser")
		}
		return err
	})
}

// queued reports whether the job is pending, or was requeued and is still completing.
func (j *job) queued() bool {
	return j.State == "PENDING" || j.State == "COMPLETING" && j.final == "PENDING"
}

func (j *job) hold(reason string) {
	j.held, j.Priority, j.Reason = true, 0, reason
}

// Release behaves like slurm.Client.Release.
func (f *Fake) Release(_ context.Context, id uint32) error {
	return f.call(Call{Op: "Release", Job: id}, func() error {
		j, err := f.job(id)
		if err == nil && j.queued() {
			j.held, j.Priority, j.Reason = false, j.basic, "None"
		}
		return err
	})
}

// SetJobGRES behaves like slurm.Client.SetJobGRES.
func (f *Fake) SetJobGRES(_ context.Context, id uint32, gres slurm.GRESList) error {
	return f.call(Call{Op: "SetJobGRES", Job: id, GRES: gres}, func() error {
		j, err := f.job(id)
		if err != nil {
			return err
		}
		if j.State != "PENDING" {
			return fmt.Errorf("job %d is %s: %w", id, j.State, slurm.ErrJobState)
		}
		j.PerNode = slices.Clone(gres)
		return nil
	})
}

// SetAdminComment behaves like slurm.Client.SetAdminComment.
func (f *Fake) SetAdminComment(_ context.Context, id uint32, text string) error {
	return f.call(Call{Op: "SetAdminComment", Job: id, Text: text}, func() error {
		return f.comment(id, func(j *job) { j.AdminComment = text })
	})
}

// comment changes one of a job's comments. It returns slurm.ErrJobState unless the job is pending, has been requeued or
// holds its nodes.
func (f *Fake) comment(id uint32, set func(*job)) error {
	j, err := f.job(id)
	if err != nil {
		return err
	}
	if !j.Holds() && !j.queued() {
		return fmt.Errorf("job %d is %s: %w", id, strings.ToLower(j.State), slurm.ErrJobState)
	}
	set(j)
	return nil
}
