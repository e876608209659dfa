package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"caelum/internal/controller/watch"
	"caelum/internal/core/part"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// party is a process that sends requests to slurmctld: an agent or a planner. Each request takes time before and after
// it takes effect. The faults of a trial stop the process, or make its requests fail.
type party struct {
	*slurmtest.Fake
	trial *trial

	mu      sync.Mutex
	stopped chan struct{}         // closed when the process continues; nil while it is running
	cut     func(op string) error // the error of a request, or nil
}

// wait waits while the process is stopped.
func (p *party) wait() {
	for {
		p.mu.Lock()
		stopped := p.stopped
		p.mu.Unlock()
		if stopped == nil {
			return
		}
		<-stopped
	}
}

// stop stops the process until the function returns, as SIGSTOP and SIGCONT do.
func (p *party) stop(until func()) {
	stopped := make(chan struct{})
	p.mu.Lock()
	p.stopped = stopped
	p.mu.Unlock()
	until()
	p.mu.Lock()
	p.stopped = nil
	p.mu.Unlock()
	close(stopped)
}

// setCut makes requests fail. nil ends this.
func (p *party) setCut(cut func(op string) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

func (p *party) failure(op string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut == nil {
		return nil
	}
	return p.cut(op)
}

// do sends a request. If the process is killed while the request is under way, the Slurm command that sends it may
// continue, so the request may take effect.
func (p *party) do(ctx context.Context, op string, act func() error) error {
	t := p.trial
	p.wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	run := t.ctldRun()
	t.delay()
	if ctx.Err() != nil && t.chance(0.5) {
		return ctx.Err()
	}
	err := p.failure(op)
	if err == nil {
		err = t.act(run, act)
	}
	t.delay()
	p.wait()
	return cmp.Or(ctx.Err(), err)
}

func (p *party) Node(ctx context.Context, name string) (out slurm.Node, err error) {
	err = p.do(ctx, "Node", func() (err error) { out, err = p.Fake.Node(ctx, name); return err })
	return out, err
}

func (p *party) Nodes(ctx context.Context) (out []slurm.Node, err error) {
	err = p.do(ctx, "Nodes", func() (err error) { out, err = p.Fake.Nodes(ctx); return err })
	return out, err
}

func (p *party) NamedNodes(ctx context.Context, names ...string) (out []slurm.Node, err error) {
	err = p.do(ctx, "NamedNodes", func() (err error) { out, err = p.Fake.NamedNodes(ctx, names...); return err })
	return out, err
}

func (p *party) Job(ctx context.Context, id uint32) (out slurm.Job, err error) {
	err = p.do(ctx, "Job", func() (err error) { out, err = p.Fake.Job(ctx, id); return err })
	return out, err
}

func (p *party) Jobs(ctx context.Context) (out []slurm.Job, err error) {
	err = p.do(ctx, "Jobs", func() (err error) { out, err = p.Fake.Jobs(ctx); return err })
	return out, err
}

func (p *party) Queue(ctx context.Context) (out slurm.Queue, err error) {
	err = p.do(ctx, "Queue", func() (err error) { out, err = p.Fake.Queue(ctx); return err })
	return out, err
}

func (p *party) UpdateNode(ctx context.Context, node string, gres slurm.GRESList, extra string) error {
	return p.do(ctx, "UpdateNode", func() error {
		err := p.Fake.UpdateNode(ctx, node, gres, extra)
		p.trial.sound(node, "the write of "+gres.String())
		return err
	})
}

func (p *party) SetNodeExtra(ctx context.Context, node, text string) error {
	return p.do(ctx, "SetNodeExtra", func() error { return p.Fake.SetNodeExtra(ctx, node, text) })
}

func (p *party) SetNodeGRES(context.Context, string, slurm.GRESList) error {
	return errors.New("no node of the trial is powered down")
}

// plannerProcess is a watcher that makes plans. Its loop is that of watch.Watcher.Run, without the trigger file and
// the datagrams.
type plannerProcess struct {
	party
	host     string
	policy   place.Policy
	notified chan struct{} // receives the notifications
	kill     context.CancelFunc
}

func (p *plannerProcess) SetNodeComment(ctx context.Context, node, text string) error {
	return p.do(ctx, "SetNodeComment", func() error {
		p.trial.wrote(p, text)
		return p.Fake.SetNodeComment(ctx, node, text)
	})
}

// startPlanner starts a planner on a host.
func (t *trial) startPlanner(host string, policy place.Policy) *plannerProcess {
	ctx, kill := context.WithCancel(t.ctx)
	p := &plannerProcess{
		party: party{Fake: t.fake, trial: t}, host: host, policy: policy, notified: make(chan struct{}, 1), kill: kill,
	}
	t.mu.Lock()
	t.planners = append(t.planners, p)
	t.mu.Unlock()
	w := watch.New(watch.Config{
		Name:        host,
		TriggerFile: t.trigger,
		Settings:    plan.Settings{Policy: policy, Tightest: true},
		Interval:    trialPoll,
		Planner:     true,
		Send:        func(n slurm.Node) error { t.notifyAgent(n.Name); return nil },
		Confirm:     func(n slurm.Node, text string) error { p.wait(); t.confirmAgent(n.Name, text); return nil },
	}, p, t.log.WithField("host", host))
	t.tasks.Go(func() { p.run(ctx, w) })
	return p
}

func (p *plannerProcess) run(ctx context.Context, w *watch.Watcher) {
	next := time.NewTimer(0)
	defer next.Stop()
	earliest := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.notified:
			next.Reset(time.Until(earliest))
			continue
		case <-next.C:
		}
		p.wait()
		began := time.Now()
		if _, err := w.Round(ctx); err != nil {
			p.trial.logf("%s: %v", p.host, err)
			next.Reset(time.Second)
			continue
		}
		pause := min(4*time.Since(began), 2*time.Second)
		earliest = time.Now().Add(pause)
		next.Reset(max(pause, part.Every))
	}
}

// String returns the host and the policy.
func (p *plannerProcess) String() string { return fmt.Sprintf("the planner on %s", p.host) }
