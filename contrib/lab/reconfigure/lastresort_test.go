package reconfigure

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

// plainWait tries the end of every instance, and returns the time at which an instance fits on a GPU if no job is
// stopped.
func plainWait(o placetest.PlainGPU, x placetest.Interval, now float64) float64 {
	times := []float64{now}
	for _, y := range o.Busy {
		times = append(times, max(now, o.Until[y]))
	}
	slices.Sort(times)
	for _, from := range times {
		var still []placetest.Interval
		for _, y := range o.Busy {
			if o.Until[y] > from {
				still = append(still, y)
			}
		}
		if (math.IsInf(from, 1)) || o.Fits(still, x) && !slices.Contains(still, x) {
			return from
		}
	}
	return math.Inf(1)
}

// plainUntil returns the time at which a profile fits on any GPU if no job is stopped.
func plainUntil(gpus []place.GPU, profile string, now float64) float64 {
	soonest := math.Inf(1)
	for _, g := range gpus {
		o := placetest.PlainGPUOf(g)
		for _, x := range placetest.Every(g.Model) {
			if g.Model.Profiles[x.Profile].Name == profile && o.Fits(nil, x) {
				soonest = min(soonest, plainWait(o, x, now))
			}
		}
	}
	return soonest
}

func drawProfile(t *rapid.T, b *mig.Model) string {
	return b.Profiles[rapid.IntRange(0, len(b.Profiles)-1).Draw(t, "profile")].Name
}

// newJob is the index of the job for which other jobs are stopped.
const newJob = 99

func TestLastResort(t *testing.T) {
	made := 0
	for runs := 0; made == 0 && runs < 20; runs++ { // only few requests lead to a plan that is worth its cost
		rapid.Check(t, func(t *rapid.T) {
			gpus := placetest.DrawGPUs(t)
			jobs := drawRunning(t, gpus)
			profile := drawProfile(t, gpus[0].Model)
			c := LastResort{Fixed: 100, Beta: rapid.SampledFrom([]float64{0, 300, 1000}).Draw(t, "beta")}
			s := &place.Situation{Pool: place.NewPool(gpus), Now: 1000}
			plan, until := c.Plan(s, place.Request{Profile: profile, Duration: 600}, newJob, jobs)
			if want := plainUntil(gpus, profile, s.Now); until != want {
				t.Fatalf("%s at %v; trying every end gives %v:\n%s", profile, until, want, placetest.Drawing(gpus))
			}
			if len(plan) == 0 {
				return
			}
			made++
			if until <= s.Now {
				t.Fatalf("%v, although %s fits already", plan, profile)
			}
			lost := 0.0
			for _, j := range plan.Stops() {
				run := jobs[j]
				if !run.Requeue || s.Now+c.Fixed+run.Duration > run.Deadline {
					t.Fatalf("%v stops %+v", plan, run)
				}
				lost = max(lost, s.Now-run.Start)
			}
			if c.Fixed+lost-(until-s.Now) > c.Beta {
				t.Fatalf("%v loses %v to save %v", plan, lost, until-s.Now)
			}
			mustServe(t, gpus, jobs, plan, profile)
		})
	}
	if made == 0 {
		t.Error("none of the cases has a plan")
	}
}

// mustServe checks that the plan assigns an instance of the profile to the new job, that a stopped job holds no
// instance afterwards, and that every other job keeps its instances.
func mustServe(t *rapid.T, gpus []place.GPU, jobs []Running, plan Plan, profile string) {
	after := carryOut(t, gpus, plan)
	last := plan[len(plan)-1]
	if last.Job != newJob || !after[last.GPU].Busy.Has(last.Placement) ||
		gpus[last.GPU].Model.ProfileOf(last.Placement) != profile {
		t.Fatalf("%v does not serve %s", plan, profile)
	}
	_, at := busyInstances(after)
	for j, run := range jobs {
		for _, h := range run.Holds {
			if stopped := slices.Contains(plan.Stops(), j); at[h] == stopped && h != last.Spot {
				t.Fatalf("%v: job %d has %v: %v", plan, j, h, at[h])
			}
		}
	}
}

// TestLastResortMoves checks that, with Move, all stopped jobs fit on free units beside the new job, and that the total
// of their lost run times is at most the wait that the plan saves.
func TestLastResortMoves(t *testing.T) {
	made := 0
	for runs := 0; made == 0 && runs < 20; runs++ {
		rapid.Check(t, func(t *rapid.T) {
			gpus := placetest.DrawGPUs(t)
			jobs := drawRunning(t, gpus)
			profile := drawProfile(t, gpus[0].Model)
			c := LastResort{Fixed: 100, Move: true}
			s := &place.Situation{Pool: place.NewPool(gpus), Now: 1000}
			plan, until := c.Plan(s, place.Request{Profile: profile, Duration: 600}, newJob, jobs)
			if len(plan) == 0 {
				return
			}
			made++
			mustServe(t, gpus, jobs, plan, profile)
			total := c.Fixed
			var stopped []string
			for _, j := range plan.Stops() {
				total += s.Now - jobs[j].Start
				for _, h := range jobs[j].Holds {
					stopped = append(stopped, gpus[h.GPU].Model.ProfileOf(h.Placement))
				}
			}
			if total > until-s.Now {
				t.Fatalf("%v loses %v to save %v", plan, total, until-s.Now)
			}
			if _, fit := place.Pack(carryOut(t, gpus, plan), stopped); !fit {
				t.Fatalf("%v moves jobs that do not fit elsewhere:\n%s", plan, placetest.Drawing(gpus))
			}
		})
	}
	if made == 0 {
		t.Error("none of the cases has a plan")
	}
}

// TestLastResortTakesTheCheapest checks that Plan returns the cheapest plan if no job has a deadline and all jobs may
// be stopped.
func TestLastResortTakesTheCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := placetest.DrawGPUs(t)
		var jobs []Running
		for k, g := range gpus {
			for i := range g.Busy.Indices() {
				jobs = append(jobs, Running{
					Holds:    []place.Spot{spot(k, i)},
					Start:    float64(rapid.IntRange(0, 1000).Draw(t, "start")),
					Duration: 1,
					Deadline: math.Inf(1),
					Requeue:  true,
				})
			}
			gpus[k].Ends = nil
		}
		profile := drawProfile(t, gpus[0].Model)
		s := &place.Situation{Pool: place.NewPool(gpus), Now: 1000}
		plan, until := LastResort{Fixed: 100}.Plan(s, place.Request{Profile: profile, Duration: 600}, newJob, jobs)
		if until == s.Now {
			return
		}
		got := math.Inf(1)
		if len(plan) > 0 {
			got = 0
		}
		for _, j := range plan.Stops() {
			got = max(got, s.Now-jobs[j].Start)
		}
		if best := leastLost(gpus, jobs, profile, s.Now); got != best {
			t.Fatalf("%v for %s loses %v, could lose %v:\n%s", plan, profile, got, best, placetest.Drawing(gpus))
		}
	})
}

// leastLost tries all sets of jobs on each GPU, and returns the smallest loss of run time if jobs are stopped to make
// room for a profile.
func leastLost(gpus []place.GPU, jobs []Running, profile string, now float64) float64 {
	started := map[place.Spot]float64{}
	for _, run := range jobs {
		started[run.Holds[0]] = run.Start
	}
	best := math.Inf(1)
	for k, g := range gpus {
		o := placetest.PlainGPUOf(g)
		for _, x := range placetest.Every(g.Model) {
			if g.Model.Profiles[x.Profile].Name != profile || slices.Contains(o.Busy, x) {
				continue
			}
			for mask := range 1 << len(o.Busy) {
				var stay []placetest.Interval
				lost := 0.0
				for n, y := range o.Busy {
					if mask>>n&1 == 0 {
						stay = append(stay, y)
						continue
					}
					i, _ := g.Model.Placement(g.Model.Profiles[y.Profile].Name, y.From)
					lost = max(lost, now-started[spot(k, i)])
				}
				if o.Fits(stay, x) {
					best = min(best, lost)
				}
			}
		}
	}
	return best
}
