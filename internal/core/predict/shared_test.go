package predict

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// userRuns returns n runs of one user, each with the given peak and run time.
func userRuns(uid uint32, n int, peak, seconds float64) History {
	h := History{Level: BySite}
	for i := range n {
		h.Runs = append(h.Runs, Run{
			Job: uint32(i + 1), Node: "n1", UID: uid, GPUType: "a100", Profile: "7g.40gb", Slices: 1,
			State: "COMPLETED", Start: int64(1000 + i), Seconds: seconds,
			Samples: 60, PeakMiB: peak, MedianMiB: peak, HighMiB: peak, Util: -1,
		})
	}
	return h
}

// TestSharedNeedsUsers checks that PredictShared returns no need if fewer users than the site requires have run the
// script, regardless of the number of runs.
func TestSharedNeedsUsers(t *testing.T) {
	users := []History{
		userRuns(1, 60, 5000, 60),
		userRuns(2, 60, 5000, 60),
		{Level: BySite, Runs: []Run{{State: "OUT_OF_MEMORY", Samples: 1, PeakMiB: 9000}}},
	}
	if n, ok := PredictShared(users, DefaultSite); ok || n.PeakMiB != 0 {
		t.Errorf("two users with complete runs: %+v", n)
	}
	site := DefaultSite
	site.Users = 2
	if n, ok := PredictShared(users, site); !ok || n.PeakMiB < 5000 || n.Level != BySite {
		t.Errorf("a site that requires two users: %+v, %v", n, ok)
	}
	if n, ok := PredictShared(append(users, userRuns(3, 1, 4000, 60)), DefaultSite); !ok || n.HighestMiB != 5000 {
		t.Errorf("three users: %+v, %v", n, ok)
	}
}

// TestSharedMinority checks that a minority of hostile users cannot move a figure outside the range of the honest
// users' figures.
func TestSharedMinority(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		honest := 2 + random.IntN(6)
		hostile := random.IntN(honest) // fewer than the honest users
		var users []History
		var least, most Need
		for i := range honest {
			h := userRuns(uint32(i), 1+random.IntN(20), 100+random.Float64()*20000, 10+random.Float64()*1000)
			n, _ := Predict(h, DefaultSite)
			if i == 0 {
				least, most = n, n
			}
			least.PeakMiB, most.PeakMiB = min(least.PeakMiB, n.PeakMiB), max(most.PeakMiB, n.PeakMiB)
			least.HighestMiB, most.HighestMiB = min(least.HighestMiB, n.HighestMiB), max(most.HighestMiB, n.HighestMiB)
			least.Seconds, most.Seconds = min(least.Seconds, n.Seconds), max(most.Seconds, n.Seconds)
			users = append(users, h)
		}
		for i := range hostile {
			peak, seconds := []float64{1, 3000, 39000}[random.IntN(3)], []float64{1, 500, 1e8}[random.IntN(3)]
			users = append(users, userRuns(uint32(100+i), 60, peak, seconds))
		}
		random.Shuffle(len(users), func(i, k int) { users[i], users[k] = users[k], users[i] })
		n, ok := PredictShared(users, DefaultSite)
		if ok != (len(users) >= 3) {
			t.Fatalf("%d users: %v", len(users), ok)
		}
		if !ok {
			continue
		}
		const rounding = 1e-6
		for _, f := range [][3]float64{
			{least.PeakMiB, n.PeakMiB, most.PeakMiB},
			{least.HighestMiB, n.HighestMiB, most.HighestMiB},
			{least.Seconds, n.Seconds, most.Seconds},
		} {
			if f[1] < f[0]-rounding || f[1] > f[2]+rounding {
				t.Fatalf(
					"%d hostile users of %d moved a figure to %v, want %v to %v",
					hostile,
					len(users),
					f[1],
					f[0],
					f[2],
				)
			}
		}
		if again, _ := PredictShared(slices.Clone(users), DefaultSite); again != n {
			t.Fatalf("a different result the second time: %+v, %+v", n, again)
		}
	}
}
