package plan

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

// drawGPUs returns random GPUs of a node, of any GPU model and with any layout, including profile variants. Some of
// them have idle instances or blocked units.
func drawGPUs(t *rapid.T) []place.GPU {
	gpus := make([]place.GPU, rapid.IntRange(1, 4).Draw(t, "gpus"))
	for k := range gpus {
		if rapid.IntRange(0, 5).Draw(t, "managed") == 0 {
			continue
		}
		all := append(mig.Models(), placetest.WithoutMIG()...)
		b := all[rapid.IntRange(0, len(all)-1).Draw(t, "board")]
		g := place.GPU{Model: b, Offerable: plain(b)}
		if rapid.IntRange(0, 3).Draw(t, "few") == 0 {
			g.Offerable = b.OfProfile(0)
		}
		m := b.Maximal()
		for i := range m[rapid.IntRange(0, len(m)-1).Draw(t, "layout")].Indices() {
			switch rapid.IntRange(0, 3).Draw(t, "state") {
			case 0:
				g.Idle = g.Idle.With(i)
			case 1:
				g.Blocked |= b.Units(i)
			case 2:
				g.Busy = g.Busy.With(i)
				g.Expect(i, float64(rapid.IntRange(1, 2_000_000_000).Draw(t, "end")))
			}
		}
		gpus[k] = g
	}
	return gpus
}

// TestTextTells checks that a node's text tells which units are occupied, when they are expected to become free, and
// which placements may be offered.
func TestTextTells(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := drawGPUs(t)
		since := time.Unix(int64(rapid.IntRange(0, 2_000_000_000).Draw(t, "since")), 0)
		private := rapid.Bool().Draw(t, "private")
		text := Text(State{gpus, since, private})
		if strings.ContainsAny(text, " \n\t\"") {
			t.Fatalf("not one word: %s", text)
		}
		read, err := Parse(text)
		if err != nil || len(read.GPUs) != len(gpus) || !read.Since.Equal(since) {
			t.Fatalf("%d GPUs of %d, since %v, %v: %s", len(read.GPUs), len(gpus), read.Since, err, text)
		}
		for k, g := range gpus {
			r := read.GPUs[k]
			if (g.Model == nil) != (r.Model == nil) {
				t.Fatalf("GPU %d: managed %v", k, r.Model != nil)
			}
			if g.Model == nil {
				continue
			}
			if r.Model.Occupied(r.Busy)|r.Blocked != g.Model.Occupied(g.Busy)|g.Blocked {
				t.Fatalf("GPU %d: other units are taken: %s", k, text)
			}
			for i := range g.Model.Placements {
				pl := g.Model.Placements[i]
				name := g.Model.Profiles[pl.Profile].Name
				j, known := r.Model.Placement(name, pl.Start)
				if g.Offerable.Has(i) != (known && r.Offerable.Has(j)) {
					t.Fatalf("GPU %d: %s may be given out: %v", k, g.Model.Label(i), g.Offerable.Has(i))
				}
				if !known {
					continue
				}
				if g.Busy.Has(i) != r.Busy.Has(j) || g.Idle.Has(i) != r.Idle.Has(j) {
					t.Fatalf("GPU %d: %s is in another state", k, g.Model.Label(i))
				}
				if private && r.Ends != nil {
					t.Fatalf("GPU %d: ends are private: %s", k, text)
				}
				if g.Busy.Has(i) && !private && g.Ends[i] != r.Ends[j] {
					t.Fatalf("GPU %d: %s ends at %v, not %v", k, g.Model.Label(i), g.Ends[i], r.Ends[j])
				}
			}
		}
		// All planners use the same state, because formatting a state and reparsing it changes nothing.
		if again, err := Parse(Text(read)); err != nil || !reflect.DeepEqual(again, read) {
			t.Fatalf("%v: the state has changed: %s", err, text)
		}
	})
}

// TestSameModelOnce checks that two nodes with the same GPU model have the same *mig.Model, because policies compare
// GPU models by pointer.
func TestSameModelOnce(t *testing.T) {
	b := model(t, "H100-80GB")
	text := Text(State{GPUs: []place.GPU{{Model: b, Offerable: plain(b)}}})
	one, err1 := Parse(text)
	two, err2 := Parse(text)
	if err1 != nil || err2 != nil || one.GPUs[0].Model != two.GPUs[0].Model {
		t.Errorf("%v, %v, %p and %p", err1, err2, one.GPUs[0].Model, two.GPUs[0].Model)
	}
}

// TestExtraOfOthers checks that the administrator's entries in Extra stay unchanged.
func TestExtraOfOthers(t *testing.T) {
	for _, c := range []struct{ extra, with, without string }{
		{"", "caelum=1;none", ""},
		{"rack=7", "rack=7 caelum=1;none", "rack=7"},
		{"caelum=0 rack=7 caelum=x", "rack=7 caelum=1;none", "rack=7"},
	} {
		with := WithState(c.extra, "1;none")
		if with != c.with || StateIn(with) != "1;none" || WithState(with, "") != c.without {
			t.Errorf("%q: %q, read %q, without %q", c.extra, with, StateIn(with), WithState(with, ""))
		}
	}
}

// FuzzParse checks that no input makes Parse panic or return an illegal GPU, because administrators can write
// anything into a node's Extra.
func FuzzParse(f *testing.F) {
	b := model(f, "A30-24GB")
	f.Add(Text(State{GPUs: []place.GPU{{Model: b, Offerable: plain(b), Blocked: 1}, {}}}))
	f.Add("1;board/8;profile/1g.5gb/1/1/7/0.0.0.0/0.1.2;gpu/1g.5gb@0=1,~1g.5gb@1,!80")
	f.Add("1;gpu/;board/99999999999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		for _, g := range s.GPUs {
			if g.Model != nil && (!g.Model.Legal(g.Busy|g.Idle) || g.Busy&g.Idle != 0) {
				t.Errorf("%q: a GPU with an illegal layout", text)
			}
		}
	})
}

// TestTextFractions checks the text of a GPU with fractions, which must tell their memory and that they share compute
// slices.
func TestTextFractions(t *testing.T) {
	b := model(t, "L40S-48GB/4")
	g := place.GPU{Model: b, Offerable: b.Open(0, 0)}
	for _, start := range []int{0, 1} {
		i, _ := b.Placement("1f.11gb", start)
		g.Hold(i, 1e9)
	}
	text := Text(State{GPUs: []place.GPU{g}, Since: time.Unix(7, 0)})
	const want = "1;since/7;board/4;profile/1f.11gb/4/1/4/-1.-1.-1.-1/0.1.2.3/11389;" +
		"profile/2f.22gb/4/2/2/-1.-1.-1.-1/0.2/22778;profile/full/4/4/1/-1.-1.-1.-1/0/46068;" +
		"gpu/1f.11gb@0=1000000000,1f.11gb@1=1000000000"
	if text != want {
		t.Errorf("%s, want %s", text, want)
	}
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if r := s.GPUs[0].Model; r.Fractions != 4 || !r.WithoutMIG() || !r.Holds("1g.40gb") || r.Holds("1g.46gb") {
		t.Errorf("%d fractions", r.Fractions)
	}
}
