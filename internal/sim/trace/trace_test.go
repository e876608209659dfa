package trace

import (
	"testing"

	"caelum/internal/core/mig"
)

// TestSlicesAreNotFull checks that only a job that names the full profile needs a full GPU.
func TestSlicesAreNotFull(t *testing.T) {
	b, err := mig.ModelByName("H100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	full := b.Select(mig.Plain).WithFull(80 << 10)
	if name, _ := (Job{Compute: 1, Memory: 1}).On(full); name != "7g.80gb" {
		t.Errorf("a whole GPU: %s", name)
	}
	if name, ok := (Job{MemoryMiB: 80 << 10}).On(full); ok {
		t.Errorf("more memory than the largest slice: %s", name)
	}
	if name, ok := (Job{Profile: mig.Full}).On(full); name != mig.Full || !ok {
		t.Errorf("full: %s, %v", name, ok)
	}
}

// TestShares checks that a job with shares of compute and memory needs the smallest profile that satisfies both shares.
func TestShares(t *testing.T) {
	model := func(name string) *mig.Model {
		b, err := mig.ModelByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return b.Select(mig.Plain)
	}
	a100, a30 := model("A100-40GB"), model("A30-24GB")
	for _, c := range []struct {
		share     float64
		a100, a30 string
	}{
		{0, "1g.5gb", "1g.6gb"},
		{.125, "1g.5gb", "1g.6gb"},
		{.13, "1g.10gb", "1g.6gb"},
		{.2, "2g.10gb", "1g.6gb"},
		{.26, "3g.20gb", "2g.12gb"},
		{.43, "4g.20gb", "2g.12gb"},
		{.5, "4g.20gb", "2g.12gb"},
		{.51, "7g.40gb", "4g.24gb"},
		{1, "7g.40gb", "4g.24gb"},
	} {
		j := Job{Compute: c.share, Memory: c.share}
		big, _ := j.On(a100)
		small, _ := j.On(a30)
		if big != c.a100 || small != c.a30 {
			t.Errorf("%v of a GPU: %s and %s, want %s and %s", c.share, big, small, c.a100, c.a30)
		}
	}
	if p, ok := (Job{Compute: 1.1}).On(a100); ok {
		t.Errorf("more than a GPU: %s", p)
	}
	if p, ok := (Job{Profile: "1g.6gb"}).On(a100); ok {
		t.Errorf("a profile of another GPU model: %s", p)
	}
}

// TestOnlyMeasuredProfiles checks that a job never runs on a profile without a measurement, even if it requests that
// profile.
func TestOnlyMeasuredProfiles(t *testing.T) {
	a100, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	j := Job{Duration: 100, Speed: map[string]float64{"1g.5gb": 0.25, "7g.40gb": 1}, Slowest: 0.2}
	for profile, want := range map[string]bool{"1g.5gb": true, "1g.10gb": false, "7g.40gb": true} {
		if got := j.RunsOn(profile); got != want {
			t.Errorf("%s: runs %v, want %v", profile, got, want)
		}
		j.Profile = profile
		if _, got := j.On(a100); got != want {
			t.Errorf("%s, named: %v, want %v", profile, got, want)
		}
	}
	if j.Slowest = 0.5; j.RunsOn("1g.5gb") {
		t.Error("runs on a profile slower than Slowest")
	}
}

// TestFractions checks the profiles of jobs on a GPU without MIG. A job is as fast on a fraction as on the whole GPU.
func TestFractions(t *testing.T) {
	l40s, err := mig.ModelByName("L40S-48GB/4")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := mig.ModelByName("L40S-48GB")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		job  Job
		want string
	}{
		{Job{Compute: 1, MemoryMiB: 11389, Speed: map[string]float64{"1g.5gb": 0.5}}, "1f.11gb"},
		{Job{Compute: 1, MemoryMiB: 11390}, "2f.22gb"},
		{Job{Compute: 1, Memory: 1}, mig.Full},
		{Job{Profile: "1g.10gb"}, "1f.11gb"},
		{Job{Profile: "4g.20gb"}, "2f.22gb"},
		{Job{Profile: "7g.40gb"}, mig.Full},
		{Job{Profile: "7g.80gb"}, ""},
		{Job{Profile: "2f.22gb"}, "2f.22gb"},
		{Job{Profile: "2f.11gb"}, ""},
	} {
		name, _ := c.job.On(l40s)
		if name != c.want || name != "" && c.job.SpeedOn(name) != 1 {
			t.Errorf("%+v: %q, want %q", c.job, name, c.want)
		}
		if name, ok := c.job.On(whole); ok && name != mig.Full || c.want == mig.Full && !ok {
			t.Errorf("%+v: %q on a whole GPU", c.job, name)
		}
	}
}
