package reconfigure

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// NoJob is the value of Step.Job for an idle instance.
const NoJob = -1

// Plan is a list of instances to destroy and to create, in order. It does not itself change a GPU. [Plan.Apply] applies
// it to a copy of a pool.
//
// A job that is moved appears in two steps: the first destroys its instance at the source, and the second creates or
// takes an instance at the target. Both steps identify the job by its index in the caller's list. Every state between
// steps is legal.
type Plan []Step

// Step is a single change to one GPU.
type Step struct {
	Do Action
	place.Spot
	Model *mig.Model // the model of the GPU; Apply rejects a plan for another GPU model
	Job   int        // the job that holds the instance, or [NoJob] if the instance is idle
}

// Action is the kind of a step.
type Action int

const (
	// Destroy destroys an instance. If a job holds the instance, the job is stopped.
	Destroy Action = iota
	// Leave stops the job and leaves its instance idle.
	Leave
	// Create creates an instance for a job, or an idle instance if the job is NoJob.
	Create
	// Take assigns an idle instance to a job without changing the GPU.
	Take
	endOfActions
)

func (a Action) String() string { return [...]string{"destroy", "leave", "create", "take"}[a] }

func (s Step) String() string {
	text := fmt.Sprintf("%s %s on GPU %d", s.Do, s.Model.Label(s.Placement), s.GPU)
	switch {
	case s.Job == NoJob:
		return text + " (idle)"
	case s.Do == Destroy || s.Do == Leave:
		return fmt.Sprintf("%s (stops job %d)", text, s.Job)
	}
	return fmt.Sprintf("%s (for job %d)", text, s.Job)
}

// String returns the steps as a single line.
func (p Plan) String() string {
	if len(p) == 0 {
		return "nothing to do"
	}
	var steps []string
	for _, s := range p {
		steps = append(steps, s.String())
	}
	return strings.Join(steps, "; ")
}

// Stops returns the jobs that the plan stops, in ascending order. These include jobs that are moved and jobs that are
// stopped to make room for another job.
func (p Plan) Stops() []int {
	var jobs []int
	for _, s := range p {
		if s.Job != NoJob && (s.Do == Destroy || s.Do == Leave) {
			jobs = append(jobs, s.Job)
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}

// Apply applies the plan to a copy of the pool. If the GPUs have changed since the plan was made, the error names the
// first impossible step. A job that is moved keeps its expected end; if the job restarts from the beginning, the caller
// must correct the expected end. For any other instance that becomes busy, the expected end is unknown.
func (p Plan) Apply(pool *place.Pool) (*place.Pool, error) {
	gpus := gpusOf(pool)
	ends := map[int]float64{} // by job
	for n, s := range p {
		if err := s.apply(gpus, ends); err != nil {
			return nil, fmt.Errorf("step %d: %w; re-read the state of the GPUs and make a new plan", n+1, err)
		}
	}
	return place.NewPool(gpus), nil
}

func (s Step) apply(gpus []place.GPU, ends map[int]float64) error {
	if s.GPU < 0 || s.GPU >= len(gpus) {
		return fmt.Errorf("GPU %d does not exist; the node has %d GPUs", s.GPU, len(gpus))
	}
	g := &gpus[s.GPU]
	if s.Model == nil || g.Model != s.Model {
		return fmt.Errorf("the plan was made for a different GPU model than that of GPU %d", s.GPU)
	}
	if s.Placement < 0 || s.Placement >= len(s.Model.Placements) {
		return fmt.Errorf("%s has no placement %d", s.Model.Name, s.Placement)
	}
	if s.Do < 0 || s.Do >= endOfActions || s.Job < NoJob || s.Job == NoJob && (s.Do == Leave || s.Do == Take) {
		return fmt.Errorf("action %d for job %d is not a valid step", s.Do, s.Job)
	}
	i, from := s.Placement, &g.Idle
	if s.Job != NoJob && s.Do != Take {
		from = &g.Busy
	}
	if s.Do == Create {
		if !g.Model.Open(g.Busy|g.Idle, g.Blocked).Has(i) {
			return fmt.Errorf("%s: the instance does not fit alongside %s", s, g.Model.List(g.Busy|g.Idle))
		}
	} else if !from.Has(i) {
		return fmt.Errorf("%s: the instance does not exist", s)
	}
	switch s.Do {
	case Destroy, Leave:
		if s.Job != NoJob && g.Ends != nil {
			ends[s.Job] = g.Ends[i]
		}
		*from = from.Without(i)
		if s.Do == Leave {
			g.Idle = g.Idle.With(i)
		}
	case Create, Take:
		if s.Job == NoJob {
			g.Idle = g.Idle.With(i)
			break
		}
		end, known := ends[s.Job]
		if !known {
			end = math.Inf(1)
		}
		g.Hold(i, end)
	}
	return nil
}

// gpusOf copies the GPUs of a pool.
func gpusOf(pool *place.Pool) []place.GPU {
	gpus := make([]place.GPU, pool.Len())
	for k := range gpus {
		gpus[k] = pool.GPU(k)
	}
	return gpus
}

// Serve returns the plan that assigns a spot to a job: it either destroys the idle instances in the way and creates
// the job's instance, or takes the idle instance at the spot. The spot must be possible.
func Serve(pool *place.Pool, at place.Spot, job int) Plan {
	return serve(nil, pool.GPU(at.GPU), at, job)
}

// serve appends to p the steps that make at's placement busy on g.
func serve(p Plan, g place.GPU, at place.Spot, job int) Plan {
	if g.Idle.Has(at.Placement) {
		return append(p, Step{Take, at, g.Model, job})
	}
	for j := range g.InTheWay(at.Placement).Indices() {
		p = append(p, Step{Destroy, place.Spot{GPU: at.GPU, Placement: j}, g.Model, NoJob})
	}
	return append(p, Step{Create, at, g.Model, job})
}
