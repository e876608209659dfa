package agent

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"caelum/internal/config"
	"caelum/internal/core/place"
	"caelum/internal/node/api"
	"caelum/internal/node/publish"
	"caelum/internal/slurm"
)

const (
	// trialPoll is the default of poll_interval.
	trialPoll = 15 * time.Second
	// longestPoll is the longest time between two polls: the random part adds up to 10%.
	longestPoll = trialPoll + trialPoll/10
	// longestSlowPoll is the longest time between two polls if a pass was slow.
	longestSlowPoll = publish.MaxPause + publish.MaxPause/10
	// trialNodes is the number of nodes, each of which has one A100.
	trialNodes = 3
)

// TestPlannerTrials runs agents and planners against a slurmctld in memory, with random jobs, and injects one or two
// faults into each trial. Agents, planners, ledgers and the emulated GPUs are those of the product and of its other
// tests. The time is that of testing/synctest, so a trial of several minutes takes about a second. Each request to
// slurmctld takes a random time before and after it takes effect, so that requests of agents, planners, prologs and
// epilogs, and job starts, can follow each other in any order. Datagrams are replaced by channels.
//
// The environment variables CAELUM_TRIALS and CAELUM_SEED set the number of trials and the seed of the first one.
//
// # States
//
//	planner      running; stopped, before slurmctld has received a request or before the planner has read the response;
//	             killed; active at the same time as another planner
//	agent        follows a part with a fresh heartbeat; follows a part whose planner has ended; plans for itself
//	parts        in slurmctld's records, current or old; lost
//	slurmctld    responds; responds slowly; does not respond
//
// # Faults
//
//	killed               the planner ends between two requests, or during a request, which may still take effect.
//	                     systemd restarts the planner in half of the trials
//	stopped              the planner stops and later continues with old data, in some trials only after the check of
//	                     the recovery
//	partitioned planner  all requests of the planner fail, or only its writes, or some requests
//	partitioned agents   the requests of one or all agents fail, but not those of the planner
//	two planners         a planner with another policy starts on another host. In most of these trials, the first
//	                     planner then stops, so that the other one takes over, and continues with old data
//	slow slurmctld       each request takes up to 6 s
//	restarted slurmctld  slurmctld does not respond for up to 15 s, and then counts all slices as closed. It may have
//	                     lost the Comments. Each slurmd registers within 3 s
//
// Until the faults have ended, one in ten notifications and confirmations is lost.
//
// # Rules
//
//   - Soundness: after each write and before each job start, the slices that slurmctld can allocate on a node fit on
//     the GPU together with those of the running jobs. The slices of a job with a lease have fixed placements.
//   - Each job that slurmctld starts gets the requested slices and is not requeued. No two leases overlap.
//   - Recovery: when the faults have ended, or later, the queue changes once more, and then no job is submitted, starts
//     or ends. At most 15 s and two poll intervals later, the offers are those of the plan for this queue, and they do
//     not change again. In the worst case, an agent reads the last heartbeat one poll interval after the planner has
//     written it, the heartbeat expires 15 s later, and the agent's next pass begins another poll interval later. If
//     there are two planners, the offers of all nodes are those of the same policy.
//   - Afterwards, only one planner writes.
//   - When jobs start and end again, every waiting job starts.
func TestPlannerTrials(t *testing.T) {
	trials := envInt(t, "CAELUM_TRIALS", len(trialFaults))
	if testing.Short() {
		trials = min(trials, 2)
	}
	first := envInt(t, "CAELUM_SEED", 1)
	var all trialResults
	for k := range trials {
		seed := first + k
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { all.add(runTrial(t, uint64(seed))) })
		})
		if !ok {
			t.Fatalf("trial %d failed; the trials after it were not run", seed)
		}
	}
	t.Log(all)
}

// envInt returns the value of an environment variable, or otherwise if it is not set.
func envInt(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// trialResults are the sums of the results of all trials.
type trialResults struct {
	trials, jobs, checks, expired int
	faults                        map[string]int
	recoveries                    map[string][]time.Duration // by trial.outcome
}

func (r *trialResults) add(t *trial) {
	if r.faults == nil {
		r.faults, r.recoveries = map[string]int{}, map[string][]time.Duration{}
	}
	r.trials++
	r.jobs += len(t.prologsServed)
	r.checks += t.checks
	r.expired += t.expired
	for _, f := range t.injected {
		r.faults[f]++
	}
	r.recoveries[t.outcome()] = append(r.recoveries[t.outcome()], t.recovery)
}

func (r trialResults) String() string {
	text := fmt.Sprintf("%d trials, %d jobs, %d checks of a node's counts, %d times an agent's plan expired; faults:",
		r.trials, r.jobs, r.checks, r.expired)
	for _, f := range slices.Sorted(maps.Keys(r.faults)) {
		text += fmt.Sprintf(" %s %d,", f, r.faults[f])
	}
	for _, outcome := range slices.Sorted(maps.Keys(r.recoveries)) {
		text += fmt.Sprintf("\nright offers after the queue's last change, %s: %s", outcome,
			distribution(r.recoveries[outcome]))
	}
	return text
}

// outcome returns the state of the cluster after the faults.
func (t *trial) outcome() string {
	switch {
	case slices.Contains(t.injected, "slow slurmctld"):
		return "slurmctld was slow"
	case t.ended && len(t.planners) == 1:
		return "no planner"
	}
	return "a planner"
}

// trial is the state of a trial.
type trial struct {
	*fleet
	ctx      context.Context
	tasks    sync.WaitGroup // the goroutines that end with ctx
	trigger  string
	began    time.Time
	notified map[string]chan struct{} // by node; receives the notifications of the agent
	parties  []*party                 // the agents
	epilogs  chan struct{}            // requests epilogs
	injected []string                 // the names of the faults
	draining chan struct{}            // closed after the check of the recovery

	// scheduler is held while slurmctld's state changes, and by the oracle, whose reads must all show the same state.
	scheduler sync.Mutex
	away      bool // slurmctld does not answer
	runs      int  // the number of starts of slurmctld
	frozen    bool // no job starts
	closed    bool // no job is submitted or ends

	mu            sync.Mutex
	rng           *rand.Rand
	ended         bool // the first planner does not make plans until the jobs start again
	slow          bool // slurmctld is slow
	settled       bool // the faults have ended, so no notification is lost
	planners      []*plannerProcess
	held          map[leaseKey]api.Lease
	prologsServed map[leaseKey]bool
	writer        *plannerProcess // the planner that wrote last
	changes       int             // the number of times that another planner wrote than before
	lines         []string        // the log

	checks, expired int
	recovery        time.Duration // from freeze until the offers are right
}

type leaseKey struct {
	job  uint32
	node string
}

func runTrial(tb *testing.T, seed uint64) *trial {
	ctx, stop := context.WithCancel(context.Background())
	t := &trial{
		fleet: newNodes(tb, trialNodes), ctx: ctx, trigger: filepath.Join(tb.TempDir(), "trigger"),
		rng: rand.New(rand.NewPCG(seed, 1)), notified: map[string]chan struct{}{}, epilogs: make(chan struct{}, 1),
		held: map[leaseKey]api.Lease{}, prologsServed: map[leaseKey]bool{},
		draining: make(chan struct{}),
	}
	time.Sleep(time.Until(t.fake.Now())) // the clocks of the bubble and of slurmctld are the same from now on
	t.began = time.Now()
	tb.Cleanup(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if tb.Failed() {
			tb.Logf("the end of the log:\n%s", strings.Join(t.lines[max(0, len(t.lines)-400):], "\n"))
		}
	})
	t.log.SetOutput(trialLog{t})
	t.startAgents()
	t.fake.Prolog(func(j slurm.Job, node string) { t.prologs.Go(func() { t.prolog(j, node) }) })
	t.fake.Epilog(t.epilog)
	t.startPlanner("ctl1", place.Reach)
	t.tasks.Go(t.schedule)
	t.tasks.Go(t.runEpilogs)
	time.Sleep(2 * longestPoll)
	if n := t.following(); n != trialNodes {
		tb.Fatalf("%d agents follow the planner", n)
	}
	t.tasks.Go(t.users)
	t.injectFaults(int(seed))
	t.freeze()
	t.checkRecovery()
	t.drain()
	stop()
	t.prologs.Wait()
	t.tasks.Wait()
	return t
}

// startAgents starts the agents and the goroutines that receive their notifications.
func (t *trial) startAgents() {
	t.ctl = func(int) Slurmctld {
		p := &party{Fake: t.fake, trial: t}
		t.parties = append(t.parties, p)
		return p
	}
	t.raised = t.notifyPlanners
	for k := range trialNodes {
		name, notified := fleetNode(k), make(chan struct{}, 1)
		t.notified[name] = notified
		t.start(k, func(_ int, c *config.Config) { c.PollInterval, c.Policy = trialPoll, "reach" })
		t.tasks.Go(func() {
			for {
				select {
				case <-t.ctx.Done():
					return
				case <-notified:
					t.agents[name].Publish(t.ctx)
				}
			}
		})
	}
}

func (t *trial) chance(p float64) bool { t.mu.Lock(); defer t.mu.Unlock(); return t.rng.Float64() < p }
func (t *trial) below(n int) int       { t.mu.Lock(); defer t.mu.Unlock(); return t.rng.IntN(n) }

// between returns a random duration.
func (t *trial) between(a, b time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return a + time.Duration(t.rng.Int64N(int64(b-a)))
}

// sleeps returns a function that sleeps for a random duration.
func (t *trial) sleeps(a, b time.Duration) func() { return func() { time.Sleep(t.between(a, b)) } }

// delay is the time that a request takes before or after it takes effect.
func (t *trial) delay() {
	t.mu.Lock()
	slow := t.slow
	t.mu.Unlock()
	if slow {
		time.Sleep(t.between(100*time.Millisecond, 3*time.Second))
	} else {
		time.Sleep(t.between(time.Millisecond, 30*time.Millisecond))
	}
}

// lost reports whether a notification is lost.
func (t *trial) lost() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.settled && t.rng.Float64() < 0.1
}

func (t *trial) notifyAgent(node string) { notifyOnce(t.notified[node], t.lost()) }

func (t *trial) confirmAgent(node, text string) {
	if !t.lost() {
		t.agents[node].publisher.Confirm(text, time.Now())
	}
}

func (t *trial) notifyPlanners() {
	t.mu.Lock()
	all := slices.Clone(t.planners)
	t.mu.Unlock()
	for _, p := range all {
		notifyOnce(p.notified, t.lost())
	}
}

func notifyOnce(to chan struct{}, lost bool) {
	if lost {
		return
	}
	select {
	case to <- struct{}{}:
	default: // a notification is already waiting
	}
}

// ctldRun returns the number of the current run of slurmctld.
func (t *trial) ctldRun() int {
	t.scheduler.Lock()
	defer t.scheduler.Unlock()
	return t.runs
}

// act carries out a request that was sent during the given run of slurmctld.
func (t *trial) act(run int, act func() error) error {
	t.scheduler.Lock()
	defer t.scheduler.Unlock()
	if t.away || run != t.runs {
		return fmt.Errorf("trial: %w", slurm.ErrUnreachable)
	}
	t.setClock()
	return act()
}

// setClock sets slurmctld's clock to that of the bubble. The caller holds t.scheduler.
func (t *trial) setClock() { t.fake.Advance(time.Since(t.fake.Now())) }

// wrote records which planner writes. The caller holds t.scheduler.
func (t *trial) wrote(p *plannerProcess, comment string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writer != p {
		t.writer = p
		t.changes++
	}
	t.addLine(fmt.Sprintf("%s writes %s", p, comment))
}

func (t *trial) logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addLine(fmt.Sprintf(format, args...))
}

func (t *trial) addLine(text string) {
	t.lines = append(t.lines, fmt.Sprintf("%7.3f %s", time.Since(t.began).Seconds(), text))
}

// trialLog writes the agents' and planners' logs into the trial's log.
type trialLog struct{ *trial }

func (l trialLog) Write(p []byte) (int, error) {
	text := string(p)
	l.logf("%s", strings.TrimSpace(text))
	if strings.Contains(text, "the watcher's plan has expired") {
		l.trial.mu.Lock()
		l.expired++
		l.trial.mu.Unlock()
	}
	return len(p), nil
}
