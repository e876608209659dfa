// Package slurmtest is a slurmctld in memory, for tests of what talks to one. It has the methods of slurm.Client and,
// for the test, the hands of users, jobs and daemons: Submit, Tick, End, RunEpilogs, Restart.
//
// It follows what was measured on Slurm 22.05.8 (24.11 and 26.05 alike, but for what is marked):
//
//   - A node's counts of a count-only GRES change at once, also below what is used; slurmctld then starts nothing more of
//     that type. An update replaces the node's whole list. gres/gpu takes its own count or 0.
//   - Used rises when a job starts, before its prolog, and drops when the job enters COMPLETING, before its epilog. A node
//     with a COMPLETING job starts nothing.
//   - An untyped request takes the first types with a free count, the filler `closed` too. An --exclusive job needs an
//     empty node and is given every GRES of it, the filler too.
//   - A submission that no node could ever take is refused, unless it is held; catalogue nodes, which are never up,
//     count as able. A pending job that has become impossible turns to BadConstraints with priority 0; a release gives it
//     another chance.
//   - After a restart of slurmctld, or scontrol reconfigure, every type is back at slurm.conf's count and the running jobs' typed
//     uses are forgotten, or counted once for each node of the job (Recount; the excess stays after the job's end, 22.05). After one of slurmd the filler alone is back (22.05), and if the last update did not add up to
//     slurm.conf's total while jobs use some of it, the node drains as INVALID_REG.
//   - A requeue counts as a restart at once, while the run it ends still completes; the job may start again two minutes later.
//
// It does not: time limits, priorities that change, reservations, dependencies, arrays, het jobs, plans for the future.
// Every job that fits starts, in the order of priority, as the main scheduler and backfill together would have it
// where nothing has a time limit to plan with.
//
// Nothing happens by itself: time stands unless Advance is called, jobs start in Tick, epilogs run in RunEpilogs. All
// methods may be called by several goroutines; hooks run without a lock held and may call back.
package slurmtest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"caelum/internal/slurm"
)

// requeueDelay is how long a requeued job waits at least.
const requeueDelay = 121 * time.Second

// Node describes a node of the Fake.
type Node struct {
	Name       string
	Partitions []string
	Features   []string
	// Gres is what slurm.conf says, and what stands there at first: mig:1g.5gb:0, ..., mig:closed:28.
	Gres []slurm.GRES
	// Catalogue marks a node that is never up: what it has keeps jobs waiting that would be refused.
	Catalogue bool
}

// Call is one call of the client's methods.
type Call struct {
	// Seq counts all calls from 1. Op is the method's name.
	Seq  int
	Op   string
	Node string
	Job  uint32
	GRES []slurm.GRES
	Text string
	// Err is what the call answered; it is not set yet in the Before hook.
	Err error
}

// String draws a call for logs and golden files.
func (c Call) String() string {
	s := c.Op
	if c.Node != "" {
		s += " " + c.Node
	}
	if c.Job != 0 {
		s += fmt.Sprintf(" %d", c.Job)
	}
	if c.GRES != nil {
		s += " " + slurm.FormatGRES(c.GRES)
	}
	if c.Text != "" {
		s += fmt.Sprintf(" %q", c.Text)
	}
	if c.Err != nil {
		s += " -> " + c.Err.Error()
	}
	return s
}

// Fake is the slurmctld.
type Fake struct {
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
	gres         []slurm.GRES
	extra        string
	total        int // of gres/mig, as last written or registered
	excess       map[kind]int
	drain        []string // flags on top of the base state
	reason       string
	boot, slurmd time.Time
	unregistered bool
}

type job struct {
	slurm.Job
	held bool
	// alloc is what each node gave. forgotten is set when slurmctld does not count it as used any more.
	alloc     map[string][]slurm.GRES
	forgotten bool
	// final is the state that follows COMPLETING.
	final string
	basic uint64
}

// New makes a Fake with these nodes at the time 2030-01-01 00:00 UTC.
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

// Before sets a hook that runs before every call takes effect. An error of it becomes the call's answer, and the call
// does nothing; slurm.ErrUnreachable plays a slurmctld that is down.
func (f *Fake) Before(hook func(Call) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = hook
}

// After sets a hook that runs after every call took effect, before its answer is seen. Tick in it starts jobs between
// two calls.
func (f *Fake) After(hook func(Call)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = hook
}

// Prolog sets what runs on each node of a job that starts, in Tick's goroutine. Until all have returned the
// job is RUNNING for the reason Prolog.
func (f *Fake) Prolog(hook func(j slurm.Job, node string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prolog = hook
}

// Epilog sets what runs on each node of a job that ends. Until it has returned the job is COMPLETING there.
func (f *Fake) Epilog(hook func(j slurm.Job, node string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epilog = hook
}

// SetConfig sets a value of slurmctld's configuration.
func (f *Fake) SetConfig(key, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config[key] = value
}

// Now is the Fake's time.
func (f *Fake) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// Advance moves the time on.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// Calls lists every call so far.
func (f *Fake) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// Writes lists the calls that change something.
func (f *Fake) Writes() []Call {
	return slices.DeleteFunc(f.Calls(), func(c Call) bool {
		switch c.Op {
		case "Node", "Nodes", "Job", "OnNode", "Waiting", "Config":
			return true
		}
		return false
	})
}

// call runs one call between its hooks and logs it.
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

// sorted lists the jobs in the order in which slurmctld looks at them.
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
