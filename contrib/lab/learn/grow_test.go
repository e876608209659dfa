package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"caelum/contrib/lab/growtrace"
	"caelum/internal/core/predict"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// TestGrowByHand checks the results for one job, which needs 8000 MiB, runs for 10,000 s, and starts on a 1g.5gb with
// 4864 MiB. The ramp rises from 4000 MiB in steps of 400 MiB every 500 s, so the run fails after 1500 s. The step rises
// at 5000 s.
func TestGrowByHand(t *testing.T) {
	n, err := newNode()
	if err != nil {
		t.Fatal(err)
	}
	ramp, step := growtrace.Curve{Base: 0.5, Rise: 0.5, Jump: 0.1}, growtrace.Curve{Base: 0.3, Rise: 0.5, Jump: 1}
	wait := 1800 * math.Exp(rand.New(rand.NewPCG(1, 0)).NormFloat64())
	for _, c := range []struct {
		name  string
		curve growtrace.Curve
		site
		failsAt, waits     float64
		failures, requeues int
	}{
		{"off", ramp, site{grow: "off", profile: "1g.5gb"}, 1500, wait, 1, 0},
		{"oom", ramp, site{grow: "oom", profile: "1g.5gb"}, 1500, 121, 0, 1},
		{"a whole GPU", ramp, site{grow: "off", profile: "7g.40gb"}, 0, 0, 0, 0},
		{"no trace of the allocation", step, site{grow: "oom", profile: "1g.5gb"}, 5000, wait, 1, 0},
		{"a report", step, site{grow: "oom", profile: "1g.5gb", reports: true}, 5000, 121, 0, 1},
	} {
		got := playOne(t, n, c.site, c.curve)
		if got.failures != c.failures || got.requeues != c.requeues || got.needless != 0 || got.jobs != 1 ||
			math.Abs(got.turnaround-c.failsAt-c.waits-10000) > 1e-6 || math.Abs(got.lost-c.failsAt/8) > 1e-6 {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	ramp.Jump = 0.01 // the run would fail after 1100 s
	got := playOne(t, n, site{grow: "forecast", profile: "1g.5gb"}, ramp)
	stopped := got.lost * 8
	if !(stopped > 0 && stopped < 1099) || math.Abs(got.turnaround-stopped-121-10000) > 1e-6 || got.failures != 0 ||
		got.requeues != 1 || got.needless != 0 {
		t.Errorf("forecast: stopped at %v s, %+v", stopped, got)
	}
}

// playOne simulates the job of TestGrowByHand, which is equally fast on all profiles.
func playOne(t *testing.T, n node, s site, c growtrace.Curve) growTally {
	a := &arrival{
		submission: submission{peak: 8000, seen: 1, seconds: 10000, state: "COMPLETED", until: 1},
		Job:        trace.Job{ID: "a", Duration: 10000, Limit: 10000, MemoryMiB: 8000},
		Curve:      c,
	}
	g := newGrowth(n, s, []*arrival{a}, 1)
	if err := simulateGrowth(n, growGPUs, g, []*arrival{a}); err != nil {
		t.Fatal(err)
	}
	return g.growTally
}

// recorded checks a growth's decisions: the runs' accounting records must lead to the same ones.
type recorded struct {
	*growth
	t        *testing.T
	requeues int
}

func (r *recorded) Ended(j trace.Job, now float64) sim.Next {
	play := r.plays[j.ID]
	grown, last := slices.Clone(play.grown), play.run
	next := r.growth.Ended(j, now)
	var runs []predict.Run
	for _, run := range r.runs[play.key] {
		of := predict.Summaries("a comment " + run.Summary())
		if len(of) != 1 {
			r.t.Fatalf("%d runs in %s", len(of), run.Summary())
		}
		of[0].Job, of[0].State, of[0].Exit = run.Job, run.State, run.Exit
		runs = append(runs, of[0])
	}
	want, limit := "", len(grown) >= growLimit
	switch need, short := predict.RanOut(runs, grown, predict.DefaultSite); {
	case limit || r.grow == "off":
	case last.End == predict.EndForeseen:
		want, _ = predict.Larger(r.model, r.all, last.Profile, last.ForeseenMiB)
	case short:
		want, _ = need.Larger(r.model, r.all, last.Profile)
	}
	if next.Requeue != want {
		r.t.Errorf("%s: requeued on %q, want %q after %v and %+v", j.ID, next.Requeue, want, grown, runs)
	}
	if next.Requeue != "" {
		r.requeues++
		a, _ := r.model.ProfileIndex(last.Profile)
		b, _ := r.model.ProfileIndex(want)
		was, is := r.model.Profiles[a], r.model.Profiles[b]
		if is.Memory() <= was.Memory() || is.Compute < was.Compute {
			r.t.Errorf("%s: requeued from %s on %s", j.ID, was.Name, is.Name)
		}
	}
	if play.short && next == (sim.Next{}) && last.End == "" {
		r.t.Errorf("%s ran out of memory and was not submitted again", j.ID)
	}
	return next
}

// TestGrowDecidesAsAgents checks that the simulation decides from the data that agents have, namely the runs'
// accounting records and the job's growths.
func TestGrowDecidesAsAgents(t *testing.T) {
	n, err := newNode()
	if err != nil {
		t.Fatal(err)
	}
	small := growing{"small", 40, 1, 6, 0.5}
	all := small.draw(n, 3)
	for _, mode := range growModes {
		r := &recorded{newGrowth(n, site{grow: mode, profile: "1g.5gb"}, all, 3), t, 0}
		if err := simulateGrowth(n, growGPUs, r, all); err != nil {
			t.Fatal(err)
		}
		if (r.requeues > 0) != (mode != "off") || r.jobs != len(all) {
			t.Errorf("%s: %d requeues, %d of %d jobs", mode, r.requeues, r.jobs, len(all))
		}
	}
}

// TestGrowDevclusterTrace checks the simulation of the trace that devcluster-bench runs: each job ends once, the users'
// and requeues' delays are those of the trace, and a job that fails for another reason is not submitted again.
func TestGrowDevclusterTrace(t *testing.T) {
	n, err := newNode()
	if err != nil {
		t.Fatal(err)
	}
	const count = 40
	for _, mode := range growModes {
		got, err := playTrace(n, mode, growtrace.Trace(5, count), 5)
		if err != nil {
			t.Fatal(err)
		}
		if got.jobs != count || got.ran == 0 || got.failures+got.requeues < got.ran ||
			(got.requeues > 0) != (mode != "off") {
			t.Errorf("%s: %+v", mode, got)
		}
	}
	one := []growtrace.Job{{
		Seconds: 100, Limit: 240, PeakMiB: 9000, Until: 1, Curve: growtrace.Curve{Base: 0.5, Jump: 0.04, Rise: 1},
	}}
	for mode, wait := range map[string]float64{"off": growtrace.Notice, "oom": growtrace.RequeueDelay} {
		got, err := playTrace(n, mode, one, 5)
		// The memory exceeds the 4864 MiB of 1g.5gb at the third jump, from 4860 to 5040 MiB.
		if err != nil || math.Abs(got.turnaround-112-wait) > 1e-6 || math.Abs(got.lost-1.5) > 1e-6 {
			t.Errorf("%s: %+v, %v", mode, got, err)
		}
	}
	one[0].Until, one[0].PeakMiB = 0.5, 4000
	if got, err := playTrace(n, "oom", one, 5); err != nil || got.turnaround != 50 || got.requeues+got.failures > 0 {
		t.Errorf("a failure for another reason: %+v, %v", got, err)
	}
}
