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
