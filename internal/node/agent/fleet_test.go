package agent

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/config"
	"caelum/internal/controller/watch"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// fleet is a set of nodes with emulated A100s, a slurmctld in memory, and an agent on each node.
type fleet struct {
	t        testing.TB
	fake     *slurmtest.Fake
	hw       *gputest.Node         // a process can use only one emulated node, so that each agent uses one of its GPUs
	ctl      func(k int) Slurmctld // the slurmctld of each agent; nil for fake
	raised   func()                // replaces the agents' notifications to the watcher, if set
	agents   map[string]*Agent
	names    []string
	log      *logrus.Logger
	prologs  sync.WaitGroup
	mu       sync.Mutex
	leases   map[uint32]api.Lease
	hosts    int           // the number of hosts with planners
	confirms bool          // whether the agents receive the planners' confirmations
	ahead    time.Duration // how far the heartbeats' clock is ahead
	stopped  time.Time     // if not zero, the heartbeats' clock stands still at this time plus ahead
}

func fleetNode(k int) string { return fmt.Sprintf("n%02d", k) }

// newFleet returns nodes with one GPU each. Their agents run passes only on request, unless options changes the
// configuration.
func newFleet(t testing.TB, nodes int, options ...func(k int, c *config.Config)) *fleet {
	f := newNodes(t, nodes)
	for k := range nodes {
		f.start(k, options...)
	}
	return f
}

// newNodes returns a fleet without agents.
func newNodes(t testing.TB, nodes int) *fleet {
	f := &fleet{t: t, agents: map[string]*Agent{}, leases: map[uint32]api.Lease{}, log: logrus.New()}
	f.hw = gputest.New(t, "A100-40GB", nodes)
	f.log.SetOutput(io.Discard)
	var all []slurmtest.Node
	for k := range nodes {
		f.names = append(f.names, fleetNode(k))
		all = append(all, slurmtest.Node{
			Name: fleetNode(k), Partitions: []string{"gpu"}, Gres: gres(t, fmt.Sprintf(closedA100, 7, 28)),
			Addr: fmt.Sprintf("127.0.1.%d", k+1),
		})
	}
	for _, name := range []string{"mig-catalog1", "mig-catalog2"} { // for jobs on two nodes
		all = append(all, slurmtest.Node{
			Name: name, Partitions: []string{"gpu"}, Catalogue: true, Gres: gres(t, fullA100),
		})
	}
	f.fake = slurmtest.New(all...)
	f.fake.SetConfig("SlurmctldHost[0]", "ctl(127.0.0.1)")
	f.fake.Prolog(func(j slurm.Job, node string) { f.prologs.Go(func() { f.prolog(j, node) }) })
	f.fake.Epilog(func(j slurm.Job, node string) {
		if err := f.agents[node].Release(context.Background(), j.ID, j.Restarts); err != nil {
			t.Errorf("epilog of job %d: %v", j.ID, err)
		}
	})
	return f
}

func (f *fleet) start(k int, options ...func(int, *config.Config)) {
	dir := f.t.TempDir()
	cfg := config.Config{
		Node: fleetNode(k), RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"),
		DeviceDir: f.hw.Dev, PollInterval: time.Hour, Sizing: plan.SizingTightest, LogLevel: "error", LogFormat: "text",
	}
	for _, set := range options {
		set(k, &cfg)
	}
	ctl := Slurmctld(f.fake)
	if f.ctl != nil {
		ctl = f.ctl(k)
	}
	a, err := newAgent(cfg, oneGPU{f.hw.NVML, k}, ctl, f.log.WithField("node", cfg.Node),
		machine{proc: f.hw.Proc, procs: &gpu.Processes{Proc: f.t.TempDir()}})
	if err != nil {
		f.t.Fatal(err)
	}
	a.node.Now, a.publisher.Clock = f.fake.Now, f.clock
	if f.raised != nil {
		a.publisher.Raised = f.raised
	}
	f.agents[cfg.Node] = a
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { a.publisher.Run(ctx) })
	f.t.Cleanup(func() {
		f.prologs.Wait()
		cancel()
		done.Wait()
		a.ledger.Close()
	})
}

// oneGPU emulates a node whose only GPU is GPU k of an emulated node.
type oneGPU struct {
	*gpu.NVML
	k int
}

func (o oneGPU) GPUs() ([]gpu.GPU, error) {
	all, err := o.NVML.GPUs()
	if err != nil {
		return nil, err
	}
	own := all[o.k]
	own.Index = 0
	return []gpu.GPU{own}, nil
}

func (o oneGPU) Discover(int) gpu.GPU {
	own := o.NVML.Discover(o.k)
	own.Index = 0
	return own
}

func (o oneGPU) Instances(int) ([]gpu.Instance, error)           { return o.NVML.Instances(o.k) }
func (o oneGPU) Exists(_ int, in gpu.Instance) (bool, error)     { return o.NVML.Exists(o.k, in) }
func (o oneGPU) Destroy(_, gi int) error                         { return o.NVML.Destroy(o.k, gi) }
func (o oneGPU) Processes(_, gi int) ([]int, error)              { return o.NVML.Processes(o.k, gi) }
func (o oneGPU) Meter(_ int, in gpu.Instance) (gpu.Meter, error) { return o.NVML.Meter(o.k, in) }
func (o oneGPU) Create(_ int, profile string, start int) (gpu.Instance, error) {
	return o.NVML.Create(o.k, profile, start)
}

func (f *fleet) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped.IsZero() {
		return f.stopped.Add(f.ahead)
	}
	return time.Now().Add(f.ahead)
}

// advance moves the heartbeats' clock forward.
func (f *fleet) advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead += d
}

func (f *fleet) prolog(j slurm.Job, node string) {
	req := api.LeaseRequest{Restart: j.Restarts, UID: 20001, GID: 20001}
	for i := range j.Allocated[node].Total("gpu") {
		req.Slots = append(req.Slots, i)
	}
	l, err := f.agents[node].Lease(context.Background(), j.ID, req)
	if err != nil {
		f.t.Errorf("prolog of job %d: %v", j.ID, err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leases[j.ID] = *l
}

// planner returns a watcher on one more host that makes plans, but only when asked to.
func (f *fleet) planner(ctl watch.Slurmctld, policy place.Policy) *watch.Watcher {
	f.hosts++
	return f.plannerOn(fmt.Sprint("ctl", f.hosts), ctl, policy)
}

func (f *fleet) plannerOn(host string, ctl watch.Slurmctld, policy place.Policy) *watch.Watcher {
	return watch.New(watch.Config{
		Name:        host,
		TriggerFile: filepath.Join(f.t.TempDir(), "trigger"),
		Settings:    plan.Settings{Policy: policy, Tightest: true},
		Interval:    time.Hour,
		Planner:     true,
		Now:         f.clock,
		Send:        func(slurm.Node) error { return nil },
		Confirm: func(n slurm.Node, text string) error {
			if f.confirms {
				f.agents[n.Name].publisher.Confirm(text, f.clock())
			}
			return nil
		},
	}, ctl, f.log.WithField("", ""))
}

// stopClock stops the heartbeats' clock, so that only advance moves it.
func (f *fleet) stopClock() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = time.Now()
}

func (f *fleet) round(w *watch.Watcher) {
	f.t.Helper()
	if _, err := w.Round(context.Background()); err != nil {
		f.t.Fatal(err)
	}
}

// publish makes each agent run a pass.
func (f *fleet) publish() {
	f.t.Helper()
	for _, name := range f.names {
		if err := f.agents[name].Publish(context.Background()); err != nil {
			f.t.Fatalf("%s: %v", name, err)
		}
	}
}

func (f *fleet) submit(slices string) uint32 {
	f.t.Helper()
	id, err := f.fake.Submit(job(1, slices))
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

// runs makes slurmctld start the jobs that fit, waits for the prologs, and reports whether a job has its slices.
func (f *fleet) runs(id uint32) bool {
	f.t.Helper()
	f.fake.Tick()
	f.prologs.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.leases[id].Slices) > 0
}

// following returns the number of agents that follow a planner.
func (f *fleet) following() (n int) {
	for _, a := range f.agents {
		if a.publisher.Follows() {
			n++
		}
	}
	return n
}
