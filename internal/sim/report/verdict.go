package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// near and nearSeconds are the relative and absolute differences below which two policies count as equally good.
// nearSeconds is the interval between slurmctld's passes in a simulation with offers.
const (
	near        = 0.01
	nearSeconds = 1
)

// verdict returns a sentence that names the best policy for the workload and its advantage over the second best. The
// best policy has the lowest mean waiting time. Without a queue, it accepts the largest fraction of the requested
// unit-seconds. References are not compared. The sentence is empty if the page has no policies.
func (p Page) verdict() string {
	ranked := p.ranked()
	if len(ranked) == 0 {
		return ""
	}
	best := ranked[0]
	if len(ranked) == 1 {
		return fmt.Sprintf("With the %s policy, %s.", best.Name, p.outcome(best))
	}
	if tie := p.Tie(); tie != "" {
		return "For this workload, " + tie + fmt.Sprintf(": with %s, %s.", best.Name, p.outcome(best))
	}
	second := ranked[1]
	word := "less"
	if p.Loss {
		word = "more"
	}
	return fmt.Sprintf("For this workload, %s is the best policy: %s, %.0f%% %s than with %s, the second best.",
		best.Name, p.outcome(best), 100*p.gap(best, second), word, second.Name)
}

// Tie returns the part of a sentence that names the policies that are as good as the best policy, or an empty string if
// there are none.
func (p Page) Tie() string {
	ranked := p.ranked()
	var names []string
	for _, of := range ranked {
		if p.gap(ranked[0], of) < near || !p.Loss && math.Abs(p.score(ranked[0])-p.score(of)) < nearSeconds {
			names = append(names, of.Name)
		}
	}
	if len(names) < 2 {
		return ""
	}
	last := len(names) - 1
	limit := "1% or 1 s"
	if p.Loss {
		limit = "1%"
	}
	return fmt.Sprintf("the %s and %s policies are equally good (difference below %s)",
		strings.Join(names[:last], ", "), names[last], limit)
}

// ranked returns the policies that are compared, beginning with the best.
func (p Page) ranked() (all []Policy) {
	for _, of := range p.Policies {
		if !of.Reference {
			all = append(all, of)
		}
	}
	slices.SortStableFunc(all, func(a, b Policy) int { return cmp.Compare(p.score(a), p.score(b)) })
	return all
}

// gap returns the difference between the scores of two policies, relative to that of the worse one.
func (p Page) gap(best, other Policy) float64 {
	a, b := math.Abs(p.score(best)), math.Abs(p.score(other))
	return math.Abs(a-b) / max(b, 1e-9)
}

// score returns the figure that the verdict uses to compare policies. Lower is better.
func (p Page) score(of Policy) float64 {
	if p.Loss {
		return -of.Accepted
	}
	return of.MeanWait
}

// outcome describes the compared figure of a policy.
func (p Page) outcome(of Policy) string {
	if p.Loss {
		return fmt.Sprintf("it accepts %s of the requested GPU time", percent(of.Accepted))
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
