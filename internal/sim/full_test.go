package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim/trace"
)

// fullGPUs returns n H100-80GB that may be full.
func fullGPUs(t *testing.T, n int) []*mig.Model {
	t.Helper()
	b, err := mig.ModelByName("H100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Repeat([]*mig.Model{b.Select(mig.Plain).WithFull(80 << 10)}, n)
}

// startsOf returns the start of each job.
func startsOf(t *testing.T, c Config, jobs []trace.Job) (map[string]float64, *Result) {
	t.Helper()
	var seen spans
	c.Observer = &seen
	r, err := Run(c, slices.Values(jobs))
	if err != nil {
		t.Fatal(err)
	}
	from := map[string]float64{}
	for _, s := range seen.all {
		from[s.Job] = s.From
	}
	return from, r
}

// TestSwitch checks when the MIG mode is switched. A full GPU stays full until a slice needs it.
func TestSwitch(t *testing.T) {
	c := Config{GPUs: fullGPUs(t, 1), Policy: place.Lifetime{}, Create: 1, Destroy: 2, Switch: 5}
	from, r := startsOf(t, c, []trace.Job{
		{ID: "a", Submit: 0, Duration: 10, Profile: mig.Full},    // off: 5 s
		{ID: "b", Submit: 20, Duration: 10, Profile: mig.Full},   // still off
		{ID: "c", Submit: 40, Duration: 10, Profile: "1g.10gb"},  // on: 5 s, and 1 s to create the slice
		{ID: "d", Submit: 60, Duration: 10, Profile: "2g.20gb"},  // 1 s
		{ID: "e", Submit: 80, Duration: 10, Profile: mig.Full},   // two idle slices: 4 s, off: 5 s
		{ID: "f", Submit: 100, Duration: 10, Profile: "1g.10gb"}, // on: 5 s, 1 s
	})
	for id, want := range map[string]float64{"a": 5, "b": 20, "c": 46, "d": 61, "e": 89, "f": 106} {
		if from[id] != want {
			t.Errorf("job %s started at %v, want %v", id, from[id], want)
		}
	}
	if r.Switched != 4 || r.Created != 3 || r.Destroyed != 2 || r.Reused != 1 {
		t.Errorf("%d switched, %d created, %d destroyed, %d reused", r.Switched, r.Created, r.Destroyed, r.Reused)
	}
	c.Create, c.Destroy, c.Switch = 0, 0, 0
	if _, r = startsOf(t, c, []trace.Job{
		{ID: "a", Duration: 10, Profile: mig.Full}, {ID: "b", Submit: 20, Duration: 10, Profile: mig.Full},
	}); r.Switched != 1 || r.Reused != 1 || r.Destroyed != 0 {
		t.Errorf("without times: %d switched, %d reused, %d destroyed", r.Switched, r.Reused, r.Destroyed)
	}
}

// naive is a policy that ignores the MIG mode: it chooses the first possible placement on the first GPU.
type naive struct{}

// Choose implements [place.Policy].
func (naive) Choose(s *place.Situation, r place.Request) place.Choice {
	for k := range s.Pool.Len() {
		g := s.Pool.GPU(k)
		p, ok := g.Model.ProfileIndex(r.Profile)
		if !ok {
			continue
		}
		for i := range (g.Model.Open(g.Busy, g.Blocked) & g.Model.OfProfile(p)).Indices() {
			return place.Choice{Verdict: place.Here, GPU: k, Placement: i}
		}
	}
	return place.Choice{}
}

// TestFewSwitches checks the number of switches for jobs that alternately need a full GPU and a slice. If the jobs do
// not overlap, the policies switch one GPU once, whereas the naive policy switches a GPU for each job. If the jobs
// overlap at random, some switches are necessary.
func TestFewSwitches(t *testing.T) {
	const jobs = 400
	alternating := func(every float64, rng *rand.Rand) (all []trace.Job) {
		at := 0.0
		for k := range jobs {
			j := trace.Job{ID: fmt.Sprint(k), Submit: at, Duration: 8, Profile: mig.Full}
			if k%2 == 1 {
				j.Profile = "1g.10gb"
			}
			if at += every; rng != nil {
				at += every * (rng.ExpFloat64() - 1)
				j.Duration = 8 * rng.ExpFloat64()
			}
			all = append(all, j)
		}
		return all
	}
	run := func(p place.Policy, all []trace.Job) int {
		_, r := startsOf(t, Config{GPUs: fullGPUs(t, 4), Policy: p, Create: 0.1, Destroy: 0.1, Switch: 1}, all)
		return r.Switched
	}
	apart := alternating(20, nil)
	random := alternating(5, rand.New(rand.NewPCG(1, 2)))
	if n := run(naive{}, apart); n != jobs {
		t.Errorf("naive: %d switches for %d jobs that do not overlap", n, jobs)
	}
	most := run(naive{}, random)
	for _, name := range place.Names() {
		if name == "grmu" { // GRMU's baskets take precedence over the acquisition
			continue
		}
		if n := run(policy(t, name), apart); n != 1 {
			t.Errorf("%s: %d switches for jobs that do not overlap, want 1", name, n)
		}
		n := run(policy(t, name), random)
		t.Logf("%s: %d switches for %d random jobs, naive %d", name, n, jobs, most)
		if n > most/4 {
			t.Errorf("%s: %d switches, naive %d", name, n, most)
		}
	}
}

// TestFixedFullGPUs checks a fixed layout with a full GPU. Only the full GPU is sufficient for a job that needs the
// full profile, and slices use it last.
func TestFixedFullGPUs(t *testing.T) {
	c := Config{GPUs: fullGPUs(t, 3)}
	whole, _ := OneInstance(c.GPUs[0])
	full := c.GPUs[0].Full()
	c.Static = []mig.Layout{full, whole, whole}
	from, r := startsOf(t, c, []trace.Job{
		{ID: "a", Duration: 10, Profile: "7g.80gb"},
		{ID: "b", Duration: 10, Profile: "1g.10gb"},
		{ID: "c", Duration: 10, Profile: mig.Full},
		{ID: "d", Submit: 1, Duration: 10, Profile: mig.Full},
	})
	if from["a"] != 0 || from["b"] != 0 || from["c"] != 0 || from["d"] != 10 || r.Switched != 0 {
		t.Errorf("%v, %d switched", from, r.Switched)
	}
	pair := trace.Job{ID: "pair", Duration: 10, Profile: mig.Full, Slices: 2}
	if _, err := Run(c, slices.Values([]trace.Job{pair})); !errors.Is(err, ErrNever) {
		t.Errorf("two full GPUs: %v", err)
	}
	c.Static[1] = full
	if from, _ = startsOf(t, c, []trace.Job{pair}); from["pair"] != 0 {
		t.Error(from)
	}
}

// TestQuotaOfFullGPUs checks that jobs for full GPUs beyond WholeShare start after the jobs for slices, with and
// without offers.
func TestQuotaOfFullGPUs(t *testing.T) {
	jobs := []trace.Job{{ID: "first", Duration: 100, Profile: "7g.80gb", Slices: 4}}
	for k := range 4 {
		jobs = append(jobs, trace.Job{ID: fmt.Sprint("full", k), Submit: 1, Duration: 100, Profile: mig.Full})
	}
	for k := range 4 {
		jobs = append(jobs, trace.Job{ID: fmt.Sprint("slice", k), Submit: 2, Duration: 100, Profile: "7g.80gb"})
	}
	for _, offers := range []bool{false, true} {
		for _, d := range []Discipline{FIFO, EASY} {
			for share, want := range map[float64]int{0: 0, 0.25: 1, 0.5: 2, 1: 4} {
				c := Config{GPUs: fullGPUs(t, 4), Nodes: []int{4}, Policy: place.Lifetime{}, Discipline: d,
					Offers: offers, WholeShare: share}
				from, _ := startsOf(t, c, jobs)
				early := 0
				for id, at := range from {
					if strings.HasPrefix(id, "full") && at < 150 {
						early++
					}
				}
				if early != want {
					t.Errorf("offers %v, discipline %d, share %v: %d full GPUs at first, want %d: %v",
						offers, d, share, early, want, from)
				}
			}
		}
	}
}

// TestQuotaRequiresPlan checks the configurations that do not support WholeShare, and invalid times.
func TestQuotaRequiresPlan(t *testing.T) {
	for _, c := range []Config{
		{Discipline: Loss, Policy: place.Lifetime{}, WholeShare: 0.5},
		{WholeShare: 0.5, Static: []mig.Layout{0}},
		{Policy: place.Lifetime{}, Switch: -1},
	} {
		c.GPUs = fullGPUs(t, 1)
		if _, err := Run(c, slices.Values([]trace.Job(nil))); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}
