package part

import (
	"fmt"
	"strings"
	"testing"
)

// model is a finite state machine. next calls emit for each state that can follow s, with the name of the step. wrong
// returns the rule that s violates, or an empty string.
type model[S comparable] interface {
	start() []S
	next(s S, emit func(step string, t S))
	wrong(s S) string
}

// result is the outcome of an exploration: the number of states, the first violated rule, and the steps that lead to
// the violation.
type result struct {
	states int
	rule   string
	steps  []string
}

func (r result) String() string {
	return fmt.Sprintf("%s after %d states:\n  %s", r.rule, r.states, strings.Join(r.steps, "\n  "))
}

// explore visits every reachable state of a model, breadth first, until a state violates a rule.
func explore[S comparable](m model[S]) result {
	type origin struct {
		from S
		step string
	}
	seen := map[S]origin{}
	queue := m.start()
	for _, s := range queue {
		seen[s] = origin{step: "start"}
	}
	for k := 0; k < len(queue); k++ {
		s := queue[k]
		if rule := m.wrong(s); rule != "" {
			r := result{states: len(seen), rule: rule}
			for at := s; ; at = seen[at].from {
				r.steps = append([]string{fmt.Sprintf("%-28s %+v", seen[at].step, at)}, r.steps...)
				if seen[at].step == "start" {
					return r
				}
			}
		}
		m.next(s, func(step string, t S) {
			if _, known := seen[t]; !known {
				seen[t] = origin{s, step}
				queue = append(queue, t)
			}
		})
	}
	return result{states: len(seen)}
}

// holds fails the test if a state of the model violates a rule.
func holds[S comparable](t *testing.T, m model[S]) {
	t.Helper()
	r := explore(m)
	if r.rule != "" {
		t.Fatal(r)
	}
	t.Logf("%d states", r.states)
}

// fails fails the test if no state of the model violates a rule. The model lacks a rule of the real program.
func fails[S comparable](t *testing.T, m model[S]) {
	t.Helper()
	r := explore(m)
	if r.rule == "" {
		t.Fatalf("no violation in %d states", r.states)
	}
	t.Logf("%s after %d states and %d steps", r.rule, r.states, len(r.steps)-1)
}
