package tags

import (
	"testing"
	"time"

	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// TestLearned checks that the learned run time is at most the time limit, and that Learned returns 0 for an invalid
// value.
func TestLearned(t *testing.T) {
	for _, c := range []struct {
		comment           string
		limit             time.Duration
		learned, expected time.Duration
	}{
		{"", time.Hour, 0, time.Hour},
		{"", 0, 0, 0},
		{"caelum:key=x caelum:runs=600 JS1:a", time.Hour, 10 * time.Minute, 10 * time.Minute},
		{"caelum:runs=600", 0, 10 * time.Minute, 10 * time.Minute},
		{"caelum:runs=7200", time.Hour, time.Hour, time.Hour},
		{"caelum:runs=-1", time.Hour, 0, time.Hour},
		{"caelum:runs=600-900", time.Hour, 10 * time.Minute, 10 * time.Minute},
		{"caelum:runs=600-599", time.Hour, 0, time.Hour},
		{"caelum:runs=600-", time.Hour, 0, time.Hour},
		{"caelum:runs=-900", time.Hour, 0, time.Hour},
		{"caelum:runs=600-900-1", time.Hour, 0, time.Hour},
		{"caelum:runs=600-99999999999", time.Hour, 0, time.Hour},
		{"caelum:runs=99999999999999999999", time.Hour, 0, time.Hour},
		{"caelum:runs=", time.Hour, 0, time.Hour},
	} {
		j := slurm.Job{AdminComment: c.comment, TimeLimit: c.limit}
		if Learned(j) != c.learned || Expected(j) != c.expected {
			t.Errorf("%q, limit %v: learned %v, expected %v", c.comment, c.limit, Learned(j), Expected(j))
		}
	}
}

// TestBusyShare checks that only whole numbers from 0 to 100 with at most three digits are valid.
func TestBusyShare(t *testing.T) {
	for _, c := range []struct {
		comment string
		share   float64
		ok      bool
	}{
		{"", 0, false},
		{"caelum:sized=1g.5gb caelum:runs=600", 0, false},
		{"caelum:runs=600 caelum:busy=0 JS1:a", 0, true},
		{"caelum:busy=7", 0.07, true},
		{"caelum:busy=50 caelum:busy=60", 0.5, true},
		{"x:caelum:busy=50", 0, false},
		{"caelum:busy=100", 1, true},
		{"caelum:busy=101", 0, false},
		{"caelum:busy=999", 0, false},
		{"caelum:busy=0050", 0, false},
		{"caelum:busy=99999999999999999999", 0, false},
		{"caelum:busy=-1", 0, false},
		{"caelum:busy=+50", 0, false},
		{"caelum:busy=5e1", 0, false},
		{"caelum:busy=0x9", 0, false},
		{"caelum:busy=0.5", 0, false},
		{"caelum:busy=50%", 0, false},
		{"caelum:busy=x caelum:busy=50", 0, false},
		{"caelum:busy=", 0, false},
	} {
		if share, ok := BusyShare(slurm.Job{AdminComment: c.comment}); share != c.share || ok != c.ok {
			t.Errorf("%q: %v, %v", c.comment, share, ok)
		}
	}
}

// TestGrowth checks what the tags of a growth mean, with and without a replaced type, and for jobs that must not grow.
func TestGrowth(t *testing.T) {
	const grown = "JS1:x caelum:grow=forecast caelum:grown=1g.5gb:oom:4700,1g.10gb:oom:9000:1g.5gb caelum:sized=3g.20gb"
	for _, c := range []struct {
		comment, profile string
		sized            bool
		needed           string
		mode             predict.Cause
	}{
		{"", "1g.5gb", false, "", ""},
		{"caelum:sized=1g.5gb", "1g.5gb", true, "", ""},
		{"caelum:sized=1g.5gb caelum:grow=oom", "1g.5gb", true, "", predict.RanOutOfMemory},
		{"caelum:sized=1g.5gb caelum:grow=always", "1g.5gb", true, "", ""},
		{"caelum:sized=1g.5gb caelum:grow=oom", "2g.10gb", false, "", ""},
		{grown, "1g.5gb", true, "3g.20gb", predict.Foreseen},
		{grown, "3g.20gb", true, "", predict.Foreseen},
		{grown, "1g.10gb", false, "", ""}, // the user has changed the request
	} {
		j := slurm.Job{AdminComment: c.comment, Batch: true, Requeue: true,
			PerNode: slurm.GRESList{{Name: "gpu", Count: 1}, {Name: "mig", Type: c.profile, Count: 1}}}
		if Sized(j) != c.sized || Needed(j) != c.needed || GrowMode(j) != c.mode {
			t.Errorf("%q, %s: %v, %q, %q", c.comment, c.profile, Sized(j), Needed(j), GrowMode(j))
		}
		for _, change := range []func(*slurm.Job){
			func(j *slurm.Job) { j.Batch = false },
			func(j *slurm.Job) { j.Requeue = false },
			func(j *slurm.Job) { j.HetJob = 7 },
			func(j *slurm.Job) { j.PerNode = append(j.PerNode, slurm.GRES{Name: "mig", Type: "7g.40gb", Count: 1}) },
		} {
			other := j
			if change(&other); GrowMode(other) != "" {
				t.Errorf("%+v grows", other)
			}
		}
	}
}

// TestRegrown checks the tags after a growth. Another growth in the same run replaces the growth.
func TestRegrown(t *testing.T) {
	j := slurm.Job{AdminComment: "JS1:x  y caelum:sized=1g.5gb caelum:grow=oom"}
	for _, c := range []struct {
		larger, profile string
		mib             float64
		want            string
	}{
		{"1g.10gb", "1g.5gb", 4700, "1g.5gb:oom:4700 caelum:sized=1g.10gb"},
		{"2g.10gb", "1g.5gb", 4800, "1g.5gb:oom:4800 caelum:sized=2g.10gb"},
		{"3g.20gb", "2g.10gb", 9000, "1g.5gb:oom:4800,2g.10gb:oom:9000 caelum:sized=3g.20gb"},
	} {
		g := predict.Growth{Profile: c.profile, Cause: predict.RanOutOfMemory, MiB: c.mib}
		j.AdminComment = Regrown(j, c.larger, g)
		if want := "JS1:x  y caelum:grow=oom caelum:grown=" + c.want; j.AdminComment != want {
			t.Errorf("%q, want %q", j.AdminComment, want)
		}
	}
}

// TestRegrownRunTime checks that a growth converts the expected run time and its quantile to the larger profile, with
// the job's busy share or else 80%, once per growth. Invalid tags do not change.
func TestRegrownRunTime(t *testing.T) {
	for _, c := range []struct{ runs, busy, first, again, last string }{
		{"600-900", "caelum:busy=100", "300-450", "300-450", "172-258"},
		{"600", "caelum:busy=0", "600", "600", "600"},
		{"600", "", "360", "360", "258"}, // 600 (0.2 + 0.8/2), 600 (0.2 + 0.8/3.5)
		{"600", "caelum:busy=101", "360", "360", "258"},
		{"601-601", "caelum:busy=100", "301-301", "301-301", "172-172"}, // rounded up
		{"2147483647-2147483647", "caelum:busy=100", "1073741824-1073741824", "1073741824-1073741824",
			"613566757-613566757"},
		{"600-", "", "600-", "600-", "600-"},
		{"-1", "", "-1", "-1", "-1"},
		{"0", "", "0", "0", "0"},
	} {
		j := slurm.Job{AdminComment: "caelum:sized=1g.5gb caelum:runs=" + c.runs + " " + c.busy}
		for _, growth := range []struct{ from, larger, want string }{
			{"1g.5gb", "2g.10gb", c.first},
			{"1g.5gb", "2g.10gb", c.again}, // a repetition of the growth in the same run
			{"2g.10gb", "3g.20gb", c.last},
		} {
			g := predict.Growth{Profile: growth.from, Cause: predict.Foreseen, MiB: 1}
			j.AdminComment = Regrown(j, growth.larger, g)
			if got := Value(j.AdminComment, RunTime); got != growth.want {
				t.Errorf("%s, %q, on %s: %s, want %s", c.runs, c.busy, growth.larger, got, growth.want)
			}
		}
	}
	j := slurm.Job{AdminComment: "caelum:sized=1g.5gb"}
	if got := Regrown(j, "2g.10gb", predict.Growth{Profile: "1g.5gb", Cause: predict.Foreseen}); Has(got, RunTime) ||
		Value(got, RunTime) != "" {
		t.Errorf("a growth added a run time: %q", got)
	}
}

// TestExpectedEnd checks the expected end of a running job with and without a learned run time and a time limit.
func TestExpectedEnd(t *testing.T) {
	start := time.Unix(1e9, 0)
	for _, c := range []struct {
		comment    string
		limit, ran time.Duration
		takes      float64
		want       time.Duration // after the start; 0: unknown
	}{
		{"", time.Hour, time.Minute, 1, time.Hour},
		{"", 0, time.Minute, 1, 0},
		{"caelum:runs=600-600", time.Hour, time.Minute, 1, 10 * time.Minute},
		{"caelum:runs=600-600", time.Hour, time.Minute, 0.5, 5 * time.Minute},
		{"caelum:runs=600-600", time.Hour, time.Minute, 10, time.Hour},
		{"caelum:runs=600-600", time.Hour, 10 * time.Minute, 1, 11 * time.Minute},
		{"caelum:runs=600-600", time.Hour, 2 * time.Hour, 1, time.Hour},
		{"caelum:runs=600-1002", 0, 0, 1, 650 * time.Second},                                 // sigma 0.4
		{"caelum:runs=600", 0, 0, 1, 650 * time.Second},                                      // the same by default
		{"caelum:runs=600-1002", 0, 10 * time.Minute, 1, 852 * time.Second},                  // 600 e^0.08 x 2 Phi(0.4)
		{"caelum:runs=2147483647-2147483647", 0, time.Minute, 1e9, maxRunTime * time.Second}, // a time that is too long
	} {
		j := slurm.Job{AdminComment: c.comment, TimeLimit: c.limit, Start: start}
		if c.limit > 0 {
			j.End = start.Add(c.limit)
		}
		end, want := ExpectedEnd(j, c.takes, start.Add(c.ran)), time.Time{}
		if c.want > 0 {
			want = start.Add(c.want)
		}
		if off := end.Sub(want).Abs(); off > 2*time.Second {
			t.Errorf("%q, limit %v, after %v: %v, want %v", c.comment, c.limit, c.ran, end, want)
		}
	}
	if end := ExpectedEnd(slurm.Job{AdminComment: "caelum:runs=600"}, 1, start); !end.IsZero() {
		t.Errorf("without a start: %v", end)
	}
}
