package trace

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var sacctHead = strings.Join(SacctColumns, "|") + "\n"

func TestSacct(t *testing.T) {
	w, err := Sacct("jobs", strings.NewReader(sacctHead+
		"7|COMPLETED|1000|1010|1040|1100|60|30|billing=1,cpu=1,gres/gpu=1,gres/mig:2g.10gb=1,gres/mig=1,node=1|\n"+
		"7.batch|COMPLETED|1040||1040|1100|60||cpu=1|cpu=00:00:01,gres/gpumem=3G,gres/gpuutil=20\n"+
		"8_1|TIMEOUT|1000|1000|1000|1060|60|1|gres/gpu=1|\n"+
		"8_1.0|COMPLETED|1000||1000|1060|60||gres/gpu=1|gres/gpumem=9000M,gres/gpuutil=35\n"+
		"8_1.1|COMPLETED|1000||1000|1060|60||gres/gpu=1|gres/gpumem=1.5G,gres/gpuutil=90\n"+
		"9|CANCELLED by 0|1000|1000|1005|1006|1|UNLIMITED|gres/gpu=1|\n"+
		"10|COMPLETED|1000|1000|1005|1006|1|10|cpu=4|\n"+
		"10.batch|COMPLETED|1000||1005|1006|1||cpu=4|gres/gpumem=what\n"+
		"11|COMPLETED|1000|1000|1005|1006|1|10|gres/gpu:a100=4,gres/gpu=4|\n"+
		"11.0|COMPLETED|1000||1005|1006|1||gres/gpu=4|gres/gpumem=100G,gres/gpuutil=30\n"+
		"16|COMPLETED|1000|1000|1005|1006|1|10|gres/gpu=2,gres/mig:3g.20gb=2,gres/mig=2|\n"+
		"12|CANCELLED|1000|Unknown|None|1006|0|10||\n"+
		"13|PENDING|1000|1000|Unknown|Unknown|0|10||\n"+
		"17_[1-5]|PENDING|1000|1000|1005|Unknown|0|10|gres/gpu=1|\n"+
		"18+0|COMPLETED|1000|1000|1005|1006|1|10|gres/mig:2g.10gb=1,gres/mig:1g.5gb=1|\n"+
		"18+0.0|COMPLETED|1000|1000|1005|1006|1||gres/mig=2|gres/gpumem=what\n"+
		"18+1|COMPLETED|1000|1000|900|901|1|Partition_Limit|gres/mig:1g.5gb=1,gres/mig=1|\n"+
		"14|RUNNING|1000|1000|1005|Unknown|700|10|gres/gpu=1|\n"+
		"15|FAILED|990|Unknown|1005|1006|1|10|gres/gpu=1,gres/mig:closed=3,gres/mig:1g.5gb=1|\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{ID: "15", Submit: 0, Duration: 1, Limit: 600, Profile: "1g.5gb", Waited: 15},
		{ID: "8_1", Submit: 10, Duration: 60, Limit: 60, MemoryMiB: 9000, Compute: 0.9},
		{ID: "9", Submit: 10, Duration: 1, Compute: 1, Memory: 1, Waited: 5},
		{ID: "11", Submit: 10, Duration: 1, Limit: 600, Compute: 1, Memory: 1, Slices: 4, Waited: 5},
		{ID: "16", Submit: 10, Duration: 1, Limit: 600, Profile: "3g.20gb", Slices: 2, Waited: 5},
		{ID: "18+1", Submit: 10, Duration: 1, Profile: "1g.5gb"},
		{ID: "7", Submit: 20, Duration: 60, Limit: 1800, Profile: "2g.10gb", MemoryMiB: 3072, Compute: 0.2, Waited: 30},
	}
	if !reflect.DeepEqual(w.Jobs, want) {
		t.Errorf("jobs\n%+v, want\n%+v", w.Jobs, want)
	}
	left := []Left{{"no GPU", 1}, {"never started", 3}, {"slices of several profiles", 1}, {"still runs", 1}}
	if !reflect.DeepEqual(w.Left, left) || w.Assumed != 1 || w.Several != 1 {
		t.Errorf("left out %+v, assumed %d, several %d", w.Left, w.Assumed, w.Several)
	}
}

// TestSacctTimes checks that Sacct parses times in the default format, and a table with only the necessary columns.
func TestSacctTimes(t *testing.T) {
	w, err := Sacct("jobs", strings.NewReader("JobID|State|Submit|Start|ElapsedRaw|AllocTRES\n"+
		"1|COMPLETED|2026-11-21T04:57:35|2026-11-21T04:58:35|10|gres/gpu=1\n"+
		"2|COMPLETED|2026-11-21T04:57:45|2026-11-21T04:58:35|20|gres/gpu=1\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{ID: "1", Duration: 10, Compute: 1, Memory: 1, Waited: 60},
		{ID: "2", Submit: 10, Duration: 20, Compute: 1, Memory: 1, Waited: 50},
	}
	if !reflect.DeepEqual(w.Jobs, want) {
		t.Errorf("jobs %+v", w.Jobs)
	}
}

func TestAllocated(t *testing.T) {
	several, unnamed := "slices of several profiles", "slices whose profile is not in AllocTRES"
	for _, c := range []struct {
		tres string
		want allocation
	}{
		{"", allocation{}},
		{",,cpu=1,mem=4G,,", allocation{}},
		{"gres/gpu=0,gres/shard=3", allocation{}},
		{"gres/gpu=2", allocation{gpus: 2}},
		{"node=3,gres/gpu=6", allocation{gpus: 6, nodes: 3}},
		{"gres/gpu:a100=2,gres/gpu=2", allocation{gpus: 2}},
		{"gres/gpu:a100=2,gres/gpu:h100=1", allocation{gpus: 3}}, // AccountingStorageTRES without gres/gpu
		{"gres/gpu=1,gres/mig:2g.10gb=1,gres/mig=1", allocation{gpus: 1, profile: "2g.10gb"}},
		// With gres/mig, the count of gres/gpu is a number of slots.
		{"gres/gpu:a100=2,gres/gpu=2,gres/mig:2g.10gb=2,node=1", allocation{gpus: 2, profile: "2g.10gb", nodes: 1}},
		{"gres/mig:1g.10gb+me=3,gres/mig:2g.10gb=0", allocation{gpus: 3, profile: "1g.10gb+me"}},
		{"gres/mig:closed=3", allocation{}},
		{"gres/gpu:1g.5gb=2,gres/gpu=2", allocation{gpus: 2, profile: "1g.5gb"}},
		{"gres/gpu:a100_3g.20gb=1,gres/gpu=1", allocation{gpus: 1, profile: "3g.20gb"}},
	} {
		if got, err := allocated(c.tres); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.tres, got, err)
		}
	}
	for tres, want := range map[string]string{
		"gres/mig:2g.10gb=1,gres/mig:1g.5gb=2,gres/mig=3":    several,
		"gres/gpu=1,gres/mig=1":                              unnamed,
		"gres/gpu:a100_3g.20gb=1,gres/gpu:a100=1,gres/gpu=2": several,
	} {
		if got, err := allocated(tres); err != nil || got.unclear != want {
			t.Errorf("%s: %+v, %v", tres, got, err)
		}
	}
}

// TestSacctQuotes checks that quotes have no special meaning in the output of sacct, so that a name with a quote does
// not hide other jobs. Empty lines, a vertical bar at the end of a line (sacct -p), and Windows line endings must be
// accepted.
func TestSacctQuotes(t *testing.T) {
	head := "JobName|JobID|State|Submit|Start|ElapsedRaw|AllocTRES|\r\n"
	row := func(name, id string) string {
		return name + "|" + id + "|COMPLETED|2026-11-21T04:57:35|2026-11-21T04:58:35|10|gres/gpu=1|\r\n"
	}
	w, err := Sacct(
		"jobs",
		strings.NewReader("\ufeff"+head+row(`"a`, "1")+row(`b`, "2")+"\r\n"+row(`"c"`, "3")+row(`d"`, "4")),
	)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, j := range w.Jobs {
		ids = append(ids, j.ID)
	}
	if !slices.Equal(ids, []string{"1", "2", "3", "4"}) {
		t.Errorf("jobs %v", ids)
	}
}

func TestSacctMalformed(t *testing.T) {
	const (
		good    = "7|COMPLETED|1000|1010|1040|1100|60|30|gres/gpu=1|\n"
		notTime = " is not a time; write 2026-11-21T04:57:35, or seconds since 1970 (SLURM_TIME_FORMAT=%s)"
	)
	for _, c := range []struct{ text, want string }{
		{
			"7|COMPLETED|1000\n",
			"jobs:1: the table lacks column JobID, State, Submit, Start, ElapsedRaw, AllocTRES; " +
				"the columns are 7, COMPLETED, 1000",
		},
		{sacctHead + good + good, "jobs:3: job 7 is already on line 2; omit -D (--duplicates)"},
		{sacctHead + "7.batch" + good[1:], "jobs:2: the record of step batch precedes the record of its job 7"},
		{sacctHead + good[1:], "jobs:2: no JobID"},
		{sacctHead + "\n" + good + "8|COMP\"LETED\n", "jobs:4: the line has 2 values, but the table has 10 columns"},
		{sacctHead + good + "8|COMPLETED\n", "jobs:3: the line has 2 values, but the table has 10 columns"},
		{sacctHead + strings.Replace(good, "1010", "soon", 1), `jobs:2: column Eligible: "soon"` + notTime},
		{sacctHead + strings.Replace(good, "1040", "2026-13-01T00:00:00", 1),
			`jobs:2: column Start: "2026-13-01T00:00:00"` + notTime},
		{sacctHead + strings.Replace(good, "1040", "9223372036854775807", 1),
			`jobs:2: column Start: "9223372036854775807"` + notTime},
		{
			sacctHead + strings.Replace(good, "|60|", "|1:00|", 1),
			`jobs:2: column ElapsedRaw: "1:00" is not a number from 0 to 1e12`,
		},
		{
			sacctHead + strings.Replace(good, "|60|", "|1e308|", 1),
			`jobs:2: column ElapsedRaw: "1e308" is not a number from 0 to 1e12`,
		},
		{sacctHead + strings.Replace(good, "|30|", "|1-00:00:00|", 1),
			`jobs:2: column TimelimitRaw: "1-00:00:00" is not a number from 0 to 1e12, ` +
				`nor UNLIMITED or Partition_Limit`},
		{
			sacctHead + strings.Replace(good, "gpu=1", "gpu=one", 1),
			"jobs:2: column AllocTRES: gres/gpu=one is not a count",
		},
		{sacctHead + strings.Replace(good, "gpu=1", "gpu", 1), "jobs:2: column AllocTRES: gres/gpu is not a count"},
		{
			sacctHead + good + "7.0|COMPLETED|||||||cpu=1|gres/gpumem=many\n",
			`jobs:3: column TRESUsageInMax: "many" is not an amount such as 1234, 512K or 9.5G`,
		},
	} {
		_, err := Sacct("jobs", strings.NewReader(c.text))
		var at *LineError
		if !errors.As(err, &at) || err.Error() != c.want {
			t.Errorf("%q:\n%v, want\n%s", c.text, err, c.want)
		}
	}
}

func FuzzSacct(f *testing.F) {
	f.Add(sacctHead + "7|COMPLETED|1000|1010|1040|1100|60|30|gres/gpu=1|\n" +
		"7.0|COMPLETED|||||||cpu=1|gres/gpumem=3G,gres/gpuutil=20\n")
	f.Add("JobID|State|Submit|Start|ElapsedRaw|AllocTRES\n" +
		"1|COMPLETED|2026-11-21T04:57:35|2026-11-21T04:58:35|10|gres/gpu=1\n")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := Sacct("jobs", strings.NewReader(text))
		if err != nil {
			return
		}
		last := 0.0
		for _, j := range w.Jobs {
			if j.Submit < last || !(j.Duration >= 0) || j.Waited < 0 || j.MemoryMiB < 0 || j.Compute < 0 ||
				j.Compute > 1 {
				t.Errorf("%+v after %v", j, last)
			}
			last = j.Submit
		}
	})
}
