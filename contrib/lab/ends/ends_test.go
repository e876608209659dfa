package ends

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestEndsStated checks that the expected duration is the stated duration until enough jobs have ended. If the stated
// durations were exact, it must remain so.
func TestEndsStated(t *testing.T) {
	var e Ends
	if total, until := e.Expect(100, 0); total != 100 || until != 100 {
		t.Errorf("without jobs: %v until %v", total, until)
	}
	if total, _ := e.Expect(100, 120); total != 150 {
		t.Errorf("after the stated duration: %v", total)
	}
	for range 40 {
		e.Finished(100, 100)
		e.Finished(0, 100) // without a stated duration
		e.Finished(math.Inf(1), 100)
	}
	if total, until := e.Expect(50, 0); total != 50 || until != 50 {
		t.Errorf("exact durations: %v until %v", total, until)
	}
}

// TestEndsUnknown checks that a job without a stated duration has no expected end.
func TestEndsUnknown(t *testing.T) {
	var e Ends
	for range 100 {
		if total, until := e.Expect(math.Inf(1), 50); !math.IsInf(total, 1) || !math.IsInf(until, 1) {
			t.Fatalf("%v until %v", total, until)
		}
		e.Finished(100, 0)
	}
}

// TestEndsLearned checks the expected duration if time limits are x times too long, where x is uniform between 1 and 6.
// The ratio of run time to time limit is then 1/x, whose mean is ln(6)/5.
func TestEndsLearned(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var e Ends
	for range 10000 {
		e.Finished(1000*(1+5*rng.Float64()), 1000)
	}
	for _, c := range []struct{ ran, want float64 }{
		{0, math.Log(6) / 5},
		{0.5, math.Log(2)}, // x is below 2
		{0.25, math.Log(4) / 3},
	} {
		if total, until := e.Expect(3600, 3600*c.ran); math.Abs(total/3600-c.want) > 0.02 || until <= 3600*c.ran ||
			until > total {
			t.Errorf("after %v of the limit: %v of the limit until %v, want %v", c.ran, total/3600, until/3600, c.want)
		}
	}
	if total, _ := e.Expect(3600, 3600); total != 4500 {
		t.Errorf("after the end of all other jobs: %v", total)
	}
}

// TestEndsAgainstDefinition compares the expected duration with the mean of all quantiles above the run time so far.
// The result must not change before the time that Expect returns, and the expected end must never be in the past.
func TestEndsAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e Ends
		for range rapid.IntRange(endsFew, 300).Draw(t, "finished") {
			e.Finished(100, rapid.Float64Range(0, 200).Draw(t, "ran"))
		}
		ran := rapid.Float64Range(0, 250).Draw(t, "so far")
		total, until := e.Expect(100, ran)
		sum, n := 0.0, 0.0
		for _, q := range e.quantiles {
			if q*100 > ran {
				sum, n = sum+q*100, n+1
			}
		}
		want := 1.25 * ran
		if n > 0 {
			want = sum / n
		}
		if math.Abs(total-want) > 1e-9*want {
			t.Fatalf("%v after %v, want %v", total, ran, want)
		}
		if total < ran || until < ran {
			t.Fatalf("after %v the expected duration is %v, until %v", ran, total, until)
		}
		later := ran + (until-ran)*0.99
		if again, _ := e.Expect(100, later); n > 0 && later < until && again != total {
			t.Fatalf("%v at %v, but %v shortly before %v", total, ran, again, until)
		}
	})
}

// TestEndsForget checks that Ends uses only the last 4096 jobs.
func TestEndsForget(t *testing.T) {
	var e Ends
	for range endsKept {
		e.Finished(100, 10)
	}
	before := e.Version()
	for range endsKept + endsQuantiles { // Ends recomputes the quantiles after every 64 jobs
		e.Finished(100, 90)
	}
	if total, _ := e.Expect(100, 0); math.Abs(total-90) > 1e-9 || e.Version() == before {
		t.Errorf("%v, version %d", total, e.Version())
	}
}
