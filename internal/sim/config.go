package sim

import (
	"fmt"
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
	"caelum/internal/trace"
)

// Config is what is simulated.
type Config struct {
	GPUs []*mig.Model // one for each GPU

	// Nodes is how many of the GPUs each node has, in their order; nil: nobody asks which node a GPU is in. A job has
	// its slices on one node, or on as many as it asks for. The reference that moves everything does not know of nodes.
	Nodes []int

	// One of these: a policy that cuts slices on demand; the layouts into which each GPU is cut once and for all; or,
	// with neither, the reference that may re-arrange all running jobs at any time for nothing.
	Policy place.Policy
	Static []mig.Layout // by GPU

	Discipline Discipline

	// Offers has the policy act as in production, through what agents put on offer and slurmctld gives out; else it
	// places jobs by itself, the moment that they come or go. For FIFO and EASY.
	Offers bool

	Observer Observer // nil: nobody watches

	// Stay has nobody leave: durations are ignored, and what is accepted counts by units alone.
	Stay bool

	// Create and Destroy are how long it takes to make an instance and to destroy one, in seconds. If either is not 0,
	// instances of jobs that have ended stand until their room is wanted, and are used again.
	Create, Destroy float64

	// Said is what is said of how long a job will run, in seconds; nil: its duration.
	Said func(trace.Job) float64
	// Learn corrects what is said by how long the jobs before it ran, compared with what was said of them. Agents do
	// not.
	Learn bool

	// Memory is how well it is foreseen how much memory jobs need; nil: jobs ask for what they need.
	Memory *Memory
}

// Discipline says whose turn it is.
type Discipline int

const (
	FIFO Discipline = iota // in the order of submission; nobody starts before the one in front of him
	// the head has a reservation where it can start first; others may start if they do not delay it
	EASY
	Loss     // nobody waits: who cannot start at once is turned away
	Skip     // in the order of submission, passing over those that do not fit
	Smallest // the smallest that fits first, the large ones when nobody smaller waits
	Batches  // of the first few, those together that make the most of one GPU (DynaP)
)

func (c *Config) check() error {
	if len(c.GPUs) == 0 {
		return fmt.Errorf("no GPUs")
	}
	for k, b := range c.GPUs {
		if b == nil {
			return fmt.Errorf("GPU %d has no board", k)
		}
	}
	if c.Policy != nil && c.Static != nil {
		return fmt.Errorf("a policy and fixed layouts: give one")
	}
	all := 0
	for _, n := range c.Nodes {
		all += n
	}
	if c.Nodes != nil && (slices.Min(c.Nodes) < 1 || all != len(c.GPUs)) {
		return fmt.Errorf("nodes with %v GPUs: there are %d", c.Nodes, len(c.GPUs))
	}
	if c.Offers && (c.Policy == nil || c.Discipline != FIFO && c.Discipline != EASY) {
		return fmt.Errorf("offers are for policies that cut slices on demand, with a queue that is FIFO or EASY")
	}
	if c.Memory != nil && c.Stay {
		return fmt.Errorf("nobody runs out of memory where nobody runs")
	}
	if !(c.Create >= 0 && c.Destroy >= 0 && c.Create+c.Destroy < math.Inf(1)) {
		return fmt.Errorf(
			"it takes %v s to make an instance and %v s to destroy one: give times of at least 0",
			c.Create,
			c.Destroy,
		)
	}
	if c.Policy == nil && c.Static == nil && !Alike(c.GPUs) {
		return fmt.Errorf("the reference that moves everything knows one board at a time")
	}
	if c.Discipline == Batches && c.Policy == nil {
		return fmt.Errorf(
			"batches are for GPUs that are cut on demand: give a policy, not fixed layouts or the reference that moves everything",
		)
	}
	if c.Static != nil && len(c.Static) != len(c.GPUs) {
		return fmt.Errorf("%d fixed layouts for %d GPUs", len(c.Static), len(c.GPUs))
	}
	return nil
}

// Kinds are the GPU models that there are, each once.
func Kinds(gpus []*mig.Model) (kinds []*mig.Model) {
	for _, b := range gpus {
		if !slices.Contains(kinds, b) {
			kinds = append(kinds, b)
		}
	}
	return kinds
}

// Alike reports whether all GPUs are of one GPU model.
func Alike(gpus []*mig.Model) bool {
	return !slices.ContainsFunc(gpus, func(b *mig.Model) bool { return b != gpus[0] })
}

// keeps reports whether instances outlive their jobs.
func (c *Config) keeps() bool { return c.Create > 0 || c.Destroy > 0 }

func (c *Config) said(j trace.Job) float64 {
	if c.Said == nil {
		return j.Duration
	}
	return c.Said(j)
}
