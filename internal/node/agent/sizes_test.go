package agent

import (
	"fmt"
	"testing"
	"time"

	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// sizedJob returns a job for which Caelum has chosen 1g.5gb. Its run time is inversely proportional to the number of
// compute slices.
func sizedJob() slurm.Job {
	j := job(1, "1g.5gb:1")
	j.AdminComment = tags.Size + "1g.5gb " + tags.RunTime + "750 " + tags.Busy + "100"
	return j
}

// TestLargerSlice checks that a job for which Caelum has chosen a small profile gets the whole idle GPU, while
// slurmctld counts the requested profile. A restart of the agent must not change either profile.
func TestLargerSlice(t *testing.T) {
	w := newWorld(t, 1)
	id := w.submit(sizedJob())
	w.publish()
	if o := w.offers(); o["1g.5gb"] != 1 {
		t.Fatalf("offers: %v", o)
	}
	w.fake.Tick()
	check := func() {
		t.Helper()
		l := w.lease(id)
		if len(l.Slices) != 1 || l.Slices[0].Profile != "7g.40gb" || l.Slices[0].AdvertisedAs != "1g.5gb" {
			t.Fatalf("the job has %+v", l)
		}
		if l.Expected != 100 {
			t.Errorf("the expected run time is %d s, want 100 s: 1/7.5 of that on 1g.5gb", l.Expected)
		}
	}
	check()
	w.publish()
	if o := w.offers(); len(o) > 1 || o["1g.5gb"] > 1 {
		t.Errorf("offers alongside a whole GPU in use: %v", o)
	}
	w.stop()
	w.start()
	check()
	if err := w.fake.End(id); err != nil {
		t.Fatal(err)
	}
	w.nothingHeld()
}

// TestNamedProfileOnLargerOffer checks a job whose user requests 1g.5gb, but which slurmctld starts on a larger offer
// that was planned for another job. The first must get a 1g.5gb slice, and the other must get a slice as well.
func TestNamedProfileOnLargerOffer(t *testing.T) {
	w := newWorld(t, 1)
	planned := w.submit(sizedJob())
	w.publish()
	if err := w.fake.Hold(t.Context(), planned); err != nil {
		t.Fatal(err)
	}
	named := w.submit(job(1, "1g.5gb:1"))
	w.fake.Tick()
	if l := w.lease(named); len(l.Slices) != 1 || l.Slices[0].Profile != "1g.5gb" || l.Slices[0].AdvertisedAs != "" {
		t.Fatalf("the job that names 1g.5gb has %+v", l)
	}
	if err := w.fake.Release(t.Context(), planned); err != nil {
		t.Fatal(err)
	}
	w.publish()
	w.fake.Tick()
	l := w.lease(planned)
	if len(l.Slices) != 1 || l.Slices[0].Profile == "1g.5gb" {
		t.Errorf("the other job has %+v", l)
	}
}

// TestPlannedOffers checks that each of two jobs gets the slice that the plan offers for it, although both request the
// same profile and one of the slices is larger.
func TestPlannedOffers(t *testing.T) {
	w := newWorld(t, 1)
	named := w.submit(job(1, "1g.5gb:1"))
	sized := w.submit(sizedJob())
	w.publish()
	if o := w.offers(); o["1g.5gb"] != 2 {
		t.Fatalf("offers: %v", o)
	}
	w.fake.Tick()
	if l := w.lease(named); len(l.Slices) != 1 || l.Slices[0].Profile != "1g.5gb" {
		t.Errorf("the job that names 1g.5gb has %+v", l)
	}
	l := w.lease(sized)
	if len(l.Slices) != 1 || l.Slices[0].Profile == "1g.5gb" || l.Slices[0].AdvertisedAs != "1g.5gb" {
		t.Errorf("the other job has %+v", l)
	}
}

// TestSizedOfferedAgain checks when the agent offers a released slice again. If so many jobs are waiting that they
// should get the requested profile, the agent must offer it during the epilog. If the next job should get a larger
// slice, only a pass may do so.
func TestSizedOfferedAgain(t *testing.T) {
	for waiting, again := range map[int]bool{1: false, 20: true} {
		t.Run(fmt.Sprint(waiting), func(t *testing.T) {
			w := newWorld(t, 1)
			running := w.full()
			w.fake.Advance(10 * time.Minute) // with few submissions in a long time, few further jobs are expected
			for range waiting {
				j := sizedJob()
				j.AdminComment = tags.Size + "1g.5gb " + tags.RunTime + "750 " + tags.Busy + "50"
				w.submit(j)
			}
			w.publish()
			calls := len(w.fake.Calls())
			w.fake.Finish(running[0])
			if silent := len(w.fake.Calls()) == calls; silent != again {
				t.Errorf("offered again without a call to slurmctld: %v, want %v", silent, again)
			}
		})
	}
}
