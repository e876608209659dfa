package tags

import (
	"fmt"
	"testing"
	"time"

	"caelum/internal/slurm"
)

// TestMoved checks that the tag of a moved run applies to this run, that it prevents moves of all later runs, and that
// a refused move prevents only moves of the same run.
func TestMoved(t *testing.T) {
	const preempted = "caelum:key=x caelum:preempted=5:1:0" // an earlier run
	j := slurm.Job{Restarts: 2, AdminComment: preempted}
	if !MovableRun(j) {
		t.Errorf("%q prevents a move", j.AdminComment)
	}
	j.AdminComment = WithPreemption(j, Preemption{Job: 7, Move: true})
	if j.AdminComment != preempted+" caelum:moved=7:2" {
		t.Errorf("%q", j.AdminComment)
	}
	if p, ok := PreemptedBy(j); !ok || p != (Preemption{Job: 7, Move: true}) || MovableRun(j) {
		t.Errorf("%q: %v, %v", j.AdminComment, p, ok)
	}
	next := j
	next.Restarts++
	if p, ok := WasPreemptedBy(next); !ok || !p.Move || MovableRun(next) {
		t.Errorf("the next run: %v, %v", p, ok)
	}
	next.AdminComment = WithPreemption(next, Preemption{Job: 8}) // by Slurm's rules
	if p, ok := PreemptedBy(next); !ok || p != (Preemption{Job: 8}) {
		t.Errorf("%q: %v, %v", next.AdminComment, p, ok)
	}
	if next.AdminComment = WithoutPreemption(next); next.AdminComment != "caelum:key=x caelum:moved=7:2" {
		t.Errorf("%q remains", next.AdminComment)
	}
	if next.Restarts++; MovableRun(next) {
		t.Error("a job can be moved twice")
	}
	if j.AdminComment = WithoutPreemption(j); j.AdminComment != preempted || !MovableRun(j) {
		t.Errorf("%q remains", j.AdminComment)
	}
	j.AdminComment = WithoutMoves(j)
	if _, ok := PreemptedBy(j); ok || MovableRun(j) {
		t.Errorf("%q allows a move", j.AdminComment)
	}
	if j.Restarts++; !MovableRun(j) {
		t.Errorf("%q prevents a move of the next run", j.AdminComment)
	}
	for _, text := range []string{"x", "7", "7:2:0", "-7:2", ":"} {
		j := slurm.Job{Restarts: 2, AdminComment: Moved + text}
		if p, ok := PreemptedBy(j); ok || MovableRun(j) {
			t.Errorf("%q: %v, %v", text, p, ok)
		}
	}
}

// TestSavedUntil checks which words in a Comment report a checkpoint, and that no word reports a time before the job's
// start or after now.
func TestSavedUntil(t *testing.T) {
	start, now := time.Unix(1763790000, 0), time.Unix(1763793600, 0)
	at := func(seconds int64) string { return fmt.Sprint("caelum:checkpoint=", start.Unix()+seconds) }
	for comment, want := range map[string]time.Duration{
		"":                               0,
		"caelum:checkpoint":              0,
		"caelum:checkpoint=":             0,
		at(60):                           time.Minute,
		"epoch 7 " + at(60) + "\tsaved":  time.Minute,
		at(60) + " " + at(120):           time.Minute,
		at(-60):                          0,
		at(3600):                         time.Hour,
		at(3601):                         time.Hour,
		"caelum:checkpoint=4294967295":   time.Hour,
		"caelum:checkpoint=4294967296":   0,
		"caelum:checkpoint=-1763790060":  0,
		"caelum:checkpoint=+1763790060":  0,
		"caelum:checkpoint=1.76379006e9": 0,
		"caelum:checkpoint=0x69210ecc":   0,
		"caelum:checkpoint=1763790060:0": 0,
		"x" + at(60):                     0,
	} {
		j := slurm.Job{Start: start, Comment: comment}
		if got := SavedUntil(j, now).Sub(start); got != want {
			t.Errorf("%q: %v, want %v", comment, got, want)
		}
	}
}
