package publish

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/config"
	"caelum/internal/core/part"
	"caelum/internal/core/plan"
	"caelum/internal/node/ledger"
	"caelum/internal/node/state"
	"caelum/internal/slurm"
)

// Slurmctld is the set of slurmctld calls that the publisher uses. Except in tests, it is a *slurm.Client.
type Slurmctld interface {
	Node(ctx context.Context, name string) (slurm.Node, error)
	Nodes(ctx context.Context) ([]slurm.Node, error)
	NamedNodes(ctx context.Context, names ...string) ([]slurm.Node, error)
	UpdateNode(ctx context.Context, node string, gres slurm.GRESList, extra string) error
	SetNodeExtra(ctx context.Context, node, text string) error
	Job(ctx context.Context, id uint32) (slurm.Job, error)
	Queue(ctx context.Context) (slurm.Queue, error)
	Jobs(ctx context.Context) ([]slurm.Job, error)
	Config(ctx context.Context) (slurm.Config, error)
	Hold(ctx context.Context, id uint32) error
	Release(ctx context.Context, id uint32) error
	SetJobGRES(ctx context.Context, id uint32, gres slurm.GRESList) error
	SetAdminComment(ctx context.Context, id uint32, text string) error
}

// Options are the properties of a publisher and the functions that it calls.
type Options struct {
	Config    config.Config
	Node      *state.Node
	Slurmctld Slurmctld
	Ledger    *ledger.Ledger
	Log       *logrus.Entry
	// SlurmConfig returns slurmctld's configuration, or an error if it does not support leases.
	SlurmConfig func(context.Context) (slurm.Config, error)
	// Privacy is slurmctld's configuration in the agent.
	Privacy *atomic.Pointer[slurm.Config]
	// HidesJobs reports whether users are not allowed to see other users' jobs.
	HidesJobs func() bool
	// PublishesJobs reports whether the node publishes the jobs that hold its slices.
	PublishesJobs func() bool
	// Prepare is called before each pass. It must not wait for the driver.
	Prepare func()
	// Raised is called after a publication of which the watcher must be notified.
	Raised func()
	// Failed is called after a failed pass.
	Failed func()
	Clock  func() time.Time // the clock for the heartbeat's age
	// Pause is called where a pass may be delayed between a read and a write that depends on it (failpoint.Pause).
	Pause func()
}

// Publisher writes the node's offers to slurmctld. Except for the channels, changes, confirmed and status, its fields
// are used only by the goroutine of [Publisher.Run].
type Publisher struct {
	Options

	requests chan chan error
	polls    chan chan error // requests for passes that may be omitted
	changed  chan struct{}   // signals that the node's state differs from the published state
	changes  atomic.Int64    // the number of writes to slurmctld since the agent started
	// confirmed is the last confirmation from the watcher, or nil.
	confirmed atomic.Pointer[confirmation]

	total        int      // N, the node's constant total of gres/mig; 0 while N is unknown
	advertised   []string // profile names of other GPU models under which the node has offered slices
	unresponsive plan.Unresponsive
	unstarted    plan.Unstarted
	allocations  map[uint32]allocation // slurmctld's allocations to jobs on the node
	offered      map[string]int        // the offers of the last plan
	offersSince  time.Time             // the time at which the offers last changed
	following    atomic.Bool           // whether the agent follows the watcher's plan (follow.go)
	heartbeat    part.HeartbeatAge     // the heartbeat of the watcher
	beatNode     string                // the node from which the heartbeat was last read
	heard        time.Time             // the time at which the heartbeat was last read
	listed       time.Time             // the time at which all jobs were last listed
	preempts     bool                  // true if slurmctld is configured to preempt jobs
	atRest       slurm.Node            // the node's record in the last pass, or an empty record (noteRead)
	published    int                   // state.Node.Version of the last published plan, or -1
	notified     string                // the state of the GPUs when the watcher was last notified
	unnotified   bool                  // whether the agent has since written data that may change the watcher's plan

	statusMu sync.Mutex // protects status, which is changed only by the publisher's goroutine
	status   Status
}

// Status is the result of the last pass.
type Status struct {
	Published map[string]int
	At        time.Time // zero before the first successful pass
	Err       error
	Closed    string // the node's state in Slurm if slurmctld does not start jobs on the node
	// Excess is, for each profile, the number of slices that slurmctld counts as used even though it has not allocated
	// them to a job. Short is the part of Excess that is omitted from the published totals because it does not fit into
	// N.
	Excess, Short map[string]int
	Read          bool     // whether a pass has read the queue
	Waiting       int      // the number of waiting jobs that request slices
	Stale         []string // profiles that slurm.conf lists for the node but the driver does not report
}

// New returns a publisher that continues the work of the node's earlier publisher, according to the ledger.
func New(o Options) (*Publisher, error) {
	p := &Publisher{
		Options:      o,
		requests:     make(chan chan error),
		polls:        make(chan chan error),
		changed:      make(chan struct{}, 1),
		unresponsive: plan.Unresponsive{Patience: plan.Patience(o.Config.PollInterval)},
		allocations:  map[uint32]allocation{},
		offersSince:  time.Now(),
		published:    -1,
	}
	total, err := p.Ledger.Meta("total")
	if err != nil {
		return nil, err
	}
	p.total, _ = strconv.Atoi(total) // 0 until slurmctld has answered the first request
	advertised, err := p.Ledger.Meta("lent")
	if err != nil {
		return nil, err
	}
	p.advertised = strings.Fields(advertised)
	return p, nil
}

// set changes the status. Only the publisher's goroutine calls set.
func (p *Publisher) set(change func(*Status)) {
	p.statusMu.Lock()
	defer p.statusMu.Unlock()
	change(&p.status)
}

// Changes returns the number of writes to slurmctld since the agent started.
func (p *Publisher) Changes() int64 { return p.changes.Load() }

// Follows reports whether the agent follows the watcher's plan.
func (p *Publisher) Follows() bool { return p.following.Load() }

// Last returns the result of the last pass.
func (p *Publisher) Last() Status {
	p.statusMu.Lock()
	defer p.statusMu.Unlock()
	return p.status
}

// RetryInterval is the pause before the first repetition of a failed pass, and maxRetry is the longest pause before a
// repetition, both without the random part (Backoff).
const (
	RetryInterval = time.Second
	maxRetry      = 15 * time.Second
)

// Publish requests a pass that begins after the call, waits for it to end, and returns its error. Concurrent calls
// share one pass.
func (p *Publisher) Publish(ctx context.Context) error { return ask(ctx, p.requests) }

// ask sends a request to the goroutine of [Publisher.Run] and returns the answer.
func ask(ctx context.Context, requests chan<- chan error) error {
	answer := make(chan error, 1)
	select {
	case requests <- answer:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Poll is like Publish, but omits the pass if the watcher has confirmed the node's record, in which case confirmed is
// true.
func (p *Publisher) Poll(ctx context.Context) (confirmed bool, err error) {
	if err = ask(ctx, p.polls); err == errConfirmed {
		return true, nil
	}
	return false, err
}

// errConfirmed is the answer to a poll whose pass was omitted.
var errConfirmed = errors.New("the watcher has confirmed the node's record")

// settling is the delay between a change on the node and the pass that publishes it. The pass also publishes all
// further changes that occur during the delay.
const settling = 200 * time.Millisecond

// slowdown limits the load on a slow slurmctld. The pause before the next poll is at least slowdown times the duration
// of the last pass, but never exceeds MaxPause, which is about a minute.
const (
	slowdown = 20
	MaxPause = time.Minute
)

// Run runs a pass on request, after a change on the node, and for each poll. A poll takes place when no pass has run
// for the poll interval plus up to 10%; its pass is omitted if the watcher has confirmed the node's record. The first
// poll begins at a random time within the poll interval, because the agents of a cluster often start at the same time.
func (p *Publisher) Run(ctx context.Context) {
	poll := time.NewTimer(rand.N(p.Config.PollInterval))
	defer poll.Stop()
	var retry, settled <-chan time.Time
	failures := Backoff{First: RetryInterval, Most: min(p.Config.PollInterval, maxRetry)}
	for {
		var waiting []chan error
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
			if settled == nil {
				settled = time.After(settling)
			}
			continue
		case <-settled:
			if p.Node.UnchangedSince(p.published) {
				settled = nil
				continue
			}
		case <-poll.C:
			if p.isConfirmed() {
				poll.Reset(p.Config.PollInterval + rand.N(p.Config.PollInterval/10))
				continue
			}
		case answer := <-p.polls:
			if p.isConfirmed() {
				answer <- errConfirmed
				continue
			}
			waiting = append(waiting, answer)
		case <-retry:
		case answer := <-p.requests:
			waiting = append(waiting, answer)
		}
		for more := true; more; {
			select {
			case answer := <-p.requests:
				waiting = append(waiting, answer)
			default:
				more = false
			}
		}
		began := time.Now()
		err := p.pass(ctx)
		retry, settled = nil, nil
		if pause := failures.Pause(err); pause > 0 && ctx.Err() == nil {
			p.Log.WithError(err).Warn("couldn't publish the offers; trying again")
			p.Failed()
			retry = time.After(pause)
		}
		next := pauseAfter(time.Since(began), p.Config.PollInterval)
		// The random part spreads out the polls of agents that were notified at the same time. It also prevents the
		// polls from always coinciding with the comparison that runs every minute.
		poll.Reset(next + rand.N(next/10))
		for _, answer := range waiting {
			answer <- err
		}
	}
}

// pauseAfter returns the minimum pause between a pass of the given duration and the next poll.
func pauseAfter(took, poll time.Duration) time.Duration {
	return max(poll, min(slowdown*took, MaxPause))
}

// Soon schedules a pass that publishes the node's state after the settling delay.
func (p *Publisher) Soon() {
	select {
	case p.changed <- struct{}{}:
	default: // a pass is already scheduled
	}
}
