package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"caelum/internal/cli/overview"
)

// simulated returns a top on a simulated screen with the given size. Each refresh returns the next element of results.
func simulated(t *testing.T, width, height int, colours bool, results ...refreshed) (*top, tcell.SimulationScreen) {
	t.Helper()
	screen := tcell.NewSimulationScreen("UTF-8")
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	screen.SetSize(width, height)
	read := func(context.Context) ([]spans, error) {
		r := results[0]
		results = results[min(1, len(results)-1):]
		return r.lines, r.err
	}
	lines, _ := read(t.Context())
	return &top{
		screen: screen, read: read, interval: time.Millisecond, colours: colours, lines: lines, at: time.Now(),
		key: time.Now(),
	}, screen
}

// shown returns the lines of a screen.
func shown(screen tcell.Screen) (lines []string) {
	width, height := screen.Size()
	for y := range height {
		var line strings.Builder
		for x := range width {
			text, _, _ := screen.Get(x, y)
			line.WriteString(text)
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return lines
}

// TestTop runs top until a key ends it. A failed refresh must not remove the lines of the last successful one.
func TestTop(t *testing.T) {
	var lines []spans
	for k := range 9 {
		lines = append(lines, say(busy, "line %d", k))
	}
	view, screen := simulated(t, 30, 5, true, refreshed{lines: lines}, refreshed{err: errors.New("no answer")})
	view.head = 1
	done := make(chan struct{})
	go func() { view.run(t.Context()); close(done) }()
	until := func(want ...string) {
		t.Helper()
		var got []string
		for range 500 {
			got = shown(screen)
			if strings.HasPrefix(strings.Join(got, "\n")+"\n", strings.Join(want, "\n")+"\n") &&
				strings.Contains(got[4], "couldn't refresh") {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("the screen shows %q, want %q", got, want)
	}
	until("line 0", "line 1", "line 2", "line 3")
	screen.InjectKey(tcell.KeyDown, 0, 0)
	until("line 0", "line 2", "line 3", "line 4")
	screen.InjectKey(tcell.KeyPgDn, 0, 0)
	screen.InjectKey(tcell.KeyPgDn, 0, 0)
	until("line 0", "line 6", "line 7", "line 8")
	screen.InjectKey(tcell.KeyHome, 0, 0)
	until("line 0", "line 1", "line 2")
	screen.InjectKey(tcell.KeyRune, 'q', 0)
	<-done
}

// TestTones checks the colours of a row of units, and that NO_COLOR removes them.
func TestTones(t *testing.T) {
	row := unitsOf(overview.GPU{Units: 8, Row: "3===~..#"})
	if len(row) != 4 || row[0] != (span{"3===", busy}) || row[3] != (span{"#", blocked}) {
		t.Errorf("%+v", row)
	}
	for _, colours := range []bool{true, false} {
		view, screen := simulated(t, 8, 2, colours, refreshed{lines: []spans{row}})
		view.draw()
		seen := map[tcell.Color]bool{}
		for x := range 8 {
			_, style, _ := screen.Get(x, 0)
			colour, _, _ := style.Decompose()
			seen[colour] = true
		}
		if want := map[bool]int{true: 4, false: 1}[colours]; len(seen) != want {
			t.Errorf("with colours %v, the row has the colours %v, want %d", colours, seen, want)
		}
	}
}

// TestLegend checks that the legend fits on a screen with 80 columns.
func TestLegend(t *testing.T) {
	lines := allNodes([]overview.Node{{Name: "n1"}})
	if legend := lines[len(lines)-1]; legend.width() > 80 || legend[0].text != "UNITS: " {
		t.Errorf("the legend has %d columns: %v", legend.width(), legend)
	}
}

// TestPause checks that a slow slurmctld and errors make the refreshes less frequent.
func TestPause(t *testing.T) {
	for _, c := range []struct {
		took     time.Duration
		failures int
		want     time.Duration
	}{
		{10 * time.Millisecond, 0, 15 * time.Second},
		{time.Second, 0, 20 * time.Second},
		{time.Hour, 0, time.Minute},
		{0, 1, 30 * time.Second},
		{0, 2, time.Minute},
		{0, 1 << 30, time.Minute},
	} {
		if got := pauseOf(topInterval, c.took, c.failures); got != c.want {
			t.Errorf("%v after %v and %d failures, want %v", got, c.took, c.failures, c.want)
		}
	}
	if got := pauseOf(10*time.Minute, 0, 3); got != 10*time.Minute {
		t.Errorf("%v, but --interval is longer than topLongest", got)
	}
}

// TestUnattended checks that top stops the refreshes if the user presses no key, and that a key starts them again.
func TestUnattended(t *testing.T) {
	view, screen := simulated(t, 60, 3, true,
		refreshed{lines: []spans{say(busy, "old")}}, refreshed{lines: []spans{say(busy, "new")}})
	view.key = time.Now().Add(-topUnattended)
	done := make(chan struct{})
	go func() { view.run(t.Context()); close(done) }()
	until := func(first, last string) {
		t.Helper()
		for range 500 {
			if got := shown(screen); got[0] == first && strings.Contains(got[2], last) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("the screen shows %q", shown(screen))
	}
	until("old", "press any key")
	screen.InjectKey(tcell.KeyDown, 0, 0)
	until("new", "q: quit")
	screen.InjectKey(tcell.KeyEscape, 0, 0)
	<-done
}
