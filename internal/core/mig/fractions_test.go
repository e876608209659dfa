package mig

import (
	"math/bits"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestFractions checks the names and sizes of fractions, and numbers of units that are impossible.
func TestFractions(t *testing.T) {
	for _, c := range []struct {
		memoryMiB uint64
		k         int
		want      string
	}{
		{46068, 4, "1f.11gb 2f.22gb"},
		{46068, 3, "1f.14gb"},
		{46068, 2, "1f.22gb"},
		{46068, 12, "1f.3gb 2f.7gb 4f.14gb"},
		{15360, 8, "1f.1gb 2f.3gb 4f.7gb"},
		{46068, 1, ""},
		{46068, MaxFractions + 1, ""},
		{8 << 10, 8, ""}, // 960 MiB each
		{0, 2, ""},
	} {
		b, err := Fractions("NVIDIA L40S", c.memoryMiB, c.k)
		if (err == nil) != (c.want != "") {
			t.Fatalf("%d MiB, %d units: %v", c.memoryMiB, c.k, err)
		}
		if err != nil {
			continue
		}
		var names []string
		for _, p := range b.Profiles {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != c.want || b.Type != "l40s" {
			t.Errorf("%d MiB, %d units: %s of %s, want %s", c.memoryMiB, c.k, got, b.Type, c.want)
		}
	}
}

// TestFractionsShare checks that fractions share a GPU's memory, except the driver's part, but not its compute slices:
// any fractions whose units do not overlap fit together. Each model derived from one with fractions still has them, and
// so has a model that is read from the list of its profiles.
func TestFractionsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memoryMiB := rapid.Uint64Range(13<<10, 200_000).Draw(t, "MiB")
		k := rapid.IntRange(MinFractions, 8).Draw(t, "k")
		b, err := Fractions("NVIDIA L40S", memoryMiB, k)
		if err != nil {
			t.Fatal(err)
		}
		f := b.WithFull(memoryMiB)
		read, err := NewModel("board", "gpu", "", k, f.Profiles)
		if err != nil {
			t.Fatal(err)
		}
		only := func(p Profile) bool { return p.Name == Full }
		for _, m := range []*Model{f, read, f.Select(only), read.Select(Plain)} {
			if m.Fractions != k || !m.WithoutMIG() || m.Compute() != k || !m.Holds("9g.12gb") {
				t.Errorf("%d units, without MIG: %v, compute %d", m.Fractions, m.WithoutMIG(), m.Compute())
			}
		}
		for _, l := range b.Layouts() {
			sum, units := uint64(0), 0
			for i := range l.Indices() {
				p := b.Profiles[b.Placements[i].Profile]
				sum, units = sum+p.MemoryMiB, units+p.Size
			}
			if sum > memoryMiB-driverMiB || units != bits.OnesCount64(b.Occupied(l)) || units > k {
				t.Errorf("%s: %d units, %d MiB of %d", b.Draw(l), units, sum, memoryMiB)
			}
		}
		ones := b.OfProfile(0)
		if ones.Count() != k || !f.Legal(ones) || !read.Legal(ones) || f.Legal(ones.Without(0)|f.Full()) {
			t.Errorf("the layouts of %d units are wrong", k)
		}
	})
}

// TestFractionNames checks which names are those of fractions, and that no name of a MIG profile is one.
func TestFractionNames(t *testing.T) {
	for name, want := range map[string]bool{
		"1f.11gb": true, "16f.100gb": true, "1g.10gb": false, "1f.11gb+me": false, "0f.11gb": false, "1f.0gb": false,
		"f.1gb": false, "1f.11": false, "x1f.11gb": false, "1f.1.5gb": false, "": false, Full: false,
	} {
		if IsFraction(name) != want {
			t.Errorf("%q: %v, want %v", name, !want, want)
		}
		if compute, gb := Claims(name); want && (compute != 0 || gb != 0) {
			t.Errorf("%q claims %d, %v", name, compute, gb)
		}
	}
	for _, b := range Models() {
		for _, p := range b.Profiles {
			if IsFraction(p.Name) {
				t.Errorf("%s: %s", b.Name, p.Name)
			}
		}
	}
}

// TestEquivalentFraction checks that only full is equivalent to a MIG profile, and that nothing is to a fraction.
func TestEquivalentFraction(t *testing.T) {
	for _, c := range []struct{ name, model, want string }{
		{"1f.11gb", "L40S-48GB/4", "1f.11gb"},
		{"2f.22gb", "L40S-48GB/4", "2f.22gb"},
		{"1f.22gb", "L40S-48GB/4", ""},
		{"1g.10gb", "L40S-48GB/4", Full},
		{"1g.10gb+me", "L40S-48GB/4", ""},
		{"1f.11gb", "L40S-48GB", ""},
		{"1f.11gb", "A100-40GB", ""},
		{"1f.11gb", "T4-16GB/2", ""},
	} {
		b, err := ModelByName(c.model)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := b.EquivalentProfile(c.name, b.all()); got != c.want || ok != (c.want != "") {
			t.Errorf("%s on %s: %q, want %q", c.name, c.model, got, c.want)
		}
	}
}

// TestOffers checks that a list of profiles restricts either the profiles of MIG or fractions, if it names no others.
func TestOffers(t *testing.T) {
	for _, c := range []struct {
		named string
		mig   bool // 2g.10gb
		frac  bool // 2f.22gb
	}{
		{"", true, true}, {"1g.5gb", false, true}, {"1f.11gb", true, false}, {"1g.5gb 1f.11gb", false, false},
		{"2g.10gb 2f.22gb", true, true},
	} {
		named := strings.Fields(c.named)
		if Offers(named, "2g.10gb") != c.mig || Offers(named, "2f.22gb") != c.frac {
			t.Errorf("%v offers 2g.10gb: %v, 2f.22gb: %v", named, !c.mig, !c.frac)
		}
	}
}

// TestModelsWithoutMIG checks the GPU models without MIG in models.txt.
func TestModelsWithoutMIG(t *testing.T) {
	for name, profiles := range map[string]int{"t4-16gb": 1, "V100-32GB": 1, "L40S-48GB/8": 4, "a40-48gb/3": 2} {
		b, err := ModelByName(name)
		if err != nil || !strings.EqualFold(b.Name, name) || len(b.Profiles) != profiles || !b.WithoutMIG() {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
	for name, want := range map[string]string{
		"L40S-48GB/1": "cannot have 1 units", "A100-40GB/4": "only a GPU without MIG", "L40S-48GB/x": "write the",
		"T4-16GB/12/2": "write the number", "T4-16GB/12": "", "L4": "unknown GPU model",
	} {
		if _, err := ModelByName(name); err == nil && want != "" || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
