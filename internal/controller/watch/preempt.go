package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/core/offer"
	"caelum/internal/core/plan"
	"caelum/internal/core/preempt"
	"caelum/internal/core/tags"
	"caelum/internal/failpoint"
	"caelum/internal/slurm"
)

// Preemptor is the set of Slurm calls that the watcher uses to preempt jobs. *slurm.Client implements Preemptor.
type Preemptor interface {
	Config(ctx context.Context) (slurm.Config, error)
	Partitions(ctx context.Context) ([]slurm.Partition, error)
	QOS(ctx context.Context) ([]slurm.QOS, error)
	Job(ctx context.Context, id uint32) (slurm.Job, error)
	ExcludedNodes(ctx context.Context, id uint32) ([]string, error)
	SetAdminComment(ctx context.Context, id uint32, text string) error
	Requeue(ctx context.Context, id uint32, still func(slurm.Job) bool) error
	Cancel(ctx context.Context, id uint32, still func(slurm.Job) bool) error
	Warn(ctx context.Context, id uint32, still func(slurm.Job) bool) error
}

// readRules is the age at which the rules are read again, because `scontrol reconfigure` and sacctmgr can change them.
const readRules = time.Minute

// preemption carries out the steps that package preempt decides on. It does not store the state of a preemption,
// because the jobs' tags contain all of it.
type preemption struct {
	ctl      Preemptor
	log      *logrus.Entry
	preempts bool // whether jobs are preempted by Slurm's rules
	moves    *moves
	rules    preempt.Rules
	known    bool      // whether rules contains Slurm's settings
	read     time.Time // the time at which the rules were read
}

// round carries out the next steps and logs failures. again is true if the next round must not wait for the poll
// interval.
func (p *preemption) round(ctx context.Context, snapshot plan.Snapshot, v *plan.View, made offer.Plan) (again bool) {
	if snapshot.At.Sub(p.read) >= readRules {
		if err := p.readRules(ctx); err != nil {
			p.log.WithError(err).Warn("couldn't read Slurm's settings for preemption; the watcher will try again soon")
			return true
		}
		p.read = snapshot.At
	}
	settings := preempt.Settings{
		Preempt: p.preempts, Moves: p.moves.cfg.PerDay > 0, Partitions: p.moves.cfg.Partitions,
		BeginMove: p.known && p.moves.mayBegin(snapshot.At),
	}
	steps, again := p.moves.prepare(ctx, snapshot, preempt.Next(p.rules, settings, snapshot, v, made))
	if err := p.checkMoved(ctx, steps); err != nil {
		p.log.WithError(err).Info("a job to be moved has changed; the next round will decide again")
		return true
	}
	for _, s := range steps {
		err := p.do(ctx, s)
		log := p.log.WithFields(logrus.Fields{"step": s.Do, "job": s.Job.ID, "preemptor": s.For, "move": s.Move})
		switch {
		case errors.Is(err, slurm.ErrNoJob), errors.Is(err, slurm.ErrJobState):
			log.WithError(err).Info("the job has changed; the next round will decide again")
			return true
		case err != nil:
			log.WithError(err).Warn("couldn't carry out a step of a preemption or move; the next round will try again")
			return true
		}
		log.Info("step of a preemption or move done")
		if again = true; s.Do == preempt.Tag && s.Move {
			p.moves.spend(snapshot.At)
		}
	}
	return again
}

// checkMoved reads the records of the jobs that steps requeues for a move, and returns an error if any of them must not
// be moved any more. Otherwise, the other jobs would lose their runs although the waiting job does not get its room.
func (p *preemption) checkMoved(ctx context.Context, steps []preempt.Step) error {
	for _, s := range steps {
		if s.Do != preempt.Stop || !s.Move {
			continue
		}
		j, err := p.ctl.Job(ctx, s.Job.ID)
		if err == nil && !p.mayStop(s, j) {
			err = fmt.Errorf("job %d: %w", s.Job.ID, slurm.ErrJobState)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mayStop reports whether a step still applies to a job's current record: the job is in the same run, is still tagged
// as stopped for the same job and, for a move, may still be moved.
func (p *preemption) mayStop(s preempt.Step, j slurm.Job) bool {
	mark, ok := tags.PreemptedBy(j)
	return ok && mark.Job == s.For && j.Restarts == s.Job.Restarts && (!s.Move || p.moves.permits(j))
}

// readRules reads slurmctld's settings. If they cannot be read, no job is preempted.
func (p *preemption) readRules(ctx context.Context) error {
	p.rules, p.known, p.read = preempt.Rules{}, false, time.Time{}
	config, err := p.ctl.Config(ctx)
	if err != nil {
		return err
	}
	partitions, err := p.ctl.Partitions(ctx)
	if err != nil {
		return err
	}
	var qos []slurm.QOS
	if config.Preempts() && preempt.HasQOS(config) {
		if qos, err = p.ctl.QOS(ctx); err != nil {
			p.log.WithError(err).Warn("couldn't read the QOS from slurmdbd; the watcher preempts no jobs")
			return nil
		}
	}
	if p.rules, err = preempt.NewRules(config, partitions, qos); err != nil {
		p.log.WithError(err).Warn("couldn't parse Slurm's settings for preemption; the watcher preempts no jobs")
	}
	p.known = err == nil
	return nil
}

// do carries out one step. Before a step that ends a run or sends signals to it, do reads the job's record again and
// carries out the step only if the job is still in the same run and is still tagged as preempted for the same job.
func (p *preemption) do(ctx context.Context, s preempt.Step) error {
	still := func(j slurm.Job) bool { return p.mayStop(s, j) }
	switch s.Do {
	case preempt.Tag:
		err := p.comment(ctx, s)
		failpoint.Hit(failpoint.PreemptTagged)
		return err
	case preempt.Warn:
		if err := p.ctl.Warn(ctx, s.Job.ID, still); err != nil {
			return err
		}
		return p.comment(ctx, s)
	}
	end := p.ctl.Cancel
	if s.Move || s.Mode == preempt.Requeue && s.Job.Batch && s.Job.Requeue {
		end = p.ctl.Requeue
	}
	err := end(ctx, s.Job.ID, still)
	failpoint.Hit(failpoint.PreemptStopped)
	return err
}

// comment writes the step's admin_comment unless the run or its admin_comment has changed since the snapshot.
// Otherwise, the tags that an agent has written in the meantime would be lost.
func (p *preemption) comment(ctx context.Context, s preempt.Step) error {
	j, err := p.ctl.Job(ctx, s.Job.ID)
	if err != nil {
		return err
	}
	if j.AdminComment != s.Job.AdminComment || j.Restarts != s.Job.Restarts || j.Holds() != s.Job.Holds() {
		return fmt.Errorf("job %d: %w", s.Job.ID, slurm.ErrJobState)
	}
	if s.Move { // neither the snapshot nor the record of a running job contains the nodes that the job excludes
		excluded, err := p.ctl.ExcludedNodes(ctx, s.Job.ID)
		if err != nil {
			return err
		}
		if len(excluded) > 0 {
			if err := p.ctl.SetAdminComment(ctx, s.Job.ID, tags.WithoutMoves(j)); err != nil {
				return err
			}
			return fmt.Errorf("job %d excludes nodes, so it is not moved: %w", s.Job.ID, slurm.ErrJobState)
		}
	}
	return p.ctl.SetAdminComment(ctx, s.Job.ID, s.Comment)
}
