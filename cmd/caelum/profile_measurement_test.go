package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/slurm"
)

// TestCompare tests the speeds, which are relative to the largest profile on which the script completed.
func TestCompare(t *testing.T) {
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		runs   []measurement
		speeds []float64
		want   string
	}{
		{
			[]measurement{
				{Profile: "7g.40gb", Seconds: 80, State: "COMPLETED"},
				{Profile: "1g.5gb", Seconds: 4, State: "FAILED"},
				{Profile: "2g.10gb", Seconds: 100, State: "COMPLETED"},
				{Profile: "3g.20gb", Seconds: 10, State: "CANCELLED"},
			},
			[]float64{1, 0, 0.8, 0}, "the tightest profile is 2g.10gb",
		},
		{
			[]measurement{
				{Profile: "1g.5gb", Seconds: 200, State: "COMPLETED"},
				{Profile: "2g.10gb", Seconds: 100, State: "COMPLETED"},
				{Profile: "7g.40gb", State: "FAILED"},
			},
			[]float64{0.5, 1, 0}, "the tightest profile is 1g.5gb",
		},
		{
			[]measurement{{Profile: "1g.5gb", Seconds: 10, State: "FAILED"}},
			[]float64{0}, "no run completed, so the tightest profile is unknown",
		},
	} {
		got := compare(b, c.runs)
		var speeds []float64
		for _, m := range got.Runs {
			speeds = append(speeds, m.Speed)
		}
		var text strings.Builder
		if err := got.print(&text); err != nil || !slices.Equal(speeds, c.speeds) ||
			!strings.HasSuffix(text.String(), c.want+"\n") {
			t.Errorf("speeds %v, want %v; want %q (%v)\n%s", speeds, c.speeds, c.want, err, text.String())
		}
	}
}

// TestEnded tests that a measurement is the maximum of all nodes' summaries. If slurmdbd has no summary after a minute,
// the job's elapsed time must be used instead.
func TestEnded(t *testing.T) {
	begin := time.Unix(1700000000, 0)
	r := slurm.Record{
		State:   "COMPLETED",
		Start:   begin,
		End:     begin.Add(100 * time.Second),
		Nodes:   []string{"n1", "n2"},
		Comment: "caelum:key=0123456789abcdef",
	}
	first := "caelum:run=n1,2g.10gb,a100,at=1700000000,ran=95s,peak=5000m,p95=4000m,median=3000m," +
		"util=40%,samples=95"
	second := " caelum:run=n2,2g.10gb,a100,at=1700000000,ran=97s,peak=4000m,p95=4000m,median=3000m,samples=95"
	m := measurement{Profile: "2g.10gb", Job: 7, Util: -1}
	soon, late := r.End.Add(time.Second), r.End.Add(2*time.Minute)
	for _, c := range []struct {
		text    string
		now     time.Time
		over    bool
		seconds float64
		peak    float64
		util    float64
	}{
		{"", soon, false, 0, 0, -1},
		{first, soon, false, 0, 0, -1},
		{first + second, soon, true, 97, 5000, 0.4},
		{first, late, true, 95, 5000, 0.4},
		{"", late, true, 100, 0, -1},
	} {
		r.Text = c.text
		got, over, err := m.ended(r, c.now, time.Minute)
		if err != nil || over != c.over || got.Seconds != c.seconds || got.PeakMiB != c.peak || got.Util != c.util {
			t.Errorf("with the summaries %q, ended returned %+v, %v, %v; want %+v", c.text, got, over, err, c)
		}
	}
	r.Comment = ""
	if _, _, err := m.ended(r, soon, time.Minute); err == nil {
		t.Error("ended returned no error for a job without a slice")
	}
	r.End = time.Time{}
	if _, over, err := m.ended(r, late, time.Minute); over || err != nil {
		t.Errorf("for a running job, ended returned %v, %v", over, err)
	}
}
