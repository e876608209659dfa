package mig

import (
	"testing"

	"pgregory.net/rapid"
)

func TestDrawParseRoundTrip(t *testing.T) {
	for _, b := range Models() {
		for _, b := range []*Model{b, b.Select(Plain)} {
			width := len(b.Draw(0))
			for _, l := range b.Layouts() {
				s := b.Draw(l)
				if got, err := b.Parse(s); err != nil || got != l {
					t.Errorf("%s: %s parsed as %s, %v", b.Name, s, b.List(got), err)
				}
				if len(s) != width {
					t.Errorf("%s: %s has %d characters, the empty GPU %d", b.Name, s, len(s), width)
				}
			}
		}
	}
}

func TestDrawBlockedRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawModel(t)
		l := rapid.SampledFrom(b.Layouts()).Draw(t, "layout")
		blocked := rapid.Uint64Range(0, 1<<b.Grid-1).Draw(t, "blocked") &^ b.Occupied(l)
		s := b.DrawBeside(l, blocked)
		gotLayout, gotBlocked, err := b.ParseBeside(s)
		if err != nil || gotLayout != l || gotBlocked != blocked {
			t.Errorf("%s parsed as %s, %v", s, b.DrawBeside(gotLayout, gotBlocked), err)
		}
		if _, err := b.Parse(s); (err == nil) != (blocked == 0) {
			t.Errorf("Parse of %s: %v; want an error exactly when units are blocked", s, err)
		}
	})
}

// FuzzParse checks that every parsed layout is legal, and that its drawing parses to the same layout.
func FuzzParse(f *testing.F) {
	models := Models()
	for n, b := range models {
		f.Add(n, b.Draw(0))
		for _, m := range b.Maximal()[:min(3, len(b.Maximal()))] {
			f.Add(n, b.Draw(m))
		}
	}
	f.Add(1, "|3g.20gb|1g.5gb|.|.|.|")
	f.Add(1, "|7g.40gb")
	f.Add(1, "||")
	f.Add(12, "|1g.24gb+me.all|###|.|.|1g.24gb-me|.|.|")
	f.Fuzz(func(t *testing.T, n int, s string) {
		b := models[uint(n)%uint(len(models))]
		l, blocked, err := b.ParseBeside(s)
		if err != nil {
			return
		}
		if !b.Legal(l) || b.Occupied(l)&blocked != 0 {
			t.Fatalf("%q parsed as %s, which is not legal", s, b.List(l))
		}
		if l2, blocked2, err := b.ParseBeside(b.DrawBeside(l, blocked)); l2 != l || blocked2 != blocked || err != nil {
			t.Fatalf(
				"%q parsed as %s, drawn %s, parsed as %s, %v",
				s,
				b.List(l),
				b.DrawBeside(l, blocked),
				b.List(l2),
				err,
			)
		}
	})
}
