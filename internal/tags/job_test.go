package tags

import (
	"testing"
	"time"

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
