package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim/trace"
)

// Config describes a simulation.
type Config struct {
	GPUs []*mig.Model // the model of each GPU

	// Nodes holds the number of GPUs in each node. The field GPUs lists the nodes' GPUs in the same order. A job's
	// slices are on one node, or on as many nodes as it requests. If Nodes is nil, a job can use all GPUs.
	Nodes []int

	// Policy is the policy that places slices on demand. Static holds fixed layouts. At most one of the two may be set.
	// If both are nil, the Scheduler only counts slices.
	Policy place.Policy
	Static []mig.Layout // the layout of each GPU

	Discipline Discipline
	// Scheduler returns the scheduler of a simulation, which replaces the rules of Discipline for starting jobs. If it
	// is nil, the simulation follows Discipline. Moves is true if the scheduler moves or stops running jobs, which may
	// then end later than was known at their start.
	Scheduler func(*Control) Scheduler
	Moves     bool

	// Offers means that jobs start as in production: agents publish offers, and slurmctld allocates the offered slices
	// at whole seconds. With fixed layouts, slurmctld also starts jobs only at whole seconds, but needs no offers.
	// Without Offers, jobs start as soon as a job is submitted or ends. Offers requires FIFO or EASY.
	Offers bool

	// Sizing determines the profile of a job whose Speed is set. Speeds returns the speed that the planner expects on a
	// profile, relative to a whole GPU. If Speeds is nil, the planner knows the true speeds.
	Sizing Sizing
	Speeds func(j trace.Job, profile string) float64

	Observer Observer // may be nil

	// Stay means that jobs hold their slices until the end of the simulation. In this case, durations are ignored, and
	// the accepted fraction is a fraction of the units.
	Stay bool

	// Create and Destroy are the times, in seconds, that it takes to create and destroy an instance. If either is
	// nonzero, the instances of finished jobs remain for reuse until their units are needed.
	Create, Destroy float64
	// Switch is the time, in seconds, that it takes to switch a GPU's MIG mode. The MIG mode of a GPU that holds an
	// instance of the mig.Full profile is off. After the job has ended, the MIG mode remains off until the GPU is
	// needed for a slice.
	Switch float64

	// WholeShare is the maximum fraction of the GPUs that can be full while jobs are waiting for slices
	// (offer.Cluster). 1 means no limit. If WholeShare is 0, the limit depends on the number of jobs that are waiting
	// for slices, but there is no limit if the discipline is neither FIFO nor EASY.
	WholeShare float64

	// Estimate returns a job's estimated run time in seconds, or +Inf if unknown. If it is nil, the estimate is the
	// true duration.
	Estimate func(trace.Job) float64
	// High returns the 90% quantile of a job's run time in seconds, or 0 if the estimate is a time limit. If High
	// returns a quantile, Estimate returns the median, and the simulation computes the expected end of a running job
	// with predict.Expect, as the agents do. High may be nil.
	High func(trace.Job) float64
	// Corrector returns a new object that corrects the estimates using the run times of finished jobs. Agents do not
	// correct estimates. If Corrector is nil, neither does the simulation.
	Corrector func() Corrector

	// Memory determines how much memory jobs request and need. If Memory is nil, jobs request exactly the amount of
	// memory that they need.
	Memory Memory
	// Growth determines which profiles jobs request, when their runs end, and whether they are run again. If Growth is
	// nil, each job runs once for its duration, or as Memory determines.
	Growth Growth
	// Deadlines assigns deadlines to some of the jobs. If it is nil, no job has a deadline.
	Deadlines *Deadlines

	// Contention returns the speed of each of the given jobs, which share a GPU, relative to the speed of a job that is
	// alone on it: above 0 and at most 1. It does not change estimated run times. Each job must have one slice. If
	// Contention is nil, jobs do not slow each other down.
	Contention func(on []trace.Job) (speed float64)
}

// Discipline determines the order in which waiting jobs can start.
type Discipline int

const (
	FIFO Discipline = iota // jobs start strictly in the order of submission
	// EASY reserves the earliest possible start for the head of the queue. Other jobs may start if they do not delay
	// the head.
	EASY
	Loss // no queue: a job that cannot start on submission is rejected
)

func (c *Config) check() error {
	if len(c.GPUs) == 0 {
		return fmt.Errorf("the cluster has no GPUs")
	}
	for k, b := range c.GPUs {
		if b == nil {
			return fmt.Errorf("GPU %d has no GPU model", k)
		}
	}
	if c.Policy != nil && c.Static != nil {
		return fmt.Errorf("a policy and fixed layouts cannot be combined; specify a policy or fixed layouts")
	}
	all := 0
	for _, n := range c.Nodes {
		all += n
	}
	if c.Nodes != nil && (slices.Min(c.Nodes) < 1 || all != len(c.GPUs)) {
		return fmt.Errorf("the nodes have %v GPUs, but the cluster has %d GPUs; "+
			"each number must be at least 1, and the sums must match",
			c.Nodes, len(c.GPUs))
	}
	if c.Offers && (c.Policy == nil && c.Static == nil || c.Discipline != FIFO && c.Discipline != EASY) {
		return fmt.Errorf("offers require a placement policy or fixed layouts, and a FIFO or EASY queue")
	}
	if c.Sizing == Adaptive && (c.Policy == nil || c.Discipline != FIFO && c.Discipline != EASY) {
		return fmt.Errorf("adaptive sizes require a placement policy and a FIFO or EASY queue")
	}
	if c.WholeShare > 0 && c.quota() && (c.Policy == nil || c.Discipline != FIFO && c.Discipline != EASY) {
		return fmt.Errorf("a limit on the share of full GPUs requires a placement policy and a FIFO or EASY queue")
	}
	if c.Memory != nil && c.Stay {
		return fmt.Errorf("memory predictions require jobs that end")
	}
	if c.Growth != nil && (c.Memory != nil || c.Stay || c.Policy == nil || c.Discipline == Loss || !Alike(c.GPUs)) {
		return fmt.Errorf("growth requires a placement policy, a queue, a single GPU model and jobs that end, " +
			"without memory predictions")
	}
	if c.Contention != nil && (c.Growth != nil || c.Memory != nil || c.Moves || c.Stay || c.Scheduler != nil) {
		return fmt.Errorf("contention requires jobs that run once and end, without a scheduler or moves")
	}
	if !(c.Create >= 0 && c.Destroy >= 0 && c.Switch >= 0 && c.Create+c.Destroy+c.Switch < math.Inf(1)) {
		return fmt.Errorf(
			"creating an instance takes %v s, destroying one takes %v s, and switching the MIG mode takes "+
				"%v s; the times must be finite and at least 0",
			c.Create,
			c.Destroy,
			c.Switch,
		)
	}
	if c.Policy == nil && c.Static == nil && (c.Scheduler == nil || !Alike(c.GPUs)) {
		return fmt.Errorf("without a scheduler and a single GPU model, a policy or fixed layouts are required")
	}
	if c.Static != nil && len(c.Static) != len(c.GPUs) {
		return fmt.Errorf("%d fixed layouts for %d GPUs; specify one layout for each GPU", len(c.Static), len(c.GPUs))
	}
	return cmp.Or(c.Deadlines.check(c), c.checkScheduler())
}

// checkScheduler returns an error if a Scheduler does not support the other fields.
func (c *Config) checkScheduler() error {
	switch {
	case c.Scheduler != nil &&
		(c.Offers || c.Sizing == Adaptive || c.WholeShare > 0 && c.quota() || c.Deadlines != nil):
		return fmt.Errorf("a scheduler places jobs directly, without offers, adaptive sizes, deadlines or " +
			"a limit on the share of full GPUs")
	case c.Moves && (c.Scheduler == nil || c.Policy == nil || c.Memory != nil || c.Growth != nil):
		return fmt.Errorf("moves require a scheduler and a placement policy, without memory predictions or growth")
	}
	return nil
}

// Kinds returns the different GPU models, in the order of their first GPUs.
func Kinds(gpus []*mig.Model) (kinds []*mig.Model) {
	for _, b := range gpus {
		if !slices.Contains(kinds, b) {
			kinds = append(kinds, b)
		}
	}
	return kinds
}

// Alike reports whether all GPUs are of the same model.
func Alike(gpus []*mig.Model) bool {
	return !slices.ContainsFunc(gpus, func(b *mig.Model) bool { return b != gpus[0] })
}

// keeps reports whether instances are kept after their jobs have ended.
func (c *Config) keeps() bool { return c.Create > 0 || c.Destroy > 0 }

// quota reports whether the number of full GPUs can be limited.
func (c *Config) quota() bool { return c.WholeShare < 1 && slices.ContainsFunc(c.GPUs, mayBeFull) }

// mayBeFull reports whether a GPU of this model can either be a full GPU or hold slices.
func mayBeFull(b *mig.Model) bool { return b.Full() != 0 && len(b.Profiles) > 1 }

// estimate returns a job's estimated run time in seconds.
func (c *Config) estimate(j trace.Job) float64 {
	if c.Estimate == nil {
		return j.Duration
	}
	return c.Estimate(j)
}
