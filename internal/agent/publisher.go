package agent

import (
	"caelum/internal/ledger"
	"caelum/internal/plan"
	"caelum/internal/slurm"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
)

// publisher writes the node's offers into slurmctld. Its fields belong to the goroutine that runs [publisher.run],
// except for the channels, changes and status.
type publisher struct {
	*node
	ctl    Controller
	ledger *ledger.Ledger
	log    *logrus.Entry
	// config reads slurmctld's configuration, and returns an error if leases cannot work with this configuration.
	config func(context.Context) (slurm.Config, error)
	// hidesJobs reports whether users may not see other users' jobs.
	hidesJobs func() bool
	// raised is called after a write that may let jobs start.
	raised func()

	requests chan chan error
	changed  chan struct{} // the node's state differs from the published state
	changes  atomic.Int64  // the number of writes to slurmctld in all passes

	total        int      // N, the node's constant total of gres/mig; 0 until known
	advertised   []string // the profile names of other GPU models under which the node has offered slices
	unresponsive plan.Unresponsive
	unstarted    plan.Unstarted
	allocations  map[uint32]allocation // slurmctld's allocations to jobs on the node
	offered      map[string]int        // the offers of the last plan
	offersSince  time.Time             // when the offers last changed

	statusMu sync.Mutex // guards status, which only the publisher's goroutine writes
	status   publishStatus
}

// publishStatus is the result of the last pass.
type publishStatus struct {
	published map[string]int
	at        time.Time // zero before the first successful pass
	err       error
	closed    string // the node's state if slurmctld starts no jobs on it
	// excess is the number of slices of each profile that slurmctld counts as used although it
	// has allocated them to no job. short is the part of the excess that is missing from the
	// published totals, because the sum would exceed N.
	excess, short map[string]int
	stale         []string // profiles that slurm.conf lists for the node although the driver does not report them
}

// set changes the status. Only the publisher's goroutine calls it.
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

// retryInterval is the pause before a failed pass is repeated.
const retryInterval = time.Second

// Publish runs a pass that begins after the call, and returns the result of the pass. Calls that wait at the same time
// share one pass.
func (p *publisher) Publish(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case p.requests <- answer:
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

// settling is the time from a change on the node to the pass that publishes it. The same pass also publishes further
// changes within this time.
const settling = 200 * time.Millisecond

// slowdown limits the load on a slow slurmctld: the pause before the next poll is at least slowdown times the duration
// of the last pass. maxPause limits this pause, so that after a pass of any duration the next one begins within about a
// minute.
const (
	slowdown = 20
	maxPause = time.Minute
)

// run runs the passes on request, after a change on the node, and as a poll if no pass has run for the poll interval
// plus up to 10 %. The first poll begins at a random time within the poll interval, because the agents of a cluster
// are often started together.
func (p *publisher) run(ctx context.Context) {
	poll := time.NewTimer(rand.N(p.cfg.PollInterval))
	defer poll.Stop()
	var retry, settled <-chan time.Time
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
		case <-poll.C:
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
		if err != nil && ctx.Err() == nil {
			p.log.WithError(err).Warn("couldn't publish; trying again")
			retry = time.After(retryInterval)
		}
		next := pauseAfter(time.Since(began), p.cfg.PollInterval)
		// The random part spreads the polls of agents that were notified at the same time, and keeps polls from
		// coinciding with the comparison that runs every minute.
		poll.Reset(next + rand.N(next/10))
		for _, answer := range waiting {
			answer <- err
		}
	}
}

// pauseAfter returns the pause before the next poll after a pass of duration took.
func pauseAfter(took, poll time.Duration) time.Duration {
	return max(poll, min(slowdown*took, maxPause))
}

// publishSoon schedules a pass that publishes the node's state after the settling time.
func (p *publisher) publishSoon() {
	select {
	case p.changed <- struct{}{}:
	default: // a pass is scheduled already
	}
}
