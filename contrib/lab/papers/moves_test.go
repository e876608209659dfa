package papers

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// TestStopForHead checks the times of a job that is stopped because another that needs the whole GPU would otherwise
// wait for almost three hours. The stopped job restarts once the other has ended and the requeue delay has passed.
func TestStopForHead(t *testing.T) {
	jobs := []trace.Job{
		{ID: "long", Profile: "1g.5gb", Duration: 10000},
		{ID: "whole", Profile: "7g.40gb", Submit: 10, Duration: 100},
	}
	for _, test := range []struct {
		cost float64
		rest float64 // the expected run time of the second run
	}{{math.Inf(1), 10000}, {4, 9994}, {0, 9990}} {
		var ran spans
		r, err := sim.Run(sim.Config{
			GPUs: gpus(t, "A100-40GB", 1), Policy: policy(t, "best-fit"), Observer: &ran,
			Scheduler: Moves{Rule: StopForHead, Cost: test.cost}.Scheduler, Moves: true,
		}, slices.Values(jobs))
		if err != nil {
			t.Fatal(err)
		}
		var got [][2]float64
		for _, s := range ran.all {
			got = append(got, [2]float64{s.From, s.To})
		}
		want := [][2]float64{{0, 10}, {10, 110}, {131, 131 + test.rest}}
		if !slices.Equal(got, want) || r.Moved != 1 || r.Started != 2 {
			t.Errorf("cost %v: the jobs ran at %v instead of %v, %d moved", test.cost, got, want, r.Moved)
		}
		if turnaround := 100 + 131 + test.rest; math.Abs(r.Turnaround-turnaround) > 1e-6 {
			t.Errorf("cost %v: turnaround %v instead of %v", test.cost, r.Turnaround, turnaround)
		}
	}
}

// TestMoveForHead checks that a job is moved only if it fits elsewhere, and that it then restarts beside the head of
// the queue after the requeue delay.
func TestMoveForHead(t *testing.T) {
	for _, test := range []struct {
		profile string
		want    [][2]float64
	}{
		{"7g.40gb", [][2]float64{{0, 10000}, {10000, 11000}}},
		{"4g.20gb", [][2]float64{{0, 10}, {10, 1010}, {131, 10131}}},
	} {
		var ran spans
		r, err := sim.Run(sim.Config{
			GPUs: gpus(t, "A100-40GB", 1), Policy: policy(t, "first-fit"), Observer: &ran,
			Scheduler: Moves{Rule: MoveForHead, Cost: math.Inf(1)}.Scheduler, Moves: true,
		}, slices.Values([]trace.Job{
			{ID: "long", Profile: "1g.5gb", Duration: 10000},
			{ID: "large", Profile: test.profile, Submit: 10, Duration: 1000},
		}))
		if err != nil {
			t.Fatal(err)
		}
		var got [][2]float64
		for _, s := range ran.all {
			got = append(got, [2]float64{s.From, s.To})
		}
		slices.SortFunc(got, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
		if !slices.Equal(got, test.want) || r.Moved != len(test.want)-2 {
			t.Errorf("%s: the jobs ran at %v instead of %v, %d moved", test.profile, got, test.want, r.Moved)
		}
	}
}

// TestStopForHeadNotWorthwhile checks that no job is stopped if the head of the queue waits less than the requeue
// takes.
func TestStopForHeadNotWorthwhile(t *testing.T) {
	jobs := []trace.Job{
		{ID: "short", Profile: "1g.5gb", Duration: 130},
		{ID: "whole", Profile: "7g.40gb", Submit: 10, Duration: 100},
	}
	for beta, want := range map[float64]int{0: 0, 20: 1} {
		r, err := sim.Run(sim.Config{
			GPUs: gpus(t, "A100-40GB", 1), Policy: policy(t, "best-fit"),
			Scheduler: Moves{Rule: StopForHead, Beta: beta}.Scheduler, Moves: true,
		}, slices.Values(jobs))
		if err != nil || r.Moved != want {
			t.Errorf("beta %v: %d jobs stopped instead of %d, %v", beta, r.Moved, want, err)
		}
	}
}

// TestMovesConserveWork checks, with random workloads and all rules, that the slices of two jobs never overlap, that
// each job runs for its duration and for the time that it loses, and that the lost time is limited by the cost.
func TestMovesConserveWork(t *testing.T) {
	for _, c := range []struct {
		rule  MoveRule
		queue sim.Discipline
	}{
		{MoveAfterDeparture, sim.FIFO},
		{MoveAfterDeparture, sim.EASY},
		{MoveAfterDeparture, sim.Loss},
		{MoveAfterRejection, sim.FIFO},
		{MoveAfterRejection, sim.Loss},
		{StopForHead, sim.FIFO},
		{StopForHead, sim.EASY},
		{MoveForHead, sim.FIFO},
		{MoveForHead, sim.EASY},
	} {
		moved := 0
		for seed := uint64(1); seed <= 4; seed++ {
			for _, cost := range []float64{0, 60, math.Inf(1)} {
				moved += conserves(t, c.rule, c.queue, cost, seed)
			}
		}
		if moved == 0 {
			t.Errorf("rule %d, queue %d: no job was moved, so the test checks nothing", c.rule, c.queue)
		}
	}
}

func conserves(t *testing.T, rule MoveRule, queue sim.Discipline, cost float64, seed uint64) (moved int) {
	t.Helper()
	var ran spans
	workload := trace.Churn{Mix: trace.Mixes[0].Mix, Jobs: 200, Load: 0.9, GPUs: 4, Seed: seed}
	jobs := slices.Collect(workload.All())
	r, err := sim.Run(sim.Config{
		GPUs: gpus(t, "A100-40GB", 4), Policy: policy(t, "best-fit"), Discipline: queue, Observer: &ran,
		Scheduler: Moves{Rule: rule, Cost: cost}.Scheduler, Moves: true,
	}, slices.Values(jobs))
	if err != nil {
		t.Fatal(err)
	}
	if r.Started+r.Refused != len(jobs) {
		t.Errorf("%d jobs started and %d were rejected, of %d", r.Started, r.Refused, len(jobs))
	}
	took, size := map[string]float64{}, map[string]int{}
	for k, a := range ran.all {
		took[a.Job] += a.To - a.From
		size[a.Job] = a.Size
		for _, b := range ran.all[:k] {
			if a.GPU == b.GPU && a.Start < b.Start+b.Size && b.Start < a.Start+a.Size &&
				a.From < b.To-1e-6 && b.From < a.To-1e-6 {
				t.Fatalf("rule %d, seed %d: %+v overlaps %+v", rule, seed, a, b)
			}
		}
	}
	lost := 0.0
	for _, j := range jobs {
		if seconds, started := took[j.ID]; started {
			if seconds < j.Duration-1e-6 {
				t.Errorf("job %s ran for %v s instead of at least %v s", j.ID, seconds, j.Duration)
			}
			lost += (seconds - j.Duration) * float64(size[j.ID])
		}
	}
	// Lost is a share of the busy time of all units.
	counted := r.Lost * r.Utilisation * r.Makespan * float64(4*8)
	if math.Abs(lost-counted) > 1e-3 || cost == 0 && lost > 1e-3 || lost > cost*float64(r.Moved)*8+1e-3 {
		t.Errorf("rule %d, queue %d, cost %v, seed %d: the jobs lost %v unit-seconds instead of %v; %d moves",
			rule, queue, cost, seed, lost, counted, r.Moved)
	}
	return r.Moved
}
