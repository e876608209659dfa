package tags

import (
	"testing"
	"time"

	"caelum/internal/slurm"
)

// TestPreemption checks that the tags of a preemption apply to one run only, and that invalid tags have no effect.
func TestPreemption(t *testing.T) {
	now := time.Unix(1763790000, 0)
	j := slurm.Job{Restarts: 2, AdminComment: "caelum:key=x"}
	for _, p := range []Preemption{{Job: 7}, {Job: 7, Warned: true, End: now}} {
		j.AdminComment = WithPreemption(j, p)
		if got, ok := PreemptedBy(j); !ok || got != p {
			t.Errorf("%q: %v %v, want %v", j.AdminComment, got, ok, p)
		}
		next := j
		next.Restarts++
		if _, ok := PreemptedBy(next); ok {
			t.Errorf("%q applies to the next run", j.AdminComment)
		}
		if got, ok := WasPreemptedBy(next); !ok || got != p {
			t.Errorf("%q: %v %v in the next run, want %v", j.AdminComment, got, ok, p)
		}
	}
	if j.AdminComment = WithoutPreemption(j); j.AdminComment != "caelum:key=x" {
		t.Errorf("%q remains", j.AdminComment)
	}
	j.AdminComment = WithPreempts(j, now)
	if since, ok := PreemptsSince(j); !ok || !since.Equal(now) {
		t.Errorf("%q: %v %v", j.AdminComment, since, ok)
	}
	fewer := j
	fewer.ArrayTask = "3-5"
	if _, ok := PreemptsSince(fewer); ok || !HasPreempted(fewer) {
		t.Errorf("%q: another number of tasks: %v, want false; %v, want true", j.AdminComment, ok, HasPreempted(fewer))
	}
	if j.Restarts++; j.AdminComment != "caelum:key=x caelum:preempts=2:1763790000:1" {
		t.Errorf("%q", j.AdminComment)
	}
	if _, ok := PreemptsSince(j); ok || HasPreempted(j) {
		t.Error("the tag applies after a requeue")
	}
	for _, text := range []string{"", "7", "7:2", "7:2:x", "7:2:0:0", "0:2:0", "-7:2:0", "7:+2:0", "99999999999:2:0"} {
		if p, ok := PreemptedBy(slurm.Job{Restarts: 2, AdminComment: Preempted + text}); ok {
			t.Errorf("%q: %v", text, p)
		}
	}
}
