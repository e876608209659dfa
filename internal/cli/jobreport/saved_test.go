package jobreport

import (
	"fmt"
	"testing"
	"time"

	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// TestSavedDays checks that a run counts on each of its days, that the days have the same sum as the total, and that a
// long period has at most maxDays elements. The run holds two 2g.10gb, a quarter of a GPU each, for 60 hours.
func TestSavedDays(t *testing.T) {
	start := time.Date(2026, 11, 2, 18, 0, 0, 0, time.UTC)
	run := record(func(a *slurm.Allocation) {
		slicesOf(a, "2g.10gb", 2)
		a.Start, a.End = start, start.Add(60*time.Hour)
	})
	d := Data{Records: []slurm.Allocation{run}, Site: predict.DefaultSite, Now: start.AddDate(0, 1, 0)}
	s := NewSaved(d, start.Add(-30*time.Hour), start.Add(40*time.Hour)) // from November 1, 12:00 to November 4, 10:00
	const want = "[{2026-11-01 0 0 0 0 0} {2026-11-02 0 12 3 0 0} {2026-11-03 0 48 12 0 0} {2026-11-04 0 20 5 0 0}]"
	if got := fmt.Sprint(s.Days); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := fmt.Sprint(s.Total, s.Users[0].Saves()); got != "{ 1 80 20 0 0} 60" {
		t.Error(got)
	}
	for days, want := range map[int]int{31: 31, 32: 16, 62: 31, 63: 21, 400: 31} {
		from := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
		if got := len(NewSaved(d, from, from.AddDate(0, 0, days)).Days); got != want {
			t.Errorf("%d days have %d elements, want %d", days, got, want)
		}
	}
}
