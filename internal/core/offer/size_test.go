package offer

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// sizesOf returns the profiles of a GPU model that are larger than profile, for a job whose run time is inversely
// proportional to the compute slices.
func sizesOf(b *mig.Model, profile string) (all []Size) {
	k, _ := b.ProfileIndex(profile)
	least := b.Profiles[k]
	for _, p := range b.Profiles {
		if p.Name != profile && p.Size >= least.Size && p.Compute >= least.Compute {
			all = append(all, Size{p.Name, float64(least.Compute) / float64(p.Compute)})
		}
	}
	return all
}

// TestSizesDelayNoJob compares Make's result with its first plan, which assumes a higher price. Each job that starts
// with the first plan must also start with the result. The first job that must wait must not get a later reservation.
// Only jobs with sizes may get a profile other than the one requested.
func TestSizesDelayNoJob(t *testing.T) {
	larger := 0
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		gpus := slices.Concat(nodes...)
		jobs := drawDemands(t, gpus)
		drawSizes(t, gpus, jobs)
		strict := rapid.Bool().Draw(t, "strict")
		cl := NewCluster(place.Reach, nodes...)
		sized := Make(cl, jobs, strict)
		first := newPlanner(cl, jobs, strict)
		first.planQueue()
		starting := first.starting()
		if err := sized.Check(gpus); err != nil {
			t.Fatal(err)
		}
		mustHaveOwnOffers(t, gpus, jobs, sized)
		for k, j := range jobs {
			if starting[k] != nil && sized.Spots[k] == nil {
				t.Fatalf("job %d waits because of a larger slice", j.ID)
			}
			for _, at := range sized.Spots[k] {
				got := gpus[at.GPU].Model.ProfileOf(at.Placement)
				if slices.ContainsFunc(j.Wants[0].Sizes, func(s Size) bool { return s.Profile == got }) {
					larger++
				} else if as := sized.Name(gpus[at.GPU].Model, at); !hasProfile(j, got) || as == "" {
					t.Fatalf("job %d got %s, offered as %s", j.ID, got, as)
				}
			}
		}
		if a, b := sized.Reserved, first.plan.Reserved; a != nil && b != nil && a.Job == b.Job && a.At > b.At {
			t.Fatalf("the reservation moves from %v to %v", b.At, a.At)
		}
	})
	if larger == 0 {
		t.Error("no job got a larger slice than requested")
	}
}

func drawSizes(t *rapid.T, gpus []place.GPU, jobs []*Job) {
	for _, j := range jobs {
		if len(j.Wants) > 1 || !rapid.Bool().Draw(t, "sizes") {
			continue
		}
		w := &j.Wants[0]
		w.Count = 1
		j.RunTime = float64(rapid.IntRange(1, 1000).Draw(t, "run time"))
		j.TimeLimit = j.RunTime
		for _, g := range gpus {
			if _, ok := g.Model.ProfileIndex(w.Profile); ok {
				w.Sizes = sizesOf(g.Model, w.Profile)
			}
		}
	}
}

// hasProfile reports whether a job requests the profile, or accepts it as an equivalent profile.
func hasProfile(j *Job, profile string) bool {
	return slices.ContainsFunc(j.Wants, func(w Want) bool {
		return w.Profile == profile || slices.Contains(w.Alternatives, profile)
	})
}

// TestSizes checks the profiles that jobs get on a node with two idle GPUs. All jobs request 1g.5gb.
func TestSizes(t *testing.T) {
	b := plain(t, "A100-40GB")
	linear := sizesOf(b, "1g.5gb")
	equal := slices.Clone(linear) // the job is equally fast on all profiles
	half := slices.Clone(linear)  // half of the run time on 1g.5gb is inversely proportional to the compute slices
	for k, s := range linear {
		equal[k].Takes, half[k].Takes = 1, 0.5+s.Takes/2
	}
	for _, c := range []struct {
		name  string
		sizes []Size
		jobs  int
		want  string
	}{
		{"no sizes", nil, 1, "1g.5gb"},
		{"equally fast", equal, 1, "1g.5gb"},
		{"an idle cluster", linear, 1, "7g.40gb"},
		{"a job for each GPU", linear, 2, "7g.40gb 7g.40gb"},
		{"four jobs on two GPUs", half, 4, "4g.20gb 4g.20gb 3g.20gb 3g.20gb"},
		{"many jobs", half, 12, strings.Repeat("1g.5gb ", 9) + "2g.10gb 2g.10gb 1g.5gb"},
	} {
		var jobs []*Job
		for k := range c.jobs {
			jobs = append(jobs, &Job{
				ID: uint32(k + 1), RunTime: 700, TimeLimit: math.Inf(1),
				Wants: []Want{{Profile: "1g.5gb", Count: 1, Sizes: c.sizes}},
			})
		}
		cl := NewCluster(place.Reach, slices.Concat(freeNode(b), freeNode(b)))
		plan := Make(cl, jobs, false)
		var got []string
		for _, spots := range plan.Spots {
			for _, at := range spots {
				got = append(got, b.ProfileOf(at.Placement))
				if name := plan.Name(b, at); name != "1g.5gb" {
					t.Errorf("%s: offered as %s", c.name, name)
				}
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

// TestSpeculativeProfiles checks that only the profiles in Cluster.Speculative are offered speculatively.
func TestSpeculativeProfiles(t *testing.T) {
	b := plain(t, "A100-40GB")
	cl := NewCluster(place.Reach, freeNode(b))
	for _, c := range []struct {
		profiles map[string]bool
		want     []string
	}{
		{map[string]bool{}, nil},
		{map[string]bool{"2g.10gb": true, "3g.20gb": false}, []string{"2g.10gb"}},
	} {
		cl.Speculative = c.profiles
		plan := Make(cl, nil, false)
		var got []string
		for name := range plan.Counts([]place.GPU{{Model: b}}) {
			got = append(got, name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: offers of %v, want %v", c.profiles, got, c.want)
		}
	}
}

// TestWaitForLarger checks that a job waits for a larger slice only if its run time is known and long enough. A
// 4g.20gb on the GPU is busy for an hour, and the other slices are free.
func TestWaitForLarger(t *testing.T) {
	b := plain(t, "A100-40GB")
	for _, c := range []struct {
		runs    float64
		learned bool
		want    bool // the job starts now
	}{
		{math.Inf(1), false, true},
		{700, true, true},
		{1e6, true, false},
		{1e6, false, true}, // a time limit
	} {
		gpu := freeNode(b)[0]
		cl := NewCluster(place.Reach, []place.GPU{gpu})
		k, _ := b.ProfileIndex("4g.20gb")
		for i := range b.OfProfile(k).Indices() {
			cl.Pool.Start(0, i, 3600)
		}
		job := &Job{
			ID: 1, RunTime: c.runs, Learned: c.learned, TimeLimit: math.Inf(1),
			Wants: []Want{{Profile: "1g.5gb", Count: 1, Sizes: sizesOf(b, "1g.5gb")}},
		}
		plan := Make(cl, []*Job{job}, false)
		if got := plan.Spots[0] != nil; got != c.want {
			t.Errorf("a run time of %v s, learned: %v: starts %v", c.runs, c.learned, got)
		}
	}
}
