package predict

import "testing"

// TestInTime checks the choice of a profile for a time limit. The expected run times on the profiles of an A100 are,
// for a busy share of 80% and 3600 s on 1g.5gb: 2g 2160 s, 3g 1543 s, 4g 1440 s, 7g 1104 s. The 90% quantile is a
// quarter longer.
func TestInTime(t *testing.T) {
	all := []string{"7g.40gb", "1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "99g", "0g.99gb"}
	small := Line{"1g.5gb", 3600, 4500, 80}
	for _, c := range []struct {
		what  string
		run   Line
		floor string
		limit float64
		want  string
	}{
		{"no limit", small, "1g.5gb", 0, "1g.5gb"},
		{"the upper bound ends exactly at the limit", small, "1g.5gb", 4500, "1g.5gb"},
		{"a second less", small, "1g.5gb", 4499, "2g.10gb"},
		{"less memory in 1g.10gb is no reason to skip it, but it is not faster", small, "1g.5gb", 2701, "2g.10gb"},
		{"three slices", small, "1g.5gb", 2699, "3g.20gb"},
		{"the whole GPU", small, "1g.5gb", 1380, "7g.40gb"},
		{"only the expected run time on the whole GPU is short enough", small, "1g.5gb", 1104, "7g.40gb"},
		{"too short on every profile", small, "1g.5gb", 1103, "1g.5gb"},
		{"more memory than the line's profile", small, "3g.20gb", 1900, "4g.20gb"},
		{"less memory than the line's profile", Line{"3g.20gb", 1543, 1929, 80}, "1g.5gb", 2699, "3g.20gb"},
		{"an unknown busy share counts as 80%", Line{"1g.5gb", 3600, 4500, -1}, "1g.5gb", 2699, "3g.20gb"},
		{"a job that keeps no slice busy", Line{"1g.5gb", 3600, 4500, 0}, "1g.5gb", 3700, "7g.40gb"},
		{"which is no faster on any", Line{"1g.5gb", 3600, 4500, 0}, "1g.5gb", 3599, "1g.5gb"},
		{"no upper bound", Line{"1g.5gb", 3600, 0, 80}, "1g.5gb", 1200, "1g.5gb"},
		{"a variant is never changed", small, "1g.5gb+me", 1200, "1g.5gb+me"},
		{"the run time on a variant", Line{"1g.5gb+me", 3600, 4500, 80}, "1g.5gb", 1200, "1g.5gb"},
		{"the largest profile", Line{"7g.40gb", 3600, 4500, 80}, "7g.40gb", 60, "7g.40gb"},
		{"the longest figures", Line{"1g.5gb", 999999999, 999999999, 100}, "1g.5gb", 60 * 4294967293, "1g.5gb"},
	} {
		if got := c.run.InTime(c.floor, all, c.limit); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	if got := small.InTime("1g.5gb", nil, 60); got != "1g.5gb" {
		t.Errorf("without other profiles: %s", got)
	}
	if s, high := small.On("7g.40gb"); s != 1104 || high != 1380 {
		t.Errorf("%d and %d s on 7g.40gb", s, high)
	}
	if s, high := small.On("1g.5gb+me"); s != 3600 || high != 4500 {
		t.Errorf("%d and %d s on a variant", s, high)
	}
	if s, high := (Line{"1g.5gb+me", 3600, 4500, 80}).On("7g.40gb"); s != 3600 || high != 4500 {
		t.Errorf("%d and %d s from a variant", s, high)
	}
}
