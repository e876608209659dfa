package papers

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// drawModels returns one to three GPUs of one or two random models.
func drawModels(t *rapid.T) []*mig.Model {
	kinds := rapid.SliceOfN(rapid.SampledFrom(plainModels), 1, 2).Draw(t, "kinds")
	return rapid.SliceOfN(rapid.SampledFrom(kinds), 1, 3).Draw(t, "GPUs")
}

var plainModels = func() (all []*mig.Model) {
	for _, b := range mig.Models() {
		all = append(all, b.Select(mig.Plain))
	}
	return all
}()

// drawNeeds returns a random job. It needs a profile of one of the GPU models, or a share of a GPU of any model, has
// one to three slices, and may run slower on some profiles. The speeds and sizes have few different values, so that
// several subsets often have the same throughput. The durations differ greatly.
func drawNeeds(t *rapid.T, models []*mig.Model, submit float64) trace.Job {
	j := trace.Job{Submit: submit, Slices: max(0, rapid.IntRange(-6, 3).Draw(t, "slices"))}
	j.Duration = rapid.SampledFrom([]float64{1, 2, 5, 50, 500}).Draw(t, "duration")
	if rapid.Bool().Draw(t, "named") {
		j.Profile = rapid.SampledFrom(rapid.SampledFrom(models).Draw(t, "of").Profiles).Draw(t, "profile").Name
	} else {
		j.Compute = rapid.SampledFrom([]float64{0.1, 0.25, 0.4, 0.5, 1}).Draw(t, "compute")
	}
	if rapid.Bool().Draw(t, "slower") {
		j.Speed = map[string]float64{}
		for _, b := range models {
			for _, p := range b.Profiles {
				j.Speed[p.Name] = rapid.SampledFrom([]float64{0.1, 0.3, 0.5, 0.7, 1}).Draw(t, "speed")
			}
		}
	}
	return j
}

// cluster is the state of the GPUs and the queue in a test.
type cluster struct {
	*batches
	place.Situation
	queue  []waiting
	recent place.Recent
	speeds []float64 // for each GPU, the sum of the relative speeds of its running jobs
}

// newWaiting converts a job of the workload. It returns false if no GPU has a profile for the job.
func (c *cluster) newWaiting(t trace.Job) (w waiting, ok bool) {
	w.Job = t
	profile := ""
	for _, b := range c.kinds {
		name, fits := t.On(b)
		if !fits {
			name = ""
		}
		w.profiles = append(w.profiles, name)
		profile = cmp.Or(profile, name)
	}
	if profile != "" {
		w.runTime = t.Takes(profile)
	}
	return w, profile != ""
}

// occupy creates random instances on the GPUs, and the jobs that hold them. Two GPUs often have the same instances.
func (c *cluster) occupy(t *rapid.T) {
	for k, b := range c.gpus {
		g := place.GPU{Model: b}
		var busy mig.Layout
		if k > 0 && c.gpus[k-1] == b && rapid.Bool().Draw(t, "the same again") {
			busy, g.Idle = c.Pool.GPU(k-1).Busy, c.Pool.GPU(k-1).Idle
		} else {
			busy, g.Idle = drawInstances(t, b)
		}
		c.Pool.Set(k, g)
		first := true
		for i := range busy.Indices() {
			c.Pool.Start(k, i, c.Now+rapid.SampledFrom([]float64{0.5, 1, 10, 1000}).Draw(t, "end"))
			if first || rapid.IntRange(0, 3).Draw(t, "the same job's") > 0 {
				j, _ := c.newWaiting(drawNeeds(t, []*mig.Model{b}, 0))
				c.speeds[k] += speedOn(&j, j.profiles[c.kind(k)])
			}
			first = false
		}
	}
}

func drawInstances(t *rapid.T, b *mig.Model) (busy, idle mig.Layout) {
	for i := range rapid.SampledFrom(b.Layouts()).Draw(t, "instances").Indices() {
		switch rapid.IntRange(0, 4).Draw(t, "is") {
		case 0:
			idle = idle.With(i)
		case 1, 2, 3:
			busy = busy.With(i)
		}
	}
	return busy, idle
}

// chosen describes a subset by the positions of its jobs in the queue and by their slices.
type chosen struct {
	jobs  []int
	spots string // for each slice, the GPU, the placement and the job
	value float64
}

// exhaustive finds the best subset by trying every subset of the window on one GPU after another.
func exhaustive(c *cluster) (best chosen) {
	left := make([]int, len(c.gpus))
	for k := range left {
		left[k] = k
	}
	for len(left) > 0 {
		share := func(k int) float64 { return 1 - float64(units(c.Pool.GPU(k)))/float64(c.gpus[k].Grid) }
		least := 0
		for n, k := range left {
			if share(k) < share(left[least]) {
				least = n
			}
		}
		k := left[least]
		left = slices.Delete(left, least, least+1)
		most := 0
		for _, l := range c.gpus[k].Layouts() {
			most = max(most, l.Count())
		}
		for set := 1; set < 1<<min(most, len(c.queue)); set++ {
			var jobs []int
			for at := range len(c.queue) {
				if set&(1<<at) != 0 {
					jobs = append(jobs, at)
				}
			}
			got, ok := tried(c, k, jobs)
			if ok && (got.value > best.value+1e-6 || got.value > best.value-1e-6 && earlier(got.jobs, best.jobs)) {
				best = got
			}
		}
		if best.jobs != nil {
			break
		}
	}
	return best
}

// earlier reports whether the first job that belongs to only one of two subsets belongs to a.
func earlier(a, b []int) bool {
	for at := range 64 {
		if has := slices.Contains(a, at); has != slices.Contains(b, at) {
			return has
		}
	}
	return false
}

func units(g place.GPU) (n int) {
	for i := range g.Busy.Indices() {
		n += g.Model.Placements[i].Size
	}
	return n
}

// tried places jobs from the queue on the k-th GPU, largest profiles first.
func tried(c *cluster, k int, jobs []int) (got chosen, ok bool) {
	b, kind := c.gpus[k], slices.Index(c.kinds, c.gpus[k])
	profile := func(at int) mig.Profile {
		p, _ := b.ProfileIndex(c.queue[at].profiles[kind])
		return b.Profiles[p]
	}
	got.jobs = jobs
	for _, at := range jobs {
		if c.queue[at].profiles[kind] == "" {
			return got, false
		}
	}
	order := slices.Clone(jobs)
	slices.SortStableFunc(order, func(x, y int) int {
		p, q := profile(x), profile(y)
		return (q.Size*100 + q.Compute) - (p.Size*100 + p.Compute)
	})
	one := place.NewPool([]place.GPU{c.Pool.GPU(k)})
	var spots []string
	speed := c.speeds[k]
	for _, at := range order {
		j := &c.queue[at]
		sit := place.Situation{
			Pool:         one,
			Now:          c.Now,
			Weights:      c.recent.Weights(),
			MeanDuration: c.recent.MeanDuration(),
		}
		for range max(1, j.Slices) {
			choice := c.policy.Choose(&sit, place.Request{Profile: profile(at).Name, Duration: j.runTime})
			if choice.Verdict != place.Here {
				return got, false
			}
			one.Start(0, choice.Placement, c.Now+j.runTime)
			spots = append(spots, fmt.Sprint(k, choice.Placement, at))
		}
		speed += speedOn(j, profile(at).Name)
	}
	got.spots = strings.Join(spots, ", ")
	got.value = float64(units(one.GPU(0))) / float64(b.Grid) * speed
	return got, true
}

func speedOn(j *waiting, profile string) float64 {
	if j.Speed == nil {
		return 1
	}
	return j.Speed[profile]
}

// TestBatchesAreTheBest checks that branch and bound finds the same subset as an exhaustive search, for any instances
// on the GPUs.
func TestBatchesAreTheBest(t *testing.T) {
	policies(t, func(t *testing.T, p place.Policy) {
		several, none := 0, 0
		rapid.Check(t, func(t *rapid.T) {
			models := drawModels(t)
			c := &cluster{batches: newBatches(models, p), speeds: make([]float64, len(models))}
			c.Pool, c.Now = place.NewPool(make([]place.GPU, len(models))), 3
			c.occupy(t)
			for range rapid.IntRange(1, 9).Draw(t, "jobs") {
				j, ok := c.newWaiting(drawNeeds(t, models, 0))
				if !ok {
					continue // no GPU has the profile
				}
				c.queue = append(c.queue, j)
				c.recent.Add(place.Request{Profile: cmp.Or(j.profiles...), Duration: j.runTime})
			}
			c.Weights, c.MeanDuration = c.recent.Weights(), c.recent.MeanDuration()
			want := exhaustive(c)
			var jobs []int
			var spots []string
			for _, m := range c.next(c.Situation, c.queue, c.speeds) {
				jobs = append(jobs, m.at)
				for _, at := range m.spots {
					spots = append(spots, fmt.Sprint(at.GPU, at.Placement, m.at))
				}
			}
			slices.Sort(jobs)
			if !slices.Equal(jobs, want.jobs) || strings.Join(spots, ", ") != want.spots {
				t.Fatalf("jobs %v at %v, want %v at %v with a throughput of %v",
					jobs, spots, want.jobs, want.spots, want.value)
			}
			switch {
			case len(jobs) == 0:
				none++
				return
			case len(jobs) > 1:
				several++
			}
			if got := c.best / float64(c.gpus[c.gpu].Grid); math.Abs(got-want.value) > 1e-6 {
				t.Fatalf("throughput %v, want %v", got, want.value)
			}
		})
		if !t.Failed() && !testing.Short() && (several == 0 || none == 0) {
			t.Errorf("%d batches of several jobs, %d times none: the cases do not test enough", several, none)
		}
	})
}

// TestBatchesByHand checks cases whose results were computed by hand. While one job uses the whole GPU, other jobs
// arrive. When it is free, three jobs that use 7/8 of it must start instead of two that use all of it, because 7/8 x
// 3 > 1 x 2. The three must include the 4g.20gb instead of the 3g.20gb, which was submitted later.
func TestBatchesByHand(t *testing.T) {
	jobs := []trace.Job{
		{ID: "whole", Submit: 0, Duration: 100, Profile: "7g.40gb"},
		{ID: "next", Submit: 1, Duration: 10, Profile: "7g.40gb"},
		{ID: "four", Submit: 2, Duration: 10, Profile: "4g.20gb"},
		{ID: "three", Submit: 3, Duration: 10, Profile: "3g.20gb"},
		{ID: "two", Submit: 4, Duration: 20, Profile: "2g.10gb"},
		{ID: "one", Submit: 5, Duration: 30, Profile: "1g.5gb"},
	}
	slow := slices.Clone(jobs)
	// The 4g.20gb job runs for 20 s on its profile. The throughput is 7/8 x 2.5 with the 4g.20gb, and 7/8 x 3 with the
	// 3g.20gb.
	slow[2].Speed = map[string]float64{"4g.20gb": 0.5}
	many := slices.Repeat(jobs[1:2], 8) // seven jobs that need a whole GPU, and a small job
	many[7] = trace.Job{ID: "small", Submit: 1, Duration: 10, Profile: "1g.5gb"}
	apart := []trace.Job{
		{ID: "brief", Submit: 0, Duration: 10, Profile: "4g.20gb"},
		{ID: "long", Submit: 1, Duration: 100, Profile: "4g.20gb"},
		{ID: "late", Submit: 20, Duration: 10, Profile: "1g.5gb"}, // GPU 0 is empty, GPU 1 is not
		{ID: "pair", Submit: 21, Duration: 10, Profile: "3g.20gb", Slices: 2},
	}
	for _, c := range []struct {
		name string
		gpus int
		jobs []trace.Job
		want string
	}{
		{"three rather than two", 1, jobs, "whole 0:0, four 0:100, two 0:100, one 0:100, three 0:110, next 0:130"},
		{"a slow job", 1, slow, "whole 0:0, three 0:100, two 0:100, one 0:100, four 0:110, next 0:130"},
		// At first, 7/8 of GPU 0 is free, but only the first seven jobs are in the window. Later, a job that uses the
		// whole GPU has a higher throughput.
		{"the eighth", 2, append([]trace.Job{{ID: "little", Duration: 5, Profile: "1g.5gb"}, jobs[0]}, many...),
			"little 0:0, whole 1:0, next 0:5, next 0:15, next 0:25, next 0:35, next 0:45, next 0:55, " +
				"next 0:65, small 0:75"},
		{"the fuller GPU, and both slices on one", 2, apart, "brief 0:0, long 1:1, late 1:20, pair 0:21, pair 0:21"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen spans
			config := sim.Config{
				GPUs:      gpus(t, "A100-40GB", c.gpus),
				Policy:    policy(t, "first-fit"),
				Scheduler: Batches,
				Observer:  &seen,
			}
			if _, err := sim.Run(config, slices.Values(c.jobs)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range seen.all {
				got = append(got, fmt.Sprintf("%s %d:%v", x.Job, x.GPU, x.From))
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("started %s,\nwant %s", strings.Join(got, ", "), c.want)
			}
		})
	}
	apart[3].Slices = 3
	c := sim.Config{GPUs: gpus(t, "A100-40GB", 2), Policy: place.Reach, Scheduler: Batches}
	if _, err := sim.Run(c, slices.Values(apart)); !errors.Is(err, sim.ErrNever) {
		t.Errorf("three on one GPU: %v", err)
	}
}

// TestBatchesOverlapNothing checks that every job that can start starts exactly once, with all its slices on one GPU.
// Slices must not overlap, and idle instances must be reused.
func TestBatchesOverlapNothing(t *testing.T) {
	policies(t, func(t *testing.T, p place.Policy) {
		rapid.Check(t, func(t *rapid.T) {
			var seen spans
			times := rapid.SampledFrom([]float64{0, 0.25})
			c := sim.Config{GPUs: drawModels(t), Policy: p, Scheduler: Batches, Observer: &seen}
			c.Create, c.Destroy = times.Draw(t, "create"), times.Draw(t, "destroy")
			var jobs trace.Workload
			slots := map[string]int{}
			at := 0.0
			for range rapid.IntRange(1, 14).Draw(t, "jobs") {
				at += float64(rapid.IntRange(0, 3).Draw(t, "later"))
				j := drawNeeds(t, c.GPUs, at)
				j.ID = fmt.Sprint(len(jobs.Jobs))
				most := 0
				for _, b := range c.GPUs {
					if name, ok := j.On(b); ok {
						p, _ := b.ProfileIndex(name)
						most = max(most, b.Table().Info(0).Placeable(p))
					}
				}
				if most >= max(1, j.Slices) {
					jobs.Jobs = append(jobs.Jobs, j)
					slots[j.ID] = max(1, j.Slices)
				}
			}
			r, err := sim.Run(c, slices.Values(jobs.Jobs))
			if err != nil {
				t.Fatal(err)
			}
			on := map[string]sim.Span{}
			for n, x := range seen.all {
				if first, ok := on[x.Job]; ok && (x.GPU != first.GPU || x.From != first.From) {
					t.Fatalf("%+v and %+v", first, x)
				}
				on[x.Job] = x
				slots[x.Job]--
				for _, y := range seen.all[:n] {
					if x.GPU == y.GPU && x.From < y.To && y.From < x.To && x.Start < y.Start+y.Size &&
						y.Start < x.Start+x.Size {
						t.Fatalf("%+v overlaps %+v", x, y)
					}
				}
			}
			for id, left := range slots {
				if left != 0 {
					t.Fatalf("job %s: %d slices missing", id, left)
				}
			}
			if r.Started != len(jobs.Jobs) {
				t.Fatalf("%d of %d started", r.Started, len(jobs.Jobs))
			}
		})
	})
}
