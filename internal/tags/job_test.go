package tags

import (
	"testing"
	"time"

	"caelum/internal/slurm"
)

// TestLearned checks that the learned run time is at most the time limit, and that an invalid value is treated as
// unknown.
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
