package papers

import (
	"math"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// TestOutOfMemory checks that a job that runs out of memory returns to the queue after a delay, and requests more
// memory after each failure until the memory is sufficient.
func TestOutOfMemory(t *testing.T) {
	requeued := 0
	rapid.Check(t, func(t *rapid.T) {
		models, jobs := drawCase(t, 12)
		c := drawConfig(t, models)
		if c.Moves {
			c.Scheduler, c.Moves = nil, false
		}
		var seen spans
		c.Observer = &seen
		c.Memory = Memory{
			Models: models[:1],
			Error:  rapid.Float64Range(0, 2).Draw(t, "error"),
			Margin: rapid.Float64Range(0, 1).Draw(t, "margin"),
			Seed:   7,
		}
		r, err := sim.Run(c, slices.Values(traceJobs(jobs)))
		if err != nil {
			if c.Static != nil || c.Policy != nil { // a job might not fit
				t.Skip(err)
			}
			t.Fatal(err)
		}
		requeued += r.Requeued
		if r.Submitted != len(jobs) || r.Started+r.Refused != len(jobs) || c.Discipline != sim.Loss && r.Refused > 0 {
			t.Fatalf("of %d jobs %d started and %d were rejected", len(jobs), r.Started, r.Refused)
		}
		if c.Policy == nil {
			return
		}
		memory := func(profile string) float64 {
			p, _ := models[0].ProfileIndex(profile)
			return models[0].Profiles[p].Memory()
		}
		last := map[string]sim.Span{}
		for _, s := range seen.all {
			if before, again := last[s.Job]; again &&
				(s.From < before.To+sim.RequeueDelay || memory(s.Profile) <= memory(before.Profile)) {
				t.Fatalf("%+v, then %+v", before, s)
			}
			last[s.Job] = s
		}
		if c.Discipline == sim.Loss {
			return
		}
		for k, j := range jobs {
			id := strconv.Itoa(k)
			if s := last[id]; math.Abs(s.To-s.From-j.Duration) > 1e-9 {
				t.Fatalf("the last run of %+v is from %v to %v", j, s.From, s.To)
			}
			if memory(last[id].Profile) < below(models[0], memory(j.Profile)) {
				t.Fatalf("%+v did not run out of memory on %s", j, last[id].Profile)
			}
		}
	})
	if !t.Failed() && !testing.Short() && requeued == 0 {
		t.Error("no job ran out of memory: the cases do not test enough")
	}
}

// TestForeseenExactly checks predictions that have neither error nor margin. Jobs must request exactly the memory that
// they need, and the waits must be the same as without predictions.
func TestForeseenExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		models, jobs := drawCase(t, 12)
		c := drawConfig(t, models)
		if c.Moves {
			c.Scheduler, c.Moves = nil, false
		}
		want, err1 := waits(c, traceJobs(jobs))
		c.Memory = Memory{Models: models[:1], Seed: rapid.Uint64().Draw(t, "seed")}
		got, err2 := waits(c, traceJobs(jobs))
		if (err1 == nil) != (err2 == nil) || !slices.Equal(got, want) {
			t.Fatalf("%v (%v), not %v (%v)", got, err2, want, err1)
		}
	})
}

// TestPeakThatIsKnown checks that a job runs out of memory according to the peak in the workload, which is 9,000 MiB.
// A prediction of half of it gives the job a 1g.5gb, which is too small.
func TestPeakThatIsKnown(t *testing.T) {
	job := trace.Job{ID: "a", Duration: 1000, MemoryMiB: 9000}
	c := sim.Config{GPUs: gpus(t, "A100-40GB", 1), Policy: policy(t, "reach")}
	for seed := range uint64(200) {
		var seen spans
		c.Observer, c.Memory = &seen, Memory{Models: c.GPUs, Error: 0.7, Seed: seed}
		if _, err := sim.Run(c, slices.Values([]trace.Job{job})); err != nil {
			t.Fatal(err)
		}
		if len(seen.all) != 2 {
			continue
		}
		first, then := seen.all[0], seen.all[1]
		if first.Profile != "1g.5gb" || first.To >= 1000 || then.Profile != "1g.10gb" || then.From != first.To+121 ||
			then.To != then.From+1000 {
			t.Errorf("%+v, then %+v", first, then)
		}
		if want := then.From - (first.To - first.From); math.Abs(seen.waited[0]-want) > 1e-9 {
			t.Errorf("waited %v, want %v", seen.waited[0], want)
		}
		return
	}
	t.Error("no seed predicted half of the peak")
}
