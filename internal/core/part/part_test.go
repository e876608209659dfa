package part

import (
	"reflect"
	"testing"
	"time"
)

var example = Part{
	Beat:     "n1",
	Offers:   []Offer{{Spot{0, "1g.5gb", 6}, ""}, {Spot{1, "2g.20gb", 0}, "2g.10gb"}},
	Jobs:     []Job{{17, 0, []Spot{{0, "1g.5gb", 6}}}, {19, 18, []Spot{{1, "2g.20gb", 0}, {0, "1g.5gb", 6}}}},
	Held:     []uint32{17, 22},
	Stray:    []uint32{20},
	Reserved: &Reservation{21, 1763790000, []Spot{{0, "7g.40gb", 0}}},
}

func TestText(t *testing.T) {
	for _, p := range []Part{{}, {Beat: "n1"}, {Jobs: []Job{{17, 0, nil}}}, example} {
		if got, err := Parse(p.Text()); err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%s: %+v, %v", p.Text(), got, err)
		}
	}
	for _, text := range []string{
		"", "2;beat/n1", "1;offer/0:1g.5gb", "1;offer/-1:1g.5gb@0", "1;offer/0:@0", "1;job/x/0/0:1g.5gb@0", "1;new/1",
		"1;held/", "1;reserved/1/2", "1;offer/0:1g.5gb@0/a/b",
	} {
		if p, err := Parse(text); err == nil {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

// TestComment checks that the administrator's entries in a node's Comment stay unchanged.
func TestComment(t *testing.T) {
	comment := WithBeat(With("rack  7", example.Text()), "ab", 3)
	if In(comment) != example.Text() || BeatIn(comment) != "ab@3" {
		t.Errorf("%q", comment)
	}
	if got := With(comment, ""); got != "rack 7 caelum-beat=ab@3" {
		t.Errorf("%q", got)
	}
	if got := With("rack  7", ""); got != "rack  7" {
		t.Errorf("%q", got)
	}
}

func TestHeartbeat(t *testing.T) {
	var w HeartbeatAge
	at := time.Unix(1e9, 0)
	if w.Read("", at); w.Fresh(at, Expiry) {
		t.Error("no heartbeat is fresh")
	}
	w.Read("a@1", at)
	w.Read("a@1", at.Add(Expiry-1))
	if !w.Fresh(at.Add(Expiry-1), Expiry) || w.Fresh(at.Add(Expiry), Expiry) {
		t.Error("the age of a heartbeat does not begin when it is first read")
	}
	if w.Read("b@1", at.Add(time.Hour)); !w.Fresh(at.Add(time.Hour), Expiry) {
		t.Error("another planner's heartbeat is not fresh")
	}
}

// FuzzParse checks that no input makes Parse panic, and that formatting a parsed part and reparsing it changes
// nothing.
func FuzzParse(f *testing.F) {
	f.Add(example.Text())
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(p.Text()); err != nil || again.Text() != p.Text() {
			t.Errorf("%q: %q, %v", text, p.Text(), err)
		}
	})
}
