package sim

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/sim/trace"
)

// drawOffers returns a random cluster of several nodes with offers, and random jobs for it.
func drawOffers(t *rapid.T) (c Config, jobs []trace.Job) {
	c, models := drawNodes(t)
	c.Policy = rapid.SampledFrom([]place.Policy{place.Reach, place.Lifetime{}}).Draw(t, "policy")
	c.Discipline = rapid.SampledFrom([]Discipline{FIFO, EASY}).Draw(t, "discipline")
	c.Offers = true
	w := trace.Workload{}
	at := 0.0
	for k := range rapid.IntRange(1, 14).Draw(t, "jobs") {
		j := drawJob(t, c.GPUs)
		at += rapid.SampledFrom([]float64{0, 0.05, 0.5, 1, 2.95, 30}).Draw(t, "later")
		j.ID, j.Submit = string(rune('a'+k)), at
		j.Duration = rapid.SampledFrom([]float64{0.01, 1, 10, 100, 1000}).Draw(t, "runs")
		w.Jobs = append(w.Jobs, j)
	}
	w.Only(models, false)
	return c, w.Jobs
}

func shortly(jobs []trace.Job) (text string) {
	for _, j := range jobs {
		text += fmt.Sprintf("%s@%v %s x%d/%d %vs; ", j.ID, j.Submit, j.Profile, j.Slices, j.Nodes, j.Duration)
	}
	return text
}

// TestOffers checks that the slices of all jobs that slurmctld starts on offers can be carved. All jobs must start,
// each at a whole second.
func TestOffers(t *testing.T) {
	stale := 0
	rapid.Check(t, func(t *rapid.T) {
		c, jobs := drawOffers(t)
		var seen spans
		c.Observer = &seen
		r, err := Run(c, slices.Values(jobs))
		if err != nil {
			t.Fatalf("%v: %T, %d, nodes of %v: %s", err, c.Policy, c.Discipline, c.Nodes, shortly(jobs))
		}
		if r.Started != len(jobs) || r.Found > r.Prompt || r.Prompt > len(jobs) {
			t.Fatalf("of %d jobs %d started, %d could start at their submission, %d of them on existing offers",
				len(jobs), r.Started, r.Prompt, r.Found)
		}
		stale += r.Found
		for k, s := range seen.all {
			if s.From != math.Floor(s.From) {
				t.Fatalf("slurmctld started %+v between two passes", s)
			}
			for _, o := range seen.all[:k] {
				if s.GPU == o.GPU && s.From < o.To && o.From < s.To && s.Start < o.Start+o.Size &&
					o.Start < s.Start+s.Size {
					t.Fatalf("%+v and %+v", s, o)
				}
			}
		}
	})
	if !t.Failed() && !testing.Short() && stale == 0 {
		t.Error("no job found its slices on offer: the cases do not test enough")
	}
}

// TestOffersKeepReservations checks a bound on the start of the job at the head of the queue, with exact ends. The
// bound is the earliest time that was ever reserved for it, plus the delay of the offers and of slurmctld for this job
// and those that were planned together with it. The test excludes jobs with several slices, because slurmctld may
// allocate two nodes' offers such that neither has enough slices for a planned job until the next plan.
func TestOffersKeepReservations(t *testing.T) {
	reserved := 0
	rapid.Check(t, func(t *rapid.T) {
		c, jobs := drawOffers(t)
		c.Discipline = EASY
		c.WholeShare = 1 // with 0, jobs for slices may be placed before a job for full GPUs that has a reservation
		for k := range jobs {
			jobs[k].Slices = 1
		}
		s := newSimulation(c)
		first := map[*Job]float64{}
		s.offers.onPlan = func(p offer.Plan) {
			if p.Reserved == nil || math.IsInf(p.Reserved.At, 1) {
				return
			}
			j := s.queue.at(p.Reserved.Job)
			if at, known := first[j]; !known || p.Reserved.At < at {
				first[j] = p.Reserved.At
			}
		}
		if err := s.submitAll(slices.Values(jobs)); err != nil {
			t.Fatal(err)
		}
		for j, at := range first {
			reserved++
			if late := j.started - at; late > float64(len(jobs))*(1+publishing) { // one publication per job
				t.Fatalf("%s: a start at %v was reserved, and it started %v s later: %T, %d, nodes of %v: %s",
					j.ID, at, late, c.Policy, c.Discipline, c.Nodes, shortly(jobs))
			}
		}
	})
	if !t.Failed() && !testing.Short() && reserved == 0 {
		t.Error("no job had a reservation: the cases do not test enough")
	}
}

// TestFoundOnOffer checks that a job starts on the first node that offers its profile, even if the plan has this
// offer for another job, or for none.
func TestFoundOnOffer(t *testing.T) {
	c := Config{GPUs: gpus(t, "A100-40GB", 2), Policy: place.Reach, Discipline: EASY, Offers: true}
	jobs := []trace.Job{
		{ID: "first", Submit: 0, Duration: 100, Profile: "1g.5gb"}, // nothing has been published yet
		// slurmctld reads the queue before the agents publish new offers.
		{ID: "found", Submit: 50.95, Duration: 100, Profile: "1g.5gb"},
		{ID: "whole", Submit: 60, Duration: 10, Profile: "7g.40gb"},
	}
	var seen spans
	c.Observer = &seen
	r, err := Run(c, slices.Values(jobs))
	if err != nil {
		t.Fatal(err)
	}
	if r.Prompt != 3 || r.Found != 1 { // an idle GPU is offered as several profiles
		t.Errorf("%d could start at their submission, %d of them on existing offers", r.Prompt, r.Found)
	}
	for k, from := range []float64{1, 51, 61} {
		if seen.all[k].From != from {
			t.Errorf("%+v, want it at %v", seen.all[k], from)
		}
	}
	if seen.all[0].GPU != seen.all[1].GPU {
		t.Errorf("the small slices are on different GPUs: %+v", seen.all)
	}
}

// TestFixedLayoutsWithOffers checks that with offers, slurmctld starts jobs on fixed layouts only at whole seconds, as
// it does on offers, and that the reference that moves jobs does not support offers.
func TestFixedLayoutsWithOffers(t *testing.T) {
	c := Config{GPUs: gpus(t, "A100-40GB", 1), Discipline: EASY, Offers: true}
	whole, _ := OneInstance(c.GPUs[0])
	c.Static = Pattern{whole}.Deal(1)
	jobs := []trace.Job{
		{ID: "first", Submit: 0, Duration: 10.5, Profile: "1g.5gb"},
		{ID: "second", Submit: 0.2, Duration: 5, Profile: "1g.5gb"},
		{ID: "third", Submit: 100.4, Duration: 5, Profile: "1g.5gb"},
	}
	var seen spans
	c.Observer = &seen
	if _, err := Run(c, slices.Values(jobs)); err != nil {
		t.Fatal(err)
	}
	for k, from := range []float64{1, 12, 101} {
		if seen.all[k].From != from {
			t.Errorf("%+v, want it at %v", seen.all[k], from)
		}
	}
	c.Static = nil
	if _, err := Run(c, slices.Values(jobs)); err == nil {
		t.Error("the reference accepts offers")
	}
}
