package offer

import (
	"math"
	"slices"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// every returns n submissions with the same run time, one every gap seconds since time 0.
func every(gap, runTime float64, n int) (all []Submission) {
	for k := range n {
		all = append(all, Submission{At: gap * float64(k), RunTime: runTime})
	}
	return all
}

func TestExpectedArrivals(t *testing.T) {
	limits := every(60, 0, 12)
	mixed := slices.Clone(limits)
	mixed[3].RunTime = 600
	for _, c := range []struct {
		name string
		all  []Submission
		now  float64
		want float64
	}{
		{"no submissions", nil, 0, 0},
		{"two submissions", every(60, 600, 2), 60, 0},
		{"three submissions", every(60, 600, 3), 120, 10},
		{"only the last gaps count", append(every(1, 600, 5), Submission{At: 1000, RunTime: 600}), 1000, 3},
		{"ten minutes without submissions", every(60, 600, 12), 660 + 600, 600.0 * 8 / 1080},
		{"only limits", limits, 660, 0},
		{"one learned run time", mixed, 660, 10},
		{"all at the same moment", every(0, 600, 12), 0, 8 * 600},
	} {
		if got := ExpectedArrivals(c.all, c.now); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestArrivalsMakeSlicesSmaller checks that a job on an idle GPU gets a smaller slice if many jobs are expected, and
// that this effect is limited by the number of jobs that run or wait.
func TestArrivalsMakeSlicesSmaller(t *testing.T) {
	b := plain(t, "A100-40GB")
	sizes := sizesOf(b, "1g.5gb")
	for k := range sizes {
		sizes[k].Takes = 0.5 + sizes[k].Takes/2
	}
	for _, c := range []struct {
		arrivals float64
		want     string
	}{{0, "4g.20gb"}, {4, "2g.10gb"}, {1e9, "2g.10gb"}} {
		cl := NewCluster(place.Reach, []place.GPU{freeNode(b)[0]})
		cl.Arrivals = c.arrivals
		job := &Job{ID: 1, RunTime: 700, TimeLimit: 700, Wants: []Want{{Profile: "1g.5gb", Count: 1, Sizes: sizes}}}
		if got := profileOf(b, Make(cl, []*Job{job}, false).Spots[0]); got != c.want {
			t.Errorf("%v arrivals: %s, want %s", c.arrivals, got, c.want)
		}
	}
}

// profileOf returns the profile of the first spot.
func profileOf(b *mig.Model, spots []Spot) string { return b.ProfileOf(spots[0].Placement) }
