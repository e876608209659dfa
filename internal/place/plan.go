package place

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"caelum/internal/mig"
)

// Spot is a placement on one of the GPUs.
type Spot struct {
	GPU       int // index in the pool
	Placement int // index in the Placements of that GPU's GPU model
}

// Nobody is the job of an instance that is idle.
const Nobody = -1

// Plan says what to destroy and what to create, in order. It is a value: nothing happens until somebody carries it out,
// and [Plan.Apply] does that on paper.
//
// A job that is moved appears twice: its instance is destroyed where it stands, and created (or taken) where it goes.
// Both steps bear the job, as an index in whatever list the caller keeps. Every state on the way is legal.
type Plan []Step

// Step is one change of one GPU.
type Step struct {
	Do Action
	Spot
	Model *mig.Model // of the GPU: a plan that was made for another GPU model is refused
	Job   int        // whose instance it is; [Nobody]: an idle one
}

// Action is what a step does.
type Action int

const (
	// Destroy an instance: a job's, which is stopped by that, or an idle one.
	Destroy Action = iota
	// Leave stops the job, and its instance stays behind, idle.
	Leave
	// Create an instance for a job; for Nobody, one that is idle.
	Create
	// Take an idle instance for a job. The GPU does not change.
	Take
	endOfActions
)

func (a Action) String() string { return [...]string{"destroy", "leave", "create", "take"}[a] }

func (s Step) String() string {
	text := fmt.Sprintf("%s %s on GPU %d", s.Do, s.Model.Label(s.Placement), s.GPU)
	switch {
	case s.Job == Nobody:
		return text + " (idle)"
	case s.Do == Destroy || s.Do == Leave:
		return fmt.Sprintf("%s (stops job %d)", text, s.Job)
	}
	return fmt.Sprintf("%s (for job %d)", text, s.Job)
}

// String lists the steps in one line.
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

// Stops lists the jobs that are stopped, ascending: those that are moved and those that only make room.
func (p Plan) Stops() []int {
	var jobs []int
	for _, s := range p {
		if s.Job != Nobody && (s.Do == Destroy || s.Do == Leave) {
			jobs = append(jobs, s.Job)
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}

// Apply carries the plan out on a copy of the pool, which stays as it is. The error names the first step that cannot be
// done: the GPUs are not what the plan was made for. A job that is moved keeps the end that was expected of it (a
// caller that starts it from the beginning knows better); of any other instance that becomes busy it is unknown.
func (p Plan) Apply(pool *Pool) (*Pool, error) {
	gpus := pool.snapshot()
	ends := map[int]float64{} // by job
	for n, s := range p {
		if err := s.apply(gpus, ends); err != nil {
			return nil, fmt.Errorf("step %d: %w; look at the GPUs again and plan anew", n+1, err)
		}
	}
	return NewPool(gpus), nil
}

func (s Step) apply(gpus []GPU, ends map[int]float64) error {
	if s.GPU < 0 || s.GPU >= len(gpus) {
		return fmt.Errorf("no GPU %d among %d", s.GPU, len(gpus))
	}
	g := &gpus[s.GPU]
	if s.Model == nil || g.Model != s.Model {
		return fmt.Errorf("GPU %d is not the board that was planned for", s.GPU)
	}
	if s.Placement < 0 || s.Placement >= len(s.Model.Placements) {
		return fmt.Errorf("%s has no placement %d", s.Model.Name, s.Placement)
	}
	if s.Do < 0 || s.Do >= endOfActions || s.Job < Nobody || s.Job == Nobody && (s.Do == Leave || s.Do == Take) {
		return fmt.Errorf("action %d for job %d: no such step", s.Do, s.Job)
	}
	i, from := s.Placement, &g.Idle
	if s.Job != Nobody && s.Do != Take {
		from = &g.Layout
	}
	if s.Do == Create {
		if !g.Model.Open(g.Layout|g.Idle, g.Blocked).Has(i) {
			return fmt.Errorf("%s: no room beside %s", s, g.Model.List(g.Layout|g.Idle))
		}
	} else if !from.Has(i) {
		return fmt.Errorf("%s: it is not there", s)
	}
	switch s.Do {
	case Destroy, Leave:
		if s.Job != Nobody && g.Ends != nil {
			ends[s.Job] = g.Ends[i]
		}
		*from = from.Without(i)
		if s.Do == Leave {
			g.Idle = g.Idle.With(i)
		}
	case Create, Take:
		g.Idle = g.Idle.Without(i)
		if s.Job == Nobody {
			g.Idle = g.Idle.With(i)
			break
		}
		end, known := ends[s.Job]
		if !known {
			end = math.Inf(1)
		}
		g.occupy(i, end)
	}
	return nil
}

// occupy makes placement i busy until end (+Inf: unknown). The list of ends is not shared with the GPU it was copied
// from.
func (g *GPU) occupy(i int, end float64) {
	g.Layout = g.Layout.With(i)
	g.Ends = g.withEnd(i, end)
}

// withEnd is the ends with that of one placement changed; who has the old ones keeps them.
func (g *GPU) withEnd(i int, end float64) []float64 {
	if g.Ends == nil && math.IsInf(end, 1) {
		return nil
	}
	ends := slices.Clone(g.Ends)
	if ends == nil {
		ends = slices.Repeat([]float64{math.Inf(1)}, len(g.Model.Placements))
	}
	ends[i] = end
	return ends
}

// Serve is how a request is met at a spot that is to be had: the idle instances in the way are destroyed and the
// instance is created, or the idle one that stands there is taken.
func (p *Pool) Serve(at Spot, job int) Plan {
	return p.gpus[at.GPU].GPU.serve(nil, at, job)
}

// serve adds to a plan what makes placement at busy on g.
func (g GPU) serve(p Plan, at Spot, job int) Plan {
	if g.Idle.Has(at.Placement) {
		return append(p, Step{Take, at, g.Model, job})
	}
	for j := range g.InTheWay(at.Placement).Indices() {
		p = append(p, Step{Destroy, Spot{at.GPU, j}, g.Model, Nobody})
	}
	return append(p, Step{Create, at, g.Model, job})
}
