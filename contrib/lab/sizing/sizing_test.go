package main

import (
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

func a100(t *testing.T) *mig.Model {
	t.Helper()
	c, err := newCluster("A100-40GB", 4, "offers")
	if err != nil {
		t.Fatal(err)
	}
	return c.model
}

// TestWorst checks that worst averages the largest 5% of the slowdowns, without those of jobs that are too short.
func TestWorst(t *testing.T) {
	var jobs []trace.Job
	var turnarounds []float64
	for k := range 40 {
		jobs = append(jobs, trace.Job{Duration: 100})
		turnarounds = append(turnarounds, 100*float64(k+1)) // slowdowns 1 to 40
	}
	jobs, turnarounds = append(jobs, trace.Job{Duration: 9}), append(turnarounds, 9000)
	if got := worst(turnarounds, jobs); got != (39+40)/2. {
		t.Errorf("the two worst of 40 jobs: %v", got)
	}
	if got := worst(turnarounds[:3], jobs[:3]); got != 3 {
		t.Errorf("the worst of three jobs: %v", got)
	}
	if got := worst(turnarounds[40:], jobs[40:]); got != 0 {
		t.Errorf("only a short job: %v", got)
	}
}

func TestQuantile(t *testing.T) {
	var all []float64
	for k := range 100 {
		all = append(all, float64(100-k))
	}
	if got := quantile(all, 0.95); got != 95 || all[0] != 100 {
		t.Errorf("p95 of 1 to 100: %v", got)
	}
	if got := quantile([]float64{3, 7}, 0.95); got != 7 {
		t.Errorf("p95 of two values: %v", got)
	}
}

// TestSpeedsOf checks the speeds of jobs that do and do not benefit from more slices, and the required memory.
func TestSpeedsOf(t *testing.T) {
	b := a100(t)
	for _, c := range []struct {
		busy, memory float64
		want         map[string]float64
	}{
		{1, 10_000, map[string]float64{"3g.20gb": 3.5 / 7.5, "4g.20gb": 4 / 7.5, "7g.40gb": 1}},
		{0, 5000, map[string]float64{"1g.10gb": 1, "2g.10gb": 1, "3g.20gb": 1, "4g.20gb": 1, "7g.40gb": 1}},
		{0.5, 30_000, map[string]float64{"7g.40gb": 1}},
	} {
		got := speedsOf(b, c.busy, c.memory)
		for profile, speed := range c.want {
			if math.Abs(got[profile]-speed) > 1e-12 {
				t.Errorf("busy %v: speed %v on %s, want %v", c.busy, got[profile], profile, speed)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("busy %v, %v MiB: %v", c.busy, c.memory, got)
		}
	}
}

// TestDraw checks the means of the drawn busy shares, run times and times between submissions. It also checks that each
// profile is the smallest sufficient one for an equal share of the jobs.
func TestDraw(t *testing.T) {
	b := a100(t)
	const n = 20_000
	for _, c := range []struct {
		uniform bool
		mean    float64
	}{{false, 0.8}, {true, 0.5}} {
		jobs := drawing{b, n, 60, 700, c.uniform}.draw(1)
		busy, run, counted := 0.0, 0.0, 0
		sufficient := map[int]int{} // jobs by the number of profiles on which they run
		for _, j := range jobs {
			run += j.Duration / n
			sufficient[len(j.Speed)]++
			if s := j.Speed["1g.5gb"]; s > 0 { // s = 1 - b + b/7.5
				busy, counted = busy+(1-s)*7.5/6.5, counted+1
			}
		}
		if got := busy / float64(counted); math.Abs(got-c.mean) > 0.02 {
			t.Errorf("uniform %v: the mean busy share is %v", c.uniform, got)
		}
		if gap := jobs[n-1].Submit / n; math.Abs(run-700) > 20 || math.Abs(gap-60) > 2 {
			t.Errorf("mean run time %v s, one job every %v s", run, gap)
		}
		for profiles, of := range map[int]float64{6: 1, 5: 2, 3: 2, 1: 1} {
			if got := float64(sufficient[profiles]) / n; math.Abs(got-of/6) > 0.02 {
				t.Errorf("the share of the jobs that run on %d profiles is %v", profiles, got)
			}
		}
	}
}

// TestEstimate checks that speeds estimated from exact runs become more accurate with more runs, and that the speed of
// a job without runs satisfies max_slowdown.
func TestEstimate(t *testing.T) {
	b := a100(t)
	if got := estimate(b, nil, "1g.5gb"); got < 1/maxSlowdown || got > 1.001/maxSlowdown {
		t.Errorf("1g.5gb without runs: %v", got)
	}
	for _, busy := range []float64{0.3, 0.95} {
		truth := speedsOf(b, busy, 0)
		var runs []predict.Run
		off := []float64{}
		for k := range 10 {
			runs = append(runs,
				runOf(b, uint32(2*k+1), "1g.5gb", 100/truth["1g.5gb"]), runOf(b, uint32(2*k+2), "7g.40gb", 100))
			off = append(off, math.Abs(math.Log(estimate(b, runs, "1g.5gb")/truth["1g.5gb"])))
		}
		if off[9] > 0.1 || off[9] > off[0] {
			t.Errorf("busy share %v: errors %v", busy, off)
		}
	}
}

// TestObserved checks the profiles of the two runs and the scatter of their run times.
func TestObserved(t *testing.T) {
	b := a100(t)
	j := trace.Job{Duration: 100, Speed: speedsOf(b, 1, 5000)}
	sum, squares := 0.0, 0.0
	const n = 5000
	for k := range n {
		runs := observed(b, j, rand.New(rand.NewPCG(1, uint64(k))))
		if runs[0].Profile != "1g.10gb" || runs[1].Profile != "7g.40gb" || len(runs) != 2 {
			t.Fatalf("runs on %v", runs)
		}
		d := math.Log(runs[0].Seconds / 750)
		sum, squares = sum+d/n, squares+d*d/n
	}
	if math.Abs(sum) > 0.02 || math.Abs(math.Sqrt(squares)-timeError) > 0.02 {
		t.Errorf("the logarithms of run times have a mean of %v and a standard deviation of %v",
			sum, math.Sqrt(squares))
	}
}

// TestLearner checks that the learner uses only runs of the submitted job that ended before the submission.
func TestLearner(t *testing.T) {
	b := a100(t)
	l := &learner{b, map[string][]finished{}}
	for k, profile := range []string{"1g.5gb", "7g.40gb", "1g.5gb", "7g.40gb"} {
		l.ran(sim.Span{Job: "a/0", Profile: profile, From: 100 * float64(k), To: 100*float64(k) + 50}) // equally fast
	}
	early := l.speed(trace.Job{ID: "a/4", Submit: 149}, "1g.5gb")
	late := l.speed(trace.Job{ID: "a/4", Submit: 350}, "1g.5gb")
	other := l.speed(trace.Job{ID: "b/0", Submit: 1000}, "1g.5gb")
	if early != other || late < 1.5*early {
		t.Errorf("speed on 1g.5gb: %v after one run, %v after four runs, %v for another job", early, late, other)
	}
}

// TestJudge checks which cells are bold and which are listed.
func TestJudge(t *testing.T) {
	table := newTable(io.Discard, "cell")
	var got []string
	for _, figure := range []float64{0.9, 1.01, 1.04, 1.06} {
		got = append(got, table.judge("x", "cell", figure, 2, 1))
	}
	want := []string{"x", "x", "x", "**x**"}
	if !slices.Equal(got, want) || len(table.bad) != 2 || table.of != 4 || table.most != 1.06 {
		t.Errorf("%q, %+v", got, table)
	}
	if !strings.Contains(table.bad[0], "1.040") {
		t.Errorf("listed: %q", table.bad)
	}
}
