package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

func model(t *testing.T) *mig.Model {
	t.Helper()
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// trained lists the measurements of a training script. With batch size 32, the script runs out of memory on the
// smallest profile.
var trained = []measurement{
	{Profile: "7g.40gb", Batch: 8, Steps: 1000, Seconds: 80, State: "COMPLETED"},
	{Profile: "1g.5gb", Batch: 8, Steps: 1000, Seconds: 200, State: "COMPLETED"},
	{Profile: "2g.10gb", Batch: 8, Steps: 1000, Seconds: 100, State: "COMPLETED"},
	{Profile: "1g.5gb", Batch: 32, Steps: 1000, Seconds: 4, PeakMiB: 4700, State: "FAILED"},
	{Profile: "2g.10gb", Batch: 32, Steps: 1000, Seconds: 320, State: "COMPLETED"},
	{Profile: "7g.40gb", Batch: 32, Steps: 1000, Seconds: 160, State: "COMPLETED"},
}

func TestEvaluate(t *testing.T) {
	got := evaluate(model(t), trained, 0, predict.Goal{Lambda: 1})
	speeds := []float64{1, 0.4, 0.8, 0, 0.5, 1}
	for i, s := range got.Runs {
		if s.Speed != speeds[i] || s.OutOfMemory != (i == 3) {
			t.Errorf("%s: speed %v, want %v; out of memory %v", s.label(), s.Speed, speeds[i], s.OutOfMemory)
		}
	}
	if s := got.Runs[3]; s.Latency != 0 || s.Throughput != 0 {
		t.Errorf("a failed run has a latency or a throughput: %+v", s)
	}
	if s := got.Runs[4]; s.Latency != 0.32 || s.Throughput != 100 {
		t.Errorf("%s: got %+v, want latency 0.32 and throughput 100", s.label(), s)
	}
	// Steps with batch size 8 are shorter than those with batch size 32. The relative difference is largest on 2g.10gb.
	// On 1g.5gb, only batch size 8 completed.
	want := []verdict{
		{Batch: 8, Tightest: "1g.5gb", Choice: "2g.10gb", F: (0.32 - 0.1) / 0.32},
		{Batch: 32, Tightest: "2g.10gb", Choice: "2g.10gb"},
	}
	if !reflect.DeepEqual(got.Verdicts, want) {
		t.Errorf("evaluate returned the verdicts %+v, want %+v", got.Verdicts, want)
	}
}

func TestVerdicts(t *testing.T) {
	one := func(profile, state string) measurement {
		return measurement{Profile: profile, Seconds: 10, State: state}
	}
	for _, c := range []struct {
		runs  []measurement
		batch int
		goal  predict.Goal
		want  string
	}{
		{
			trained, 32, predict.Goal{Lambda: 0.5, Deadline: 0.2},
			"batch 32: the tightest profile is 2g.10gb; DynaP's choice is 7g.40gb, F = 0.000",
		},
		{
			trained, 32, predict.Goal{Deadline: 0.1},
			"batch 32: the tightest profile is 2g.10gb; " +
				"no profile meets the deadline of 0.1 s per step: the shortest step takes 0.16 s, on 7g.40gb",
		},
		{trained, 16, predict.Goal{}, "batch 16: no run completed, so the tightest profile is unknown"},
		{
			[]measurement{
				one("7g.40gb", "COMPLETED"),
				one("1g.5gb", "FAILED"),
				one("2g.10gb", "COMPLETED"),
				one("3g.20gb", "CANCELLED"),
			},
			0, predict.Goal{}, "the tightest profile is 2g.10gb",
		},
		{
			[]measurement{one("1g.5gb", "FAILED")},
			0, predict.Goal{}, "no run completed, so the tightest profile is unknown",
		},
		{
			[]measurement{{Profile: "1g.5gb", Batch: 4, Seconds: 10, State: "COMPLETED"}},
			4, predict.Goal{Deadline: 1}, "batch 4: the tightest profile is 1g.5gb",
		},
		{
			[]measurement{{Profile: "1g.5gb", Batch: 4, Steps: 10, State: "COMPLETED"}},
			4, predict.Goal{}, "batch 4: the tightest profile is 1g.5gb",
		},
	} {
		got := evaluate(model(t), c.runs, c.batch, c.goal)
		if len(got.Verdicts) != 1 || got.Verdicts[0].String() != c.want {
			t.Errorf("evaluate returned the verdicts %v\nwant %s", got.Verdicts, c.want)
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

func TestReadMeasurements(t *testing.T) {
	const good = `{"profile":"1g.5gb","seconds":10,"state":"COMPLETED"}`
	got, err := readMeasurements(
		strings.NewReader(
			good + "\n" + `{"profile":"7g.40gb","batch":8,"steps":10,"seconds":2,"peak_mib":900,"util":0.5,` +
				`"state":"FAILED","job":7}`,
		),
	)
	want := []measurement{
		{Profile: "1g.5gb", Seconds: 10, Util: -1, State: "COMPLETED"},
		{"7g.40gb", 8, 10, 2, 900, 0.5, "FAILED", 7},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("readMeasurements returned %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{
		"",
		"{}",
		"[]",
		good + good,
		`{"profile":"1g.5gb","seconds":10}`,
		`{"profile":"1g.5gb","seconds":0,"state":"COMPLETED"}`,
		`{"profile":"1g.5gb","seconds":-1,"state":"FAILED"}`,
		`{"profile":"1g.5gb","seconds":1,"state":"FAILED","util":2}`,
		`{"profile":"1g.5gb","seconds":1,"state":"FAILED","peak":2}`,
		`{"profile":"1g.5gb","seconds":"1","state":"FAILED"}`,
		`{"profile":"1g.5gb","seconds":1,"state":"FAILED","batch":-1}`,
	} {
		if _, err := readMeasurements(strings.NewReader(good + "\n" + bad + "\n" + good)); err == nil ||
			!strings.Contains(err.Error(), "line 2: ") {
			t.Errorf("with the line %s, readMeasurements returned the error %v, want an error for line 2", bad, err)
		}
	}
	if _, err := readMeasurements(strings.NewReader("")); err == nil {
		t.Error("readMeasurements returned no error for an empty file")
	}
}
