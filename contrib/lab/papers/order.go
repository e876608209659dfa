package papers

import (
	"cmp"
	"slices"

	"caelum/internal/sim"
)

// Order returns a function that maps a position to the index of a waiting job.
type Order func(*sim.Control) func(position int) int

func inOrder(k int) int { return k }

// Skip is the order of submission.
func Skip(*sim.Control) func(int) int { return inOrder }

// Smallest is the order in which smaller jobs come first.
func Smallest(c *sim.Control) func(int) int {
	order := make([]int, c.Waiting())
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.Job(a).Size(), c.Job(b).Size()) })
	return func(k int) int { return order[k] }
}

// Ordered returns a scheduler that starts the first job, in the given order, that fits. Jobs that do not fit do not
// delay others, so they may wait indefinitely.
func Ordered(order Order) func(*sim.Control) sim.Scheduler {
	return func(c *sim.Control) sim.Scheduler { return ordered{c, order} }
}

type ordered struct {
	*sim.Control
	order Order
}

// Turn implements [sim.Scheduler].
func (o ordered) Turn() bool { return o.Search(0, o.order(o.Control), o.Try) }

// Left implements [sim.Scheduler].
func (ordered) Left(*sim.Job) {}
