package sim

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/offer"
	"caelum/internal/place"
	"caelum/internal/trace"
)

// drawOffers draws a cluster of some nodes whose agents act through offers.
func drawOffers(t *rapid.T) (c Config, jobs []trace.Job) {
	c, boards := drawNodes(t)
	c.Policy = rapid.SampledFrom([]place.Policy{place.Reach, place.Lifetime{}, place.QLA{}}).Draw(t, "policy")
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
	w.Only(boards, false)
	return c, w.Jobs
}

func shortly(jobs []trace.Job) (text string) {
	for _, j := range jobs {
		text += fmt.Sprintf("%s@%v %s x%d/%d %vs; ", j.ID, j.Submit, j.Profile, j.Slices, j.Nodes, j.Duration)
	}
	return text
}

// Whatever slurmctld starts of the offers can be carved, and everybody starts, in a whole second.
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
			t.Fatalf(
				"of %d jobs %d started, %d at once, %d found what they wanted on offer",
				len(jobs),
				r.Started,
				r.Prompt,
				r.Found,
			)
		}
		stale += r.Found
		for k, s := range seen.all {
			if s.From != math.Floor(s.From) {
				t.Fatalf("slurmctld has %+v started between two looks at the queue", s)
			}
			for _, o := range seen.all[:k] {
				if s.GPU == o.GPU && s.From < o.To && o.From < s.To && s.Start < o.Start+o.Size &&
					o.Start < s.Start+s.Size {
					t.Fatalf("%+v and %+v", s, o)
				}
			}
		}
	})
	if !t.Failed() && stale == 0 {
		t.Error("nobody found what he wants on offer: the cases say nothing")
	}
}

// With exact ends whoever is at the head starts by the earliest time that was ever reserved for him, and the moment
// that offers and slurmctld take to start those for whom it was planned with him, and then him. Not so with qla, which
// may hold him again when the time has come, nor where jobs have several slices: slurmctld may give two nodes' offers
// to others in such a way that no node has enough left for one that was planned for, until the next plan.
func TestOffersKeepPromises(t *testing.T) {
	promised := 0
	rapid.Check(t, func(t *rapid.T) {
		c, jobs := drawOffers(t)
		if c.Discipline = EASY; c.Policy == (place.Policy)(place.QLA{}) {
			c.Policy = place.Lifetime{}
		}
		for k := range jobs {
			jobs[k].Slices = 1
		}
		s := newSimulation(c)
		first := map[*job]float64{}
		s.offers.watch = func(p offer.Plan) {
			if p.Reserved == nil || math.IsInf(p.Reserved.At, 1) {
				return
			}
			j := s.queue.at(p.Reserved.Job)
			if at, known := first[j]; !known || p.Reserved.At < at {
				first[j] = p.Reserved.At
			}
		}
		if err := s.play(slices.Values(jobs)); err != nil {
			t.Fatal(err)
		}
		for j, at := range first {
			promised++
			if late := j.started - at; late > float64(len(jobs))*(1+publishing) { // each job in front may take its turn
				t.Fatalf(
					"%s was to start at %v and started %v s later: %T, %d, nodes of %v: %s",
					j.ID,
					at,
					late,
					c.Policy,
					c.Discipline,
					c.Nodes,
					shortly(jobs),
				)
			}
		}
	})
	if !t.Failed() && promised == 0 {
		t.Error("nobody was promised anything: the cases say nothing")
	}
}

// Offers give a job to the first node that has its profile, and do not need to be planned for it: what is spare is
// given out by slurmctld alone.
func TestFoundOnOffer(t *testing.T) {
	c := Config{GPUs: gpus(t, "A100-40GB", 2), Policy: place.Reach, Discipline: EASY, Offers: true}
	jobs := []trace.Job{
		{ID: "first", Submit: 0, Duration: 100, Profile: "1g.5gb"}, // nothing has been published yet
		// the offers that follow its submission come after slurmctld's look
		{ID: "found", Submit: 50.95, Duration: 100, Profile: "1g.5gb"},
		{ID: "whole", Submit: 60, Duration: 10, Profile: "7g.40gb"},
	}
	var seen spans
	c.Observer = &seen
	r, err := Run(c, slices.Values(jobs))
	if err != nil {
		t.Fatal(err)
	}
	if r.Prompt != 3 || r.Found != 1 { // an idle GPU is offered in parts: more kinds
		t.Errorf("%d could start at once, %d of them found it on offer", r.Prompt, r.Found)
	}
	for k, from := range []float64{1, 51, 61} {
		if seen.all[k].From != from {
			t.Errorf("%+v, want it at %v", seen.all[k], from)
		}
	}
	if seen.all[0].GPU != seen.all[1].GPU {
		t.Errorf("the small ones are not together: %+v", seen.all)
	}
}
