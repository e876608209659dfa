package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
)

// TestPatternsAreRead checks that ParsePattern parses the output of Names and returns a pattern with the same profiles.
func TestPatternsAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := mig.Models()
		b := all[rapid.IntRange(0, len(all)-1).Draw(t, "model")].Select(mig.Plain)
		var p Pattern
		for range rapid.IntRange(1, 5).Draw(t, "layouts") {
			l := b.Layouts()[rapid.IntRange(0, len(b.Layouts())-1).Draw(t, "layout")]
			if l == 0 {
				l = b.Maximal()[0]
			}
			p = append(p, slices.Repeat(Pattern{l}, rapid.IntRange(1, 3).Draw(t, "times"))...)
		}
		text := p.Names(b)
		read, err := ParsePattern(b, text)
		same := func(x, y mig.Layout) bool { return (Pattern{x}).Names(b) == (Pattern{y}).Names(b) }
		if err != nil || !slices.EqualFunc(read, p, same) {
			t.Fatalf("%s: %v, %v", text, read.Names(b), err)
		}
	})
}

func TestNoSuchPattern(t *testing.T) {
	b := gpus(t, "A100-40GB", 1)[0]
	for text, want := range map[string]string{
		"":                     `the GPU model A100-40GB does not support the layout ""`,
		"7g.40gb /":            `the GPU model A100-40GB does not support the layout ""`,
		"4g.20gb 4g.20gb":      `the GPU model A100-40GB does not support the layout "4g.20gb 4g.20gb"`,
		"7g.40gb / 0 x (none)": `"0 x (none)": the number before x must be from 1 to 1000`,
		"9g.90gb":              `the GPU model A100-40GB does not support the layout "9g.90gb"`,
	} {
		if _, err := ParsePattern(b, text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
