package predict

import (
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
)

// fractionRun returns a run on an L40S.
func fractionRun(job uint32, profile, state string, peak, seconds float64) Run {
	return Run{Job: job, GPUType: "l40s", Profile: profile, Slices: 1, Samples: 9, PeakMiB: peak, MedianMiB: peak,
		State: state, Seconds: seconds, Util: 0.9}
}

// TestFractionGrows checks that a job that ran out of memory on a fraction gets a larger one, although the names of
// fractions are rounded down: 1f.11gb has 11,389 MiB.
func TestFractionGrows(t *testing.T) {
	for _, c := range []struct {
		model, profile string
		peak           float64
		end, want      string
	}{
		{"L40S-48GB/4", "1f.11gb", 11300, "", "2f.22gb"},
		{"L40S-48GB/4", "1f.11gb", 900, EndOOM, "2f.22gb"},
		{"L40S-48GB/4", "1f.11gb", 900, "", ""}, // failed for another reason
		{"L40S-48GB/4", "2f.22gb", 22700, "", "full"},
		{"T4-16GB/8", "1f.1gb", 1800, EndOOM, "2f.3gb"}, // 1,856 MiB
	} {
		b, all := plain(t, c.model)
		run := fractionRun(1, c.profile, "FAILED", c.peak, 60)
		run.End = c.end
		got := ""
		if need, ok := RanOut([]Run{run}, nil, DefaultSite); ok {
			got, _ = need.Larger(b, all, c.profile)
			if next, ok := need.On(b, all); got != "" && (!ok || next != got) {
				t.Errorf("%s on %s: grows to %s, but the next job gets %q", c.profile, c.model, got, next)
			}
		}
		if got != c.want {
			t.Errorf("%s on %s grows to %q, want %q", c.profile, c.model, got, c.want)
		}
	}
}

// TestFractionAfterFull checks that a job whose first run was complete on a whole GPU gets the next fraction after one
// failure on a smaller one, and that a run out of memory on a whole GPU asks for nothing larger.
func TestFractionAfterFull(t *testing.T) {
	b, all := plain(t, "L40S-48GB/4")
	runs := []Run{fractionRun(1, mig.Full, "COMPLETED", 9000, 60), fractionRun(2, "1f.11gb", "FAILED", 900, 60)}
	need, _ := Predict(History{Level: ByKey, Runs: runs}, DefaultSite)
	if got, _ := need.On(b, all); got != "2f.22gb" {
		t.Errorf("%q after a failure on 1f.11gb: %+v", got, need)
	}
	runs[1] = fractionRun(2, mig.Full, "FAILED", 45000, 60)
	runs[1].End = EndOOM
	need, _ = Predict(History{Level: ByKey, Runs: runs}, DefaultSite)
	if got, _ := need.On(b, all); got != mig.Full || need.PeakMiB > 48000 {
		t.Errorf("%q after a whole GPU: %+v", got, need)
	}
}

// TestFractionSpeed checks that the speed of a job does not decide which fraction it gets, whatever its runs on
// fractions and on MIG instances took: it gets the smallest one with enough memory, and its expected run time does not
// depend on the profile.
func TestFractionSpeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		profiles := []string{"1f.11gb", "2f.22gb", mig.Full, "1g.5gb", "3g.20gb"}
		var runs []Run
		for job := range rapid.Uint32Range(1, 8).Draw(t, "runs") {
			run := fractionRun(job, rapid.SampledFrom(profiles).Draw(t, "profile"), "COMPLETED",
				rapid.Float64Range(100, 44000).Draw(t, "MiB"), rapid.Float64Range(1, 1e5).Draw(t, "seconds"))
			if run.Profile[1] == 'g' {
				run.GPUType = "a100"
			}
			runs = append(runs, run)
		}
		runs[len(runs)-1].Profile, runs[len(runs)-1].GPUType = "1f.11gb", "l40s"
		need, ok := Predict(History{Level: ByKey, Runs: runs}, DefaultSite)
		if !ok {
			t.Fatal("no need")
		}
		b, err := mig.ModelByName("L40S-48GB/4")
		if err != nil {
			t.Fatal(err)
		}
		want := mig.Full
		switch {
		case need.PeakMiB <= 11389:
			want = "1f.11gb"
		case need.PeakMiB <= 22778:
			want = "2f.22gb"
		}
		if got, ok := need.On(b, b.Open(0, 0)); need.HighestMiB <= 46068 && (!ok || got != want) {
			t.Errorf("%.0f MiB: %q, want %s", need.PeakMiB, got, want)
		}
		if seconds, _, _ := need.TakesOn(b, 0); seconds != need.Seconds || need.BusyKnown {
			t.Errorf("%.1f s on 1f.11gb, but %.1f s on the last run's profile", seconds, need.Seconds)
		}
		line := Line{Profile: want, Seconds: 100, High: 200, Busy: 90}
		if got := line.InTime(want, profiles, 150); got != want {
			t.Errorf("a time limit changes %s to %s", want, got)
		}
	})
}
