package plan

import (
	"strings"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

// TestWholeShare checks that the plan applies whole_share, and that a job's explanation names it.
func TestWholeShare(t *testing.T) {
	b := model(t, "H100-80GB").Select(mig.Plain).WithFull(80 << 10)
	g := place.GPU{Model: b, Offerable: b.Open(0, 0)}
	snapshot := snapshotOf([]slurm.Node{node(t, "n1", g, g)},
		waits(1, mig.Full, 2, 1), waits(2, "7g.80gb", 1, 1), waits(3, "7g.80gb", 1, 1))
	for k := range snapshot.Queue.Waiting {
		snapshot.Queue.Waiting[k].Submit = snapshot.At
		snapshot.Queue.All = append(snapshot.Queue.All, *snapshot.Queue.Waiting[k].Job)
	}
	for _, c := range []struct {
		share   float64
		verdict Verdict
		text    string
	}{
		{1, Planned, "room for full x2 is free on n1"},
		{0.25, First, "room for full x2 is reserved on n1"},
		{0, First, "room for full x2 is reserved on n1"},
	} {
		settings, err := ParseSettings("lifetime", SizingAdaptive, c.share)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Explain(snapshot, settings, 1)
		if err != nil || e.Verdict != c.verdict || !strings.Contains(e.Text, c.text) {
			t.Errorf("whole_share %v: %s (%s), %v; want %s and %q", c.share, e.Verdict, e.Text, err, c.verdict, c.text)
		}
	}
	// A third job waits for a slice and gets the reservation, so the job for full GPUs gets neither.
	snapshot.Queue.Waiting = append(snapshot.Queue.Waiting, waits(4, "7g.80gb", 1, 1))
	snapshot.Queue.Waiting[3].Submit = snapshot.At
	snapshot.Queue.All = append(snapshot.Queue.All, *snapshot.Queue.Waiting[3].Job)
	for share, text := range map[float64]string{
		0.25: "would exceed whole_share (0.25)", 0: "after it has waited for 48h",
	} {
		settings, err := ParseSettings("lifetime", SizingAdaptive, share)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Explain(snapshot, settings, 1)
		if err != nil || e.Verdict != OverQuota || !strings.Contains(e.Text, text) {
			t.Errorf("whole_share %v: %s (%s), %v", share, e.Verdict, e.Text, err)
		}
	}
	// After two days in the queue, the job for full GPUs no longer waits for those for slices.
	settings, err := ParseSettings("lifetime", SizingAdaptive, 0)
	if err != nil {
		t.Fatal(err)
	}
	snapshot.Queue.Waiting[0].Submit = snapshot.At.Add(-48 * time.Hour)
	if e, err := Explain(snapshot, settings, 1); err != nil || e.Verdict != Planned {
		t.Errorf("after two days: %s (%s), %v", e.Verdict, e.Text, err)
	}
}
