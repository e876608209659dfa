package agent

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
	"caelum/internal/ledger"
	"caelum/internal/part"
	"caelum/internal/plan"
	"caelum/internal/slurm"
	"caelum/internal/state"
)

// publishing is the set of slurmctld calls that the publisher uses. Except in tests, it is a *slurm.Client.
type publishing interface {
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

// options are the properties of a publisher and the functions that it calls.
type options struct {
	config config.Config
	node   *state.Node
	ctl    publishing
	ledger *ledger.Ledger
	log    *logrus.Entry
	// slurm returns slurmctld's configuration, or an error if it does not support leases.
	slurm func(context.Context) (slurm.Config, error)
	// privacy is slurmctld's configuration in the agent (Agent.privacy).
	privacy *atomic.Pointer[slurm.Config]
	// hidesJobs reports whether users are not allowed to see other users' jobs.
	hidesJobs func() bool
	// publishesJobs reports whether the node publishes the jobs that hold its slices.
	publishesJobs func() bool
	// raised is called after a publication of which the watcher must be notified.
	raised func()
	// failed is called after a failed pass.
	failed func()
	clock  func() time.Time // the clock for the heartbeat's age
}

// publisher writes the node's offers to slurmctld. Except for the channels, changes, confirmed and status, its fields
// are used only by the goroutine of [publisher.run].
type publisher struct {
	options

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
	heartbeat    part.Watch            // the heartbeat of the watcher
	beatNode     string                // the node from which the heartbeat was last read
	heard        time.Time             // the time at which the heartbeat was last read
	listed       time.Time             // the time at which all jobs were last listed
	atRest       slurm.Node            // the node's record in the last pass, or an empty record (noteRead)
	published    int                   // node.version of the last published plan, or -1
	notified     string                // the state of the GPUs when the watcher was last notified
	unnotified   bool                  // whether the agent has since written data that may change the watcher's plan

	statusMu sync.Mutex // protects status, which is changed only by the publisher's goroutine
	status   publishStatus
}

// publishStatus is the result of the last pass.
type publishStatus struct {
	published map[string]int
	at        time.Time // zero before the first successful pass
	err       error
	closed    string // the node's state in Slurm if slurmctld does not start jobs on the node
	// excess is, for each profile, the number of slices that slurmctld counts as used even though it has not allocated
	// them to a job. short is the part of excess that is omitted from the published totals because it does not fit into
	// N.
	excess, short map[string]int
	read          bool     // whether a pass has read the queue
	waiting       int      // the number of waiting jobs that request slices
	stale         []string // profiles that slurm.conf lists for the node but the driver does not report
}

// newPublisher returns a publisher that continues the work of the node's earlier publisher, according to the ledger.
func newPublisher(o options) (*publisher, error) {
	p := &publisher{
		options:      o,
		requests:     make(chan chan error),
		polls:        make(chan chan error),
		changed:      make(chan struct{}, 1),
		unresponsive: plan.Unresponsive{Patience: plan.Patience(o.config.PollInterval)},
		allocations:  map[uint32]allocation{},
		offersSince:  time.Now(),
		published:    -1,
	}
	total, err := p.ledger.Meta("total")
	if err != nil {
		return nil, err
	}
	p.total, _ = strconv.Atoi(total) // 0 until slurmctld has answered the first request
	advertised, err := p.ledger.Meta("lent")
	if err != nil {
		return nil, err
	}
	p.advertised = strings.Fields(advertised)
	return p, nil
}

// set changes the status. Only the publisher's goroutine calls set.
func (p *publisher) set(change func(*publishStatus)) {
	p.statusMu.Lock()
	defer p.statusMu.Unlock()
	change(&p.status)
}

// last returns the result of the last pass.
func (p *publisher) last() publishStatus {
	p.statusMu.Lock()
	defer p.statusMu.Unlock()
	return p.status
}

// retryInterval is the pause before the first repetition of a failed pass, and maxRetry is the longest pause before a
// repetition, both without the random part (backoff).
const (
	retryInterval = time.Second
	maxRetry      = 15 * time.Second
)

// Publish requests a pass that begins after the call, waits for it to end, and returns its error. Concurrent calls
// share one pass.
func (p *publisher) Publish(ctx context.Context) error { return ask(ctx, p.requests) }

// ask sends a request to the goroutine of [publisher.run] and returns the answer.
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

// poll is like Publish, but omits the pass if the watcher has confirmed the node's record, in which case confirmed is
// true.
func (p *publisher) poll(ctx context.Context) (confirmed bool, err error) {
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
// of the last pass, but never exceeds maxPause, which is about a minute.
const (
	slowdown = 20
	maxPause = time.Minute
)

// run runs a pass on request, after a change on the node, and for each poll. A poll takes place when no pass has run
// for the poll interval plus up to 10%; its pass is omitted if the watcher has confirmed the node's record. The first
// poll begins at a random time within the poll interval, because the agents of a cluster often start at the same time.
func (p *publisher) run(ctx context.Context) {
	poll := time.NewTimer(rand.N(p.config.PollInterval))
	defer poll.Stop()
	var retry, settled <-chan time.Time
	failures := backoff{first: retryInterval, most: min(p.config.PollInterval, maxRetry)}
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
			if p.node.UnchangedSince(p.published) {
				settled = nil
				continue
			}
		case <-poll.C:
			if p.isConfirmed() {
				poll.Reset(p.config.PollInterval + rand.N(p.config.PollInterval/10))
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
		if pause := failures.pause(err); pause > 0 && ctx.Err() == nil {
			p.log.WithError(err).Warn("couldn't publish the offers; trying again")
			p.failed()
			retry = time.After(pause)
		}
		next := pauseAfter(time.Since(began), p.config.PollInterval)
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
	return max(poll, min(slowdown*took, maxPause))
}

// publishSoon schedules a pass that publishes the node's state after the settling delay.
func (p *publisher) publishSoon() {
	select {
	case p.changed <- struct{}{}:
	default: // a pass is already scheduled
	}
}
