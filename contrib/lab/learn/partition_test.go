package main

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// resnet holds measurements of a machine-learning model that does not fit on the smallest profile with a batch size
// of 32.
var resnet = []Measured{
	{8, "1g.5gb", 0.2, 40, 3000}, {8, "2g.10gb", 0.1, 80, 3000}, {8, "7g.40gb", 0.08, 100, 3000},
	{32, "1g.5gb", 0.5, 64, 9000}, {32, "2g.10gb", 0.32, 100, 9000}, {32, "7g.40gb", 0.16, 200, 9000},
}

func TestPartitions(t *testing.T) {
	n, err := newNode()
	if err != nil {
		t.Fatal(err)
	}
	b := n.model
	for _, c := range []struct {
		batch   int
		goal    Goal
		profile string
		worth   float64
		all     int
	}{
		// On 1g.5gb, the base is the partition with batch 8 itself. On the other profiles, the base has batch 32, and
		// batch 8 has a shorter step and a lower throughput.
		{8, Goal{Lambda: 1}, "2g.10gb", (0.32 - 0.1) / 0.32, 3},
		{8, Goal{Lambda: 0}, "1g.5gb", 0, 3},
		{8, Goal{Lambda: 0.5}, "2g.10gb", 0.5*(0.32-0.1)/0.32 + 0.5*(80.-100)/100, 3},
		// On the smallest profile, batch size 8 misses the deadline.
		{8, Goal{Lambda: 0, Deadline: 0.15}, "2g.10gb", -0.2, 2},
		{8, Goal{Lambda: 0, Deadline: 0.11, Margin: 0.02}, "7g.40gb", -0.5, 1},
		// Batch size 32 does not fit on the smallest profile. On all others, batch size 32 is the base, so all values
		// are equal and the smallest profile comes first.
		{32, Goal{Lambda: 0.5}, "2g.10gb", 0, 2},
		{0, Goal{Lambda: 1}, "2g.10gb", (0.32 - 0.1) / 0.32, 5},
		{16, Goal{}, "", 0, 0},
		{8, Goal{Deadline: 0.01}, "", 0, 0},
	} {
		got := Partitions(b, resnet, c.batch, c.goal)
		if len(got) != c.all {
			t.Errorf("batch %d, %+v: %d choices, want %d", c.batch, c.goal, len(got), c.all)
			continue
		}
		if c.all > 0 && (got[0].Profile != c.profile || math.Abs(got[0].Worth-c.worth) > 1e-12) {
			t.Errorf("batch %d, %+v: %+v, want %s worth %v", c.batch, c.goal, got[0], c.profile, c.worth)
		}
	}
}

// TestPartitionsHold checks that every partition fits, meets the deadline and belongs to a measurement, and that the
// partitions are sorted by value.
func TestPartitionsHold(t *testing.T) {
	n, err := newNode()
	if err != nil {
		t.Fatal(err)
	}
	b := n.model
	names := []string{"1g.6gb"} // not a profile of the A100
	for _, p := range b.Profiles {
		names = append(names, p.Name)
	}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Measured {
			return Measured{
				rapid.IntRange(0, 4).Draw(t, "batch"), rapid.SampledFrom(names).Draw(t, "profile"),
				rapid.Float64Range(0, 2).Draw(t, "latency"),
				rapid.Float64Range(0, 100).Draw(t, "throughput"), rapid.Float64Range(0, 50000).Draw(t, "mib"),
			}
		})).Draw(t, "all")
		g := Goal{
			rapid.Float64Range(0, 1).Draw(t, "lambda"),
			rapid.Float64Range(0, 2).Draw(t, "deadline"),
			rapid.Float64Range(0, 1).Draw(t, "margin"),
		}
		got := Partitions(b, all, 0, g)
		for _, p := range got {
			if p.MiB > profile(b, p.Profile).Memory() || g.Deadline > 0 && p.Latency+g.Margin > g.Deadline ||
				p.Batch == 0 ||
				math.IsNaN(p.Worth) ||
				p.Worth > got[0].Worth {
				t.Fatalf("%+v of %+v by %+v", p, got, g)
			}
		}
	})
}
