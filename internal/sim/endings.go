package sim

import "math"

// endings is a [container/heap] of running jobs, ordered by end and then by start.
type endings []*Job

// next returns the earliest end, or +Inf if no job is running.
func (e endings) next() float64 {
	if len(e) == 0 {
		return math.Inf(1)
	}
	return e[0].ends
}

func (e endings) Len() int      { return len(e) }
func (e endings) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

func (e endings) Less(i, j int) bool {
	a, b := e[i], e[j]
	if a.ends != b.ends {
		return a.ends < b.ends
	}
	return a.started < b.started
}

func (e *endings) Push(j any) { *e = append(*e, j.(*Job)) }

func (e *endings) Pop() any {
	last := len(*e) - 1
	j := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return j
}
