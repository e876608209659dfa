package mig

import (
	"testing"

	"pgregory.net/rapid"
)

func drawModel(t *rapid.T) *Model {
	b := rapid.SampledFrom(Models()).Draw(t, "board")
	if rapid.Bool().Draw(t, "plain") {
		b = b.Select(Plain)
	}
	return b
}

func TestRemovingKeepsLegal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawModel(t)
		l := rapid.SampledFrom(b.Layouts()).Draw(t, "layout")
		for i := range l.Indices() {
			if less := l.Without(i); !b.Legal(less) || !b.Fits(less, i) {
				t.Errorf("%s is legal, but not without %s, or %[2]s does not fit back", b.Draw(l), b.Label(i))
			}
		}
	})
}

// TestAddingNeverOpens checks that adding an instance never increases the reach or opens a placement.
func TestAddingNeverOpens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawModel(t)
		l := rapid.SampledFrom(b.Layouts()).Draw(t, "layout")
		blocked := rapid.Uint64Range(0, 1<<b.Grid-1).Draw(t, "blocked") &^ b.Occupied(l)
		open := b.Open(l, blocked)
		for i := range open.Indices() {
			more := l.With(i)
			if !b.Legal(more) {
				t.Fatalf("%s is open alongside %s, but together they are not legal", b.Label(i), b.Draw(l))
			}
			if b.Open(more, blocked)&^open != 0 || b.Table().Info(more).CC >= b.Table().Info(l).CC {
				t.Errorf("%s opens placements alongside %s", b.Label(i), b.Draw(l))
			}
			if b.ReachBeside(more, 0) > b.ReachBeside(l, 0) ||
				b.ReachBeside(more, blocked) > b.ReachBeside(l, blocked) {
				t.Errorf("%s increases the reach of %s", b.Label(i), b.Draw(l))
			}
			if b.ReachBeside(more, 0) == 0 {
				t.Errorf("%s is legal, but not part of any maximal layout", b.Draw(more))
			}
		}
	})
}

func TestMaximalTakesNothing(t *testing.T) {
	for _, b := range Models() {
		for _, m := range b.Maximal() {
			if b.ReachBeside(m, 0) != 1 || b.Table().Info(m).CC != 0 {
				t.Errorf("%s: %s: reach %d, CC %d; want 1 and 0", b.Name, b.Draw(m), b.ReachBeside(m, 0),
					b.Table().Info(m).CC)
			}
		}
	}
}

func TestCarry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SampledFrom(Models()).Draw(t, "board")
		l := rapid.SampledFrom(b.Layouts()).Draw(t, "layout")
		plain := b.Select(Plain)
		carried, blocked := plain.Carry(b, l)
		if !plain.Legal(carried) || plain.Occupied(carried)|blocked != b.Occupied(l) ||
			plain.Occupied(carried)&blocked != 0 {
			t.Errorf("%s became %s", b.Draw(l), plain.DrawBeside(carried, blocked))
		}
		if back, none := b.Carry(plain, carried); back&^l != 0 || none != 0 {
			t.Errorf("%s came back as %s", plain.Draw(carried), b.Draw(back))
		}
	})
}

// TestMemory checks that every known memory size is at least what Memory returns for the same profile if its memory is
// unknown.
func TestMemory(t *testing.T) {
	for _, b := range Models() {
		for _, p := range b.Profiles {
			guess := p
			guess.MemoryMiB = 0
			if g := guess.Memory(); g < 1024 ||
				p.MemoryMiB > 0 && (p.Memory() != float64(p.MemoryMiB) || g > p.Memory() || g < 0.85*p.Memory()) {
				t.Errorf("%s %s: %v MiB, known %d", b.Name, p.Name, g, p.MemoryMiB)
			}
		}
	}
}

// TestWithFull checks that the `full` profile fits only on an empty GPU and adds exactly one maximal layout.
func TestWithFull(t *testing.T) {
	for _, b := range Models() {
		f := b.WithFull(81920)
		if f.Full().Count() != 1 || b.Full() != 0 {
			t.Fatalf("%s: %d and %d placements of full, want 1 and 0", b.Name, f.Full().Count(), b.Full().Count())
		}
		if got, want := len(f.Maximal()), len(b.Maximal())+1; got != want {
			t.Errorf("%s: %d maximal layouts, want %d", b.Name, got, want)
		}
		for i := range f.all().Indices() {
			if f.Legal(f.Full().With(i)) != f.Full().Has(i) {
				t.Errorf("%s: full fits alongside %s", b.Name, f.Label(i))
			}
		}
		if same := f.Select(func(p Profile) bool { return p.Name != Full }); len(same.Layouts()) != len(b.Layouts()) {
			t.Errorf("%s: full changes the layouts of slices", b.Name)
		}
	}
}
