package predict

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
)

// TestLarger checks the larger profile on GPU models with their real memory sizes.
func TestLarger(t *testing.T) {
	for _, c := range []struct {
		model, profile string
		need           float64
		want           string
	}{
		{"A100-40GB", "1g.5gb", 0, "1g.10gb"}, // with as many compute slices
		{"A100-40GB", "1g.5gb", 9000, "1g.10gb"},
		{"A100-40GB", "2g.10gb", 0, "3g.20gb"}, // 1g.10gb does not have more memory
		{"A100-40GB", "3g.20gb", 0, "7g.40gb"}, // 4g.20gb neither
		{"A100-40GB", "1g.5gb", 12000, "3g.20gb"},
		{"A100-40GB", "1g.5gb", 99000, ""},
		{"A100-40GB", "7g.40gb", 0, ""},
		{"A100-40GB", "full", 0, ""},
		{"A100-40GB", "1g.18gb", 0, ""}, // of another GPU model
		{"A30-24GB", "1g.6gb", 0, "2g.12gb"},
		{"L40S-48GB/4", "1f.11gb", 0, "2f.22gb"},
		{"L40S-48GB/4", "1f.11gb", 22779, "full"},
		{"L40S-48GB/4", "2f.22gb", 0, "full"},
		{"L40S-48GB/4", "2f.22gb", 46069, ""},
		{"L40S-48GB/4", "full", 0, ""},
		{"L40S-48GB", "full", 0, ""},
	} {
		model, all := plain(t, c.model)
		if got, ok := Larger(model, all, c.profile, c.need); got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %s with %.0f MiB grows to %q, %v, want %q", c.model, c.profile, c.need, got, ok, c.want)
		}
	}
	model, all := plain(t, "A100-40GB")
	k, _ := model.ProfileIndex("1g.10gb")
	if got, _ := Larger(model, all&^model.OfProfile(k), "1g.5gb", 0); got != "2g.10gb" {
		t.Errorf("without 1g.10gb: %s", got)
	}
	full := model.WithFull(40960)
	if got, ok := Larger(full, all|full.Full(), "7g.40gb", 0); ok {
		t.Errorf("7g.40gb grows to %s", got)
	}
}

// TestRanOut checks which failed runs let a job grow, and the resulting profile on an A100.
func TestRanOut(t *testing.T) {
	run := func(job uint32, restart int, profile, state string, peak float64) Run {
		return Run{Job: job, Restart: restart, GPUType: "a100", Profile: profile, Slices: 1, Samples: 9,
			PeakMiB: peak, MedianMiB: peak, State: state, Seconds: 60}
	}
	small := Growth{Profile: "1g.5gb", Cause: RanOutOfMemory, MiB: 4700}
	for _, c := range []struct {
		what  string
		runs  []Run
		grown []Growth
		want  string
	}{
		{"no run", nil, nil, ""},
		{"nearly full", []Run{run(1, 0, "1g.5gb", "FAILED", 4700)}, nil, "1g.10gb"},
		{"half full", []Run{run(1, 0, "1g.5gb", "FAILED", 2500)}, nil, ""},
		{"complete", []Run{run(1, 0, "1g.5gb", "COMPLETED", 4700)}, nil, ""},
		{"time limit", []Run{run(1, 0, "1g.5gb", "TIMEOUT", 4700)}, nil, ""},
		{"an earlier job was", []Run{run(1, 0, "1g.5gb", "FAILED", 4700), run(2, 0, "1g.5gb", "FAILED", 900)}, nil, ""},
		{"not executable", []Run{{Job: 1, GPUType: "a100", Profile: "1g.5gb", State: "FAILED", Exit: 127}}, nil, ""},
		{"no sample", []Run{{Job: 1, GPUType: "a100", Profile: "1g.5gb", State: "FAILED", Exit: 1}}, nil, ""},
		{"grown, and full again", []Run{
			run(1, 0, "1g.5gb", "FAILED", 4700), run(1, 1, "1g.10gb", "FAILED", 9000),
		}, []Growth{small}, "3g.20gb"},
		{"grown, and no more than before", []Run{
			run(1, 0, "2g.10gb", "FAILED", 9600), run(1, 1, "2g.12gb", "FAILED", 9700),
		}, []Growth{{Profile: "2g.10gb", Cause: RanOutOfMemory, MiB: 9600}}, ""},
		{"grown, and reported that memory is missing", []Run{
			run(1, 0, "1g.5gb", "FAILED", 4700),
			{Job: 1, Restart: 1, GPUType: "a100", Profile: "1g.10gb", Samples: 9, PeakMiB: 900, End: EndOOM},
		}, []Growth{small}, "3g.20gb"},
		{"reported before the first sample", []Run{
			{Job: 1, GPUType: "a100", Profile: "1g.5gb", State: "FAILED", End: EndOOM},
		}, nil, "1g.10gb"},
		{"an earlier job needed more", []Run{
			run(1, 0, "3g.20gb", "COMPLETED", 15000), run(2, 0, "1g.5gb", "FAILED", 4700),
		}, nil, "3g.20gb"},
		{"more than the GPU only with the margin", []Run{
			run(1, 0, "7g.40gb", "COMPLETED", 40000), run(2, 0, "3g.20gb", "FAILED", 19900),
		}, nil, "7g.40gb"},
		{"more than the GPU", []Run{
			run(1, 0, "7g.80gb", "COMPLETED", 70000), run(2, 0, "3g.20gb", "FAILED", 19900),
		}, nil, ""},
		{"failed for the first time, and no more than usual", []Run{
			run(1, 0, "1g.5gb", "COMPLETED", 4700), run(2, 0, "1g.5gb", "COMPLETED", 4700),
			run(3, 0, "1g.5gb", "FAILED", 4700),
		}, nil, ""},
		{"failed for the first time, and more than usual", []Run{
			run(1, 0, "1g.5gb", "COMPLETED", 4500), run(2, 0, "1g.5gb", "COMPLETED", 4500),
			run(3, 0, "1g.5gb", "FAILED", 4700),
		}, nil, "1g.10gb"},
		{"complete on a slice like this, with as much", []Run{
			run(1, 0, "1g.5gb", "COMPLETED", 4700), run(2, 0, "1g.5gb", "COMPLETED", 4700),
			run(3, 0, "1g.5gb", "FAILED", 900), run(4, 0, "1g.5gb", "COMPLETED", 4700),
			run(5, 0, "1g.5gb", "FAILED", 4700),
		}, nil, ""},
		{"the fuller node of two", []Run{
			run(1, 0, "1g.5gb", "FAILED", 900), run(1, 0, "1g.5gb", "FAILED", 4700),
		}, nil, "1g.10gb"},
	} {
		got := ""
		if need, ok := RanOut(c.runs, c.grown, DefaultSite); ok {
			model, all := plain(t, "A100-40GB")
			got, _ = need.Larger(model, all, c.runs[len(c.runs)-1].Profile)
		}
		if got != c.want {
			t.Errorf("%s: grows to %q, want %q", c.what, got, c.want)
		}
	}
}

// TestForesaw checks which forecasts let a job grow: the job's earlier runs count more than a forecast.
func TestForesaw(t *testing.T) {
	run := func(profile, state string, peak float64) Run {
		return Run{GPUType: "a100", Profile: profile, Slices: 1, Samples: 9, PeakMiB: peak, MedianMiB: peak,
			State: state, Seconds: 60}
	}
	for _, c := range []struct {
		what    string
		earlier []Run
		current Run
		want    bool
	}{
		{"no earlier run", nil, run("1g.5gb", "", 3000), true},
		{"no complete run", []Run{run("1g.5gb", "FAILED", 4000)}, run("1g.5gb", "", 3000), true},
		{"not more than usual", []Run{run("1g.5gb", "COMPLETED", 4000)}, run("1g.5gb", "", 4000), false},
		{"more than usual", []Run{run("1g.5gb", "COMPLETED", 4000)}, run("1g.5gb", "", 4001), true},
		{"usually more than the slice", []Run{run("1g.10gb", "COMPLETED", 6000)}, run("1g.5gb", "", 3000), true},
		{"once more than usual", []Run{
			run("1g.10gb", "COMPLETED", 4000), run("1g.10gb", "COMPLETED", 6000), run("1g.10gb", "COMPLETED", 4000),
		}, run("1g.10gb", "", 5000), true},
	} {
		need, got := Foresaw(c.earlier, c.current, 9000, DefaultSite)
		if got != c.want || got && (need.PeakMiB != 9000 || need.HighestMiB != 9000) {
			t.Errorf("%s: %v, %+v", c.what, got, need)
		}
	}
}

// TestGrowths checks what FormatGrowths writes, and strings that other tools may have damaged.
func TestGrowths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var growths []Growth
		for range rapid.IntRange(0, 4).Draw(t, "growths") {
			growths = append(growths, Growth{
				rapid.SampledFrom(mig.Models()[0].Profiles).Draw(t, "profile").Name,
				rapid.SampledFrom([]Cause{RanOutOfMemory, Foreseen}).Draw(t, "cause"),
				float64(rapid.Uint32().Draw(t, "MiB")),
				rapid.SampledFrom([]string{"", "1g.5gb"}).Draw(t, "requested"),
			})
		}
		if got := ParseGrowths(FormatGrowths(growths)); !slices.Equal(got, growths) {
			t.Fatalf("%q: %v, want %v", FormatGrowths(growths), got, growths)
		}
	})
	want := Growth{Profile: "1g.5gb", Cause: RanOutOfMemory, MiB: 4700}
	text := want.String() + ",:oom:1,2g.10gb:oom,2g.10gb:killed:9,2g.10gb:oom:-9,2g.10gb:oom:1e9,2g.10gb:forecast:9:," +
		"1:2:3:4:5,x"
	if got := ParseGrowths(text); len(got) != 1 || got[0] != want {
		t.Errorf("%v", got)
	}
}
