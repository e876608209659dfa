package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/config"
	"caelum/internal/core/plan"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

const (
	closedA100 = "gpu:a100:%d,mig:1g.5gb:0,mig:1g.10gb:0,mig:2g.10gb:0,mig:3g.20gb:0,mig:4g.20gb:0,mig:7g.40gb:0," +
		"mig:closed:%d"
	fullA100 = "gpu:a100:14,mig:1g.5gb:14,mig:1g.10gb:8,mig:2g.10gb:6,mig:3g.20gb:4,mig:4g.20gb:2,mig:7g.40gb:2"
)

// world consists of one node with emulated A100s, a slurmctld in memory, and an agent that uses both.
type world struct {
	t     testing.TB
	node  *gputest.Node
	fake  *slurmtest.Fake
	cfg   config.Config
	procs *gpu.Processes
	agent *Agent
	stop  func()
	ctl   Slurmctld // used by agents that start from now on; the fake by default
	// driver returns the driver for agents that start from now on, if it is not nil.
	driver  func(gpu.Hardware) gpu.Hardware
	groups  jobGroups // the cgroups of jobs; nil if the node has no fractions
	softMig gpu.SoftMig

	prologs sync.WaitGroup
	mu      sync.Mutex
	uid     uint32               // the user of the jobs that start from now on
	leases  map[uint32]api.Lease // the answers that the prologs received
	log     logText
}

func gres(t testing.TB, text string) slurm.GRESList {
	t.Helper()
	list, err := slurm.ParseGRES(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func newWorld(t testing.TB, gpus int, options ...func(*config.Config)) *world {
	return newWorldOf(t, "A100-40GB", gpus, fmt.Sprintf(closedA100, 7*gpus, 28*gpus), fullA100, options...)
}

// newWorldOf is like newWorld, but with GPUs of another model. closed is the node's Gres in slurm.conf, and catalogue
// is that of the catalogue node.
func newWorldOf(
	t testing.TB, model string, gpus int, closed, catalogue string, options ...func(*config.Config),
) *world {
	return newWorldOn(t, gputest.New(t, model, gpus), closed, catalogue, options...)
}

// newWorldOn is like newWorldOf, but with the GPUs of node.
func newWorldOn(
	t testing.TB, node *gputest.Node, closed, catalogue string, options ...func(*config.Config),
) *world {
	return newWorldBefore(t, node, closed, catalogue, func(*world) {}, options...)
}

// newWorldBefore is like newWorldOn, but calls before before it starts the agent.
func newWorldBefore(
	t testing.TB, node *gputest.Node, closed, catalogue string, before func(*world), options ...func(*config.Config),
) *world {
	w := &world{t: t, node: node, uid: 20001, leases: map[uint32]api.Lease{}}
	w.fake = slurmtest.New(
		slurmtest.Node{Name: "n1", Partitions: []string{"gpu"}, Gres: gres(t, closed)},
		slurmtest.Node{Name: "mig-catalog1", Partitions: []string{"gpu"}, Catalogue: true, Gres: gres(t, catalogue)},
		slurmtest.Node{
			Name:       "mig-catalog2",
			Partitions: []string{"gpu"},
			Catalogue:  true,
			Gres:       gres(t, "gpu:h100:7,mig:2g.20gb:3"),
		},
	)
	w.fake.Prolog(func(j slurm.Job, node string) {
		w.prologs.Add(1)
		go func() {
			defer w.prologs.Done()
			w.prolog(j)
		}()
	})
	w.fake.Epilog(func(j slurm.Job, node string) {
		if err := w.current().Release(context.Background(), j.ID, j.Restarts); err != nil {
			t.Errorf("epilog of job %d: %v", j.ID, err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.leases, j.ID)
	})
	dir := t.TempDir()
	w.cfg = config.Config{
		Node: "n1", RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"),
		DeviceDir:    w.node.Dev,
		PollInterval: time.Hour, LogLevel: "debug", LogFormat: "text",
	}
	for _, set := range options {
		set(&w.cfg)
	}
	w.procs = &gpu.Processes{Proc: t.TempDir()} // a test must not see the real processes of the machine
	before(w)
	w.start()
	t.Cleanup(func() {
		w.prologs.Wait()
		w.stop()
	})
	return w
}

// tightest is an option for newWorld that gives jobs the profiles that they request, and makes the agent offer every
// profile speculatively.
func tightest(c *config.Config) { c.Sizing = plan.SizingTightest }

// start starts an agent as systemd does, with the ledger and the GPUs of the previous agent.
func (w *world) start() {
	w.t.Helper()
	log := logrus.New()
	log.SetOutput(&w.log)
	if w.ctl == nil {
		w.ctl = w.fake
	}
	a, err := w.newAgent(log)
	if err != nil {
		w.t.Fatal(err)
	}
	a.node.Now = w.fake.Now
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { a.publisher.Run(ctx) })
	w.mu.Lock()
	w.agent = a
	w.mu.Unlock()
	w.stop = func() {
		w.mu.Lock()
		w.agent = nil
		w.mu.Unlock()
		cancel()
		done.Wait()
		a.ledger.Close()
	}
}

// newAgent returns a new agent for the node. The caller must call Run.
func (w *world) newAgent(log *logrus.Logger) (*Agent, error) {
	hw := gpu.Hardware(w.node.NVML)
	if w.driver != nil {
		hw = w.driver(hw)
	}
	m := machine{proc: w.node.Proc, procs: w.procs, softMig: w.softMig}
	if w.groups != nil {
		m.groups = w.groups
	}
	return newAgent(w.cfg, hw, w.ctl, log.WithField("node", "n1"), m)
}

func (w *world) current() *Agent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.agent
}

func (w *world) prolog(j slurm.Job) {
	slots := 0
	for _, g := range j.Allocated["n1"].Named("gpu") {
		slots += g.Count
	}
	if slots == 0 {
		return // the plugin does not call the agent in this case
	}
	w.mu.Lock()
	req := api.LeaseRequest{Restart: j.Restarts, UID: w.uid, GID: w.uid}
	w.mu.Unlock()
	for i := range slots {
		req.Slots = append(req.Slots, i)
	}
	a := w.current()
	for a == nil { // the agent is restarting, and the plugin repeats its call
		time.Sleep(time.Millisecond)
		a = w.current()
	}
	l, err := a.Lease(context.Background(), j.ID, req)
	if err != nil {
		w.t.Errorf("prolog of job %d: %v", j.ID, err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases[j.ID] = *l
}

func (w *world) lease(id uint32) api.Lease {
	w.t.Helper()
	w.prologs.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	l, ok := w.leases[id]
	if !ok {
		w.t.Fatalf("job %d has no lease", id)
	}
	return l
}

func (w *world) publish() {
	w.t.Helper()
	if err := w.agent.Publish(context.Background()); err != nil {
		w.t.Fatalf("publish: %v", err)
	}
}

// job returns a job with n GPU slots and with the slices that job_submit.lua has added.
func job(n int, mig string) slurm.Job {
	j := slurm.Job{Name: "j", User: "user1", Batch: true, Requeue: true, PerNode: []slurm.GRES{{Name: "gpu", Count: n}}}
	for _, part := range strings.Fields(mig) {
		profile, count, _ := strings.Cut(part, ":")
		k := 1
		fmt.Sscan(count, &k)
		j.PerNode = append(j.PerNode, slurm.GRES{Name: "mig", Type: profile, Count: k})
	}
	return j
}

func (w *world) submit(j slurm.Job) uint32 {
	w.t.Helper()
	id, err := w.fake.Submit(j)
	if err != nil {
		w.t.Fatalf("submit: %v", err)
	}
	return id
}

// startNow submits a job with one GPU slot and the given slices, publishes, makes slurmctld start the jobs that fit,
// and returns the job id.
func (w *world) startNow(slices string) uint32 {
	w.t.Helper()
	id := w.submit(job(1, slices))
	w.publish()
	w.fake.Tick()
	return id
}

func (w *world) state(id uint32) string {
	w.t.Helper()
	j, err := w.fake.Job(context.Background(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return j.State
}

// offers returns, for each profile, the number of slices that slurmctld can allocate: the total minus the used count.
func (w *world) offers() map[string]int {
	w.t.Helper()
	n, err := w.fake.Node(context.Background(), "n1")
	if err != nil {
		w.t.Fatal(err)
	}
	free, used := n.Gres.Profiles(), n.GresUsed.Profiles()
	for p := range free {
		if free[p] -= used[p]; free[p] <= 0 || p == slurm.ClosedType {
			delete(free, p)
		}
	}
	return free
}

// total returns the node's total of gres/mig over all types.
func (w *world) total() int {
	n, _ := w.fake.Node(context.Background(), "n1")
	sum := 0
	for _, c := range n.Gres.Profiles() {
		sum += c
	}
	return sum
}

func (w *world) leaseFile(id uint32) string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.cfg.RunDir, "jobs", fmt.Sprint(id)))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// logText collects output that several goroutines write.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
