package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/failpoint"
	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/place"
	"caelum/internal/slurm"
)

// closedType is the filler of gres/mig: what is not on offer, so that the node's total never changes.
const closedType = "closed"

// retryInterval is how soon a pass that failed is tried again.
const retryInterval = time.Second

// A pass is repeated when jobs take something while it runs; this often, then the node stays lowered until the next one.
const maxReplans = 6

// errUnregistered is a node on which jobs would start without the numbers of their slots.
var errUnregistered = errors.New("slurmd has not registered since slurmctld's start; nothing is on offer until it has")

// errBusy is a pass that gave up: sound, but with less on offer than there could be.
var errBusy = errors.New("jobs kept starting while publishing; the rest follows with the next pass")

// Publish runs a pass that begins after the call and answers its result. Calls that wait at the same time share one.
func (a *Agent) Publish(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case a.publish <- answer:
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

// publisher runs the passes: on request, and at every poll.
func (a *Agent) publisher(ctx context.Context) {
	poll := time.NewTicker(a.cfg.PollInterval)
	defer poll.Stop()
	var retry <-chan time.Time
	for {
		var waiting []chan error
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-retry:
		case answer := <-a.publish:
			waiting = append(waiting, answer)
		}
		for more := true; more; {
			select {
			case answer := <-a.publish:
				waiting = append(waiting, answer)
			default:
				more = false
			}
		}
		err := a.pass(ctx)
		retry = nil
		if err != nil && ctx.Err() == nil {
			a.log.WithError(err).Warn("couldn't publish; trying again")
			retry = time.After(retryInterval)
		}
		for _, answer := range waiting {
			answer <- err
		}
	}
}

// pass publishes in two phases (docs/internals.md): lower what the new plan withdraws, read again, and only then raise.
func (a *Agent) pass(ctx context.Context) (err error) {
	defer func() {
		a.mu.Lock()
		a.publishErr = err
		a.mu.Unlock()
	}()
	if _, err := a.slurmConfig(ctx); err != nil {
		return err
	}
	node, err := a.read(ctx)
	if err != nil {
		return err
	}
	waiting, err := a.ctl.Waiting(ctx)
	if err != nil {
		return err
	}
	a.retype(ctx, waiting)
	demands := a.demands(node, waiting)
	for range maxReplans {
		if node.Unregistered {
			demands = nil
		}
		d := a.plan(demands)
		if node.Unregistered {
			d.offerNothing()
		}
		pause()
		taken := a.taken(node)
		low := map[string]int{}
		for profile, total := range count(node.Gres) {
			low[profile] = min(total, taken[profile]+d.offers[profile])
		}
		if err := a.write(ctx, "lower", node, low, d); err != nil {
			return err
		}
		failpoint.Hit(failpoint.Lowered)
		again, err := a.read(ctx)
		if err != nil {
			return err
		}
		node = again
		if !a.adopt(d) {
			continue // something was taken since the plan was made
		}
		pause()
		taken = a.taken(node)
		high := map[string]int{}
		for _, profile := range a.profiles {
			high[profile] = taken[profile] + d.offers[profile]
		}
		if err := a.write(ctx, "raise", node, high, d); err != nil {
			return err
		}
		failpoint.Hit(failpoint.Raised)
		// What is used may have dropped between read and write with no epilog to publish anew: a job with a slice and no
		// slot came and went, or slurmctld forgot (`scontrol reconfigure`). Then more is free than was planned.
		if node, err = a.ctl.Node(ctx, a.cfg.Node); err != nil {
			return err
		}
		if exceeds(node, d.offers) {
			if node, err = a.read(ctx); err != nil {
				return err
			}
			continue
		}
		if node.Unregistered {
			return errUnregistered
		}
		a.mu.Lock()
		a.published, a.publishedAt = count(node.Gres), a.now()
		a.mu.Unlock()
		a.releaseHeld(ctx, waiting, d.plan.Served)
		return nil
	}
	return errBusy
}

// draft is a plan with what it was made from.
type draft struct {
	version int
	gpus    []offer.GPU
	plan    offer.Plan
	offers  map[string]int
	claims  map[uint32][]offer.Spot
}

// offerNothing keeps what jobs hold and withdraws the rest.
func (d *draft) offerNothing() {
	d.plan = offer.Plan{Offers: make([]mig.Layout, len(d.gpus))}
	d.offers = nil
}

func (a *Agent) plan(demands []offer.Demand) draft {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := draft{version: a.version, gpus: a.view()}
	d.claims = a.settleClaims(d.gpus)
	d.plan = offer.Make(d.gpus, demands, place.MostReach{})
	if err := d.plan.Check(d.gpus); err != nil {
		// It cannot be; if it is, the queue waits rather than two jobs sharing a slice.
		a.log.WithError(err).Error("the plan is unsound; offering nothing; please report this")
		d.offerNothing()
	}
	d.offers = d.plan.Counts(d.gpus)
	return d
}

// adopt puts a draft in force, unless something was taken since it was made.
func (a *Agent) adopt(d draft) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.version != d.version {
		return false
	}
	a.offers = d.plan.Offers
	for job, spots := range d.claims {
		a.promised[job].spots = spots
	}
	return true
}

// read asks slurmctld for the node, then for its jobs, and counts every job without a lease as holding what it took.
// The order matters: a job that starts between the two reads is then among the jobs; read the other way round it would
// only be in GresUsed, and its slice would be offered once more.
func (a *Agent) read(ctx context.Context) (slurm.Node, error) {
	node, err := a.ctl.Node(ctx, a.cfg.Node)
	if err != nil {
		return node, err
	}
	if err := a.learnTotal(node); err != nil {
		return node, err
	}
	jobs, err := a.ctl.OnNode(ctx, a.cfg.Node)
	if err != nil {
		return node, err
	}
	present := map[uint32]bool{}
	for _, j := range jobs {
		present[j.ID] = true
		// A job that is ending takes nothing any more: a prolog that still comes is refused.
		if !j.Holds() || !asksForSlices(j.Job) || a.accounted(j.ID, j.Restarts) {
			continue
		}
		if err := a.preLease(ctx, j.ID); err != nil {
			return node, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for job, pr := range a.promised {
		if !present[job] && !pr.leasing {
			delete(a.promised, job)
			a.version++
		}
	}
	return node, nil
}

func (a *Agent) accounted(job uint32, restarts int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.leases[job]; l != nil && l.Restart >= restarts {
		return true
	}
	return a.promised[job] != nil
}

// preLease counts a job that slurmctld has started here and that has no lease yet.
func (a *Agent) preLease(ctx context.Context, id uint32) error {
	job, err := a.ctl.Job(ctx, id)
	switch {
	case errors.Is(err, slurm.ErrNoJob):
		return nil
	case errors.Is(err, slurm.ErrAmbiguous): // then what it requested counts, and its prolog will be refused
		job.Allocated = map[string][]slurm.GRES{a.cfg.Node: job.PerNode}
	case err != nil:
		return err
	}
	wants, _ := a.wants(job, 0)
	if len(wants) == 0 || !job.Holds() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.leases[id]; a.promised[id] != nil || l != nil && l.Restart >= job.Restarts {
		return nil
	}
	if _, ok := a.take(id, wants); !ok {
		a.promised[id] = &promise{wants: wants}
		a.version++
	}
	return nil
}

// write sets the node's gres/mig counts; what is not named is 0, and closed takes the rest of the constant total.
// Nothing is written when it stands so already. Every write is logged with its plan, so that it can be checked later.
func (a *Agent) write(ctx context.Context, phase string, node slurm.Node, totals map[string]int, d draft) error {
	gres, ok := a.gresLine(node, totals)
	if !ok {
		return fmt.Errorf("node %s: more of gres/mig in use and on offer than its total of %d; raise the count of mig:closed in slurm.conf and gres.conf", node.Name, a.total)
	}
	if slices.Equal(gres, node.Gres) {
		return nil
	}
	entry := a.log.WithFields(logrus.Fields{
		"phase": phase, "gres": slurm.FormatGRES(gres), "used": slurm.FormatGRES(node.GresUsed),
		"plan": a.describe(d), "at": time.Now().UnixNano(),
	})
	if err := a.ctl.UpdateGRES(ctx, a.cfg.Node, gres); err != nil {
		entry.WithError(err).Error("couldn't write the offers")
		return err
	}
	entry.WithField("done", time.Now().UnixNano()).Info("published")
	return nil
}

// taken is what the offers are added to: by profile, what slurmctld counts as used, as far as jobs really hold it. An
// --exclusive job is allocated everything that was on offer, and a refused one what it asked for: counted in full, that would
// be free on top of the offers from their end until the epilog has published. Less than used is always sound.
func (a *Agent) taken(node slurm.Node) map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := map[string]int{}
	for _, l := range a.leases {
		for _, s := range l.Slices {
			held[s.Profile]++
		}
	}
	for _, pr := range a.promised {
		for _, w := range pr.wants {
			held[w.Profile] += w.Count
		}
	}
	used := count(node.GresUsed)
	for profile, n := range used {
		used[profile] = min(n, held[profile])
	}
	return used
}

// exceeds reports whether slurmctld has more free of a profile than a plan offers.
func exceeds(node slurm.Node, offers map[string]int) bool {
	used := count(node.GresUsed)
	for profile, total := range count(node.Gres) {
		if profile != closedType && total > used[profile]+offers[profile] {
			return true
		}
	}
	return false
}

// gresLine is the node's whole GRES list with new counts of gres/mig: an update replaces the list, so what else the
// node has must be named as it stands. It is not ok if the counts exceed the node's total.
func (a *Agent) gresLine(node slurm.Node, totals map[string]int) (line []slurm.GRES, ok bool) {
	names := slices.Clone(a.profiles)
	for _, g := range node.Gres {
		if g.Name == "mig" && g.Type != closedType && !slices.Contains(names, g.Type) {
			names = append(names, g.Type)
		}
	}
	for _, g := range node.Gres {
		if g.Name != "mig" {
			line = append(line, g)
		}
	}
	rest := a.total
	for _, name := range names {
		line = append(line, slurm.GRES{Name: "mig", Type: name, Count: totals[name]})
		rest -= totals[name]
	}
	return append(line, slurm.GRES{Name: "mig", Type: closedType, Count: max(rest, 0)}), rest >= 0
}

// learnTotal finds N, the node's constant total of gres/mig. Where everything is closed the node's record is slurm.conf's
// own and says it; later the sum cannot be trusted (after a restart of slurmd, 22.05 puts the filler back to N beside what is on offer).
func (a *Agent) learnTotal(node slurm.Node) error {
	has := count(node.Gres)
	if _, ok := has[closedType]; !ok {
		return fmt.Errorf("node %s has no gres/mig:closed in slurm.conf; `caelum slurm-config` prints the lines it needs", node.Name)
	}
	for profile, n := range has {
		if profile != closedType && n > 0 {
			return nil
		}
	}
	if a.total == has[closedType] {
		return nil
	}
	a.total = has[closedType]
	return a.ledger.SetMeta("total", strconv.Itoa(a.total))
}

// count sums gres/mig by type.
func count(gres []slurm.GRES) map[string]int {
	n := map[string]int{}
	for _, g := range gres {
		if g.Name == "mig" {
			n[g.Type] += g.Count
		}
	}
	return n
}

// describe is a plan for the log: per GPU what is busy and what is on offer, as placements.
func (a *Agent) describe(d draft) []map[string]string {
	var all []map[string]string
	for i, g := range d.gpus {
		if g.Board == nil {
			all = append(all, map[string]string{"gpu": a.cards[i].UUID, "problem": a.cards[i].Problem})
			continue
		}
		all = append(all, map[string]string{
			"gpu": a.cards[i].UUID, "busy": g.Board.List(g.Busy), "offer": g.Board.List(d.plan.Offers[i]),
			"blocked": strconv.FormatUint(g.Blocked, 2),
		})
	}
	return all
}

// CloseOffers takes everything off offer: what the command `caelumd close` does when the agent has stopped.
func CloseOffers(ctx context.Context, ctl Controller, nodeName string, total int) error {
	node, err := ctl.Node(ctx, nodeName)
	if err != nil {
		return err
	}
	a := &Agent{total: total}
	if total == 0 {
		for _, n := range count(node.Gres) {
			a.total += n
		}
	}
	line, _ := a.gresLine(node, nil)
	return ctl.UpdateGRES(ctx, nodeName, line)
}

// pause sleeps where a test asks for it, between a read and the write that builds on it: CAELUM_TEST_PUBLISH_PAUSE=100ms.
func pause() {
	if d, err := time.ParseDuration(os.Getenv("CAELUM_TEST_PUBLISH_PAUSE")); err == nil {
		time.Sleep(d)
	}
}
