package slurmtest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"caelum/internal/slurm"
)

// requeueDelay is the minimum time before a requeued job restarts.
const requeueDelay = 121 * time.Second

// Node describes a node of the Fake.
type Node struct {
	Name       string
	Partitions []string
	Features   []string
	// Gres is the node's GRES in slurm.conf, which is also its initial GRES: mig:1g.5gb:0, ..., mig:closed:28.
	Gres slurm.GRESList
	// Catalogue marks a node in the FUTURE state. Because of its GRES, slurmctld accepts jobs that it would otherwise
	// reject.
	Catalogue bool
	// Addr is the NodeAddr of the node.
	Addr string
}

// Call is a call to a method of the client.
type Call struct {
	// Seq is the number of the call, starting at 1. Op is the name of the method.
	Seq  int
	Op   string
	Node string
	Job  uint32
	GRES slurm.GRESList
	Text string
	// Err is the error that the call returned. It is not set in the Before hook.
	Err error
}

// String formats the call for logs and golden files.
func (c Call) String() string {
	s := c.Op
	if c.Node != "" {
		s += " " + c.Node
	}
	if c.Job != 0 {
		s += fmt.Sprintf(" %d", c.Job)
	}
	if c.GRES != nil {
		s += " " + c.GRES.String()
	}
	if c.Text != "" {
		s += fmt.Sprintf(" %q", c.Text)
	}
	if c.Err != nil {
		s += " -> " + c.Err.Error()
	}
	return s
}

// Fake emulates slurmctld in memory.
type Fake struct {
	epilogs sync.Mutex // held by RunEpilogs

	mu       sync.Mutex
	now      time.Time
	nodes    []*node
	jobs     map[uint32]*job
	lastID   uint32
	priority uint64
	config   map[string]string
	calls    []Call
	before   func(Call) error
	after    func(Call)
	prolog   func(j slurm.Job, node string)
	epilog   func(j slurm.Job, node string)
}

type node struct {
	Node
	gres         slurm.GRESList
	extra        string
	comment      string
	total        int // the sum of the gres/mig counts after the last update or registration
	excess       map[kind]int
	drain        []string // flags in addition to the base state
	reason       string
	boot, slurmd time.Time
	unregistered bool
}

type job struct {
	slurm.Job
	held bool
	// alloc is the job's GRES on each node. forgotten is true if slurmctld no longer counts them as used.
	alloc     map[string]slurm.GRESList
	forgotten bool
	// final is the state after COMPLETING.
	final string
	basic uint64
}

// New returns a Fake with the given nodes. Its clock starts at 2030-01-01 00:00 UTC.
func New(nodes ...Node) *Fake {
	f := &Fake{
		now:      time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		jobs:     make(map[uint32]*job),
		priority: 1 << 31,
		config: map[string]string{
			"SLURM_VERSION": "22.05.8", "GresTypes": "gpu,mig", "PrologFlags": "Alloc", "TaskPlugin": "task/none",
			"AccountingStorageTRES": "gres/gpu,gres/mig",
		},
	}
	for _, n := range nodes {
		f.nodes = append(
			f.nodes,
			&node{Node: n, gres: slices.Clone(n.Gres), total: total(n.Gres), boot: f.now, slurmd: f.now},
		)
	}
	return f
}

// Before sets a hook that runs before each call takes effect. If the hook returns an error, the call has no effect and
// returns that error. Returning slurm.ErrUnreachable simulates a slurmctld that is down.
func (f *Fake) Before(hook func(Call) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = hook
}

// After sets a hook that runs once each call has taken effect, but before it returns. If the hook calls Tick, jobs
// start between two calls.
func (f *Fake) After(hook func(Call)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = hook
}

// Prolog sets a hook that Tick calls for each node of a starting job. Until the hook has returned for all nodes, the
// job is RUNNING with the reason Prolog.
func (f *Fake) Prolog(hook func(j slurm.Job, node string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prolog = hook
}

// Epilog sets a hook that RunEpilogs calls for each node of an ending job. Until the hook has returned for a node, the
// job is COMPLETING on that node.
func (f *Fake) Epilog(hook func(j slurm.Job, node string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epilog = hook
}

// SetConfig sets a value in slurmctld's configuration.
func (f *Fake) SetConfig(key, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config[key] = value
}

// Now returns the time on the fake clock.
func (f *Fake) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// Advance moves the fake clock forward by d.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// Calls returns all calls so far.
func (f *Fake) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// Writes returns the calls that change slurmctld's state.
func (f *Fake) Writes() []Call {
	return slices.DeleteFunc(f.Calls(), func(c Call) bool {
		return slices.Contains([]string{"Node", "Nodes", "Job", "Jobs", "Queue", "Config"}, c.Op)
	})
}

// call performs and records one call and runs the hooks before and after it.
func (f *Fake) call(c Call, do func() error) error {
	f.mu.Lock()
	c.Seq = len(f.calls) + 1
	c.GRES = slices.Clone(c.GRES)
	f.calls = append(f.calls, c)
	before := f.before
	f.mu.Unlock()

	var err error
	if before != nil {
		err = before(c)
	}
	f.mu.Lock()
	if err == nil {
		err = do()
	}
	c.Err = err
	f.calls[c.Seq-1] = c
	after := f.after
	f.mu.Unlock()
	if after != nil {
		after(c)
	}
	return err
}

func (f *Fake) node(name string) (*node, error) {
	for _, n := range f.nodes {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("node %s: %w", name, slurm.ErrNoNode)
}

func (f *Fake) job(id uint32) (*job, error) {
	if j, ok := f.jobs[id]; ok {
		return j, nil
	}
	return nil, fmt.Errorf("job %d: %w", id, slurm.ErrNoJob)
}

// sorted returns the jobs in the order in which slurmctld evaluates them.
func (f *Fake) sorted() []*job {
	var list []*job
	for _, j := range f.jobs {
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b *job) int {
		switch {
		case a.Priority != b.Priority && a.Priority > b.Priority:
			return -1
		case a.Priority != b.Priority:
			return 1
		}
		return int(a.ID) - int(b.ID)
	})
	return list
}
