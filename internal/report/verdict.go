package report

import (
	"fmt"
	"math"
	"slices"
)

// near is the relative difference below which two policies count as equally good.
const near = 0.01

// verdict returns a sentence that names the best policy for the workload and its advantage over the second best. The
// best policy has the lowest mean waiting time, or the lowest mean turnaround if the workload has run times that depend
// on the slice. Without a queue, it accepts the largest fraction of the requested unit-seconds. References are not
// compared. The sentence is empty if the page has no policies.
func (p Page) verdict() string {
	var ranked []Policy
	for _, of := range p.Policies {
		if !of.Reference {
			ranked = append(ranked, of)
		}
	}
	if len(ranked) == 0 {
		return ""
	}
	slices.SortStableFunc(ranked, func(a, b Policy) int {
		if x, y := p.score(a), p.score(b); x != y {
			return map[bool]int{true: -1, false: 1}[x < y]
		}
		return 0
	})
	best := ranked[0]
	if len(ranked) == 1 {
		return fmt.Sprintf("With the %s policy, %s.", best.Name, p.outcome(best))
	}
	second := ranked[1]
	a, b := math.Abs(p.score(best)), math.Abs(p.score(second))
	switch gap := math.Abs(a-b) / max(b, 1e-9); {
	case a == b || gap < near:
		return fmt.Sprintf("For this workload, the %s and %s policies are equally good (difference below %.0f%%): "+
			"with %s, %s.", best.Name, second.Name, 100*near, best.Name, p.outcome(best))
	case p.Loss:
		return fmt.Sprintf("For this workload, %s is the best policy: %s, %.0f%% more than with %s, the second best.",
			best.Name, p.outcome(best), 100*gap, second.Name)
	default:
		return fmt.Sprintf("For this workload, %s is the best policy: %s, %.0f%% less than with %s, the second best.",
			best.Name, p.outcome(best), 100*gap, second.Name)
	}
}

// score returns the figure that the verdict uses to compare policies. Lower is better.
func (p Page) score(of Policy) float64 {
	switch {
	case p.Loss:
		return -of.Accepted
	case p.Slower:
		return of.Turnaround
	}
	return of.MeanWait
}

// outcome describes the compared figure of a policy.
func (p Page) outcome(of Policy) string {
	switch {
	case p.Loss:
		return fmt.Sprintf("it accepts %s of the requested GPU time", percent(of.Accepted))
	case p.Slower:
		return "a job ends on average " + span(of.Turnaround) + " after its submission"
	}
	return "a job waits on average " + span(of.MeanWait)
}

// span formats a time in seconds, using a unit that makes the number easy to read.
func span(seconds float64) string {
	for _, u := range []struct {
		name   string
		length float64
	}{{"days", 86400}, {"hours", 3600}, {"minutes", 60}} {
		if seconds >= 2*u.length {
			return fmt.Sprintf("%s %s", number(math.Round(10*seconds/u.length)/10), u.name)
		}
	}
	return number(math.Round(10*seconds)/10) + " s"
}
