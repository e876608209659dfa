package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
)

// top is the state of caelum top. Only the goroutine that calls run uses it.
type top struct {
	screen   tcell.Screen
	read     func(context.Context) ([]spans, error)
	interval time.Duration
	colours  bool

	lines    []spans   // the result of the last successful refresh
	at       time.Time // the time of the last successful refresh
	err      error     // the error of the last refresh
	failures int       // the number of failed refreshes since the last success
	key      time.Time // the time of the last key press
	asleep   bool      // no refresh is scheduled, because the user has not pressed a key for topUnattended
	head     int       // the number of lines that do not scroll
	first    int       // the number of lines after the head that have scrolled out of view
}

// refreshed is the result of a refresh.
type refreshed struct {
	lines []spans
	err   error
	took  time.Duration
}

// run shows the lines until the user quits or ctx is done.
func (t *top) run(ctx context.Context) {
	events, quit := make(chan tcell.Event), make(chan struct{})
	defer close(quit)
	go t.screen.ChannelEvents(events, quit)
	results := make(chan refreshed, 1) // a refresh may end after run has returned
	refresh := time.NewTimer(t.interval)
	defer refresh.Stop()
	for {
		t.draw()
		select {
		case <-ctx.Done():
			return
		case event, open := <-events:
			if !open || t.ends(event) {
				return
			}
			if t.asleep && time.Since(t.key) < topUnattended {
				t.asleep = false
				refresh.Reset(0)
			}
		case <-refresh.C:
			if time.Since(t.key) >= topUnattended {
				t.asleep = true
				continue
			}
			go func() {
				began := time.Now()
				lines, err := t.read(ctx)
				results <- refreshed{lines, err, time.Since(began)}
			}()
		case r := <-results:
			refresh.Reset(t.keep(r))
		}
	}
}

// keep stores the result of a refresh and returns the pause before the next one.
func (t *top) keep(r refreshed) time.Duration {
	if t.err = r.err; r.err == nil {
		t.lines, t.at, t.failures = r.lines, time.Now(), 0
	} else {
		t.failures++
	}
	return pauseOf(t.interval, r.took, t.failures)
}

// ends handles an event and reports whether the user wants to quit.
func (t *top) ends(event tcell.Event) bool {
	switch event := event.(type) {
	case *tcell.EventResize:
		t.screen.Sync()
	case *tcell.EventError:
		return true
	case *tcell.EventKey:
		t.key = time.Now()
		switch event.Key() {
		case tcell.KeyEscape, tcell.KeyCtrlC:
			return true
		case tcell.KeyUp:
			t.first--
		case tcell.KeyDown:
			t.first++
		case tcell.KeyPgUp:
			t.first -= t.body()
		case tcell.KeyPgDn:
			t.first += t.body()
		case tcell.KeyHome:
			t.first = 0
		case tcell.KeyRune:
			return event.Rune() == 'q'
		}
	}
	return false
}

// body returns the number of lines on the screen that scroll.
func (t *top) body() int {
	_, height := t.screen.Size()
	return max(1, height-1-t.head)
}

// draw shows the visible lines and, in the last line of the screen, the state of the refreshes.
func (t *top) draw() {
	width, height := t.screen.Size()
	t.first = max(0, min(t.first, len(t.lines)-t.head-t.body()))
	t.screen.Clear()
	for y := range height - 1 {
		k := y
		if y >= t.head {
			k += t.first
		}
		if k < len(t.lines) {
			t.put(y, width, t.lines[k])
		}
	}
	t.put(height-1, width, t.state())
	t.screen.Show()
}

// state returns the last line of the screen.
func (t *top) state() spans {
	switch {
	case t.asleep:
		return say(title, "no key pressed for %v; press any key to resume refreshing", topUnattended)
	case t.err != nil:
		return say(warning, "%s: couldn't refresh, trying again: %s", t.at.Format(time.TimeOnly),
			strings.ReplaceAll(t.err.Error(), "\n", " "))
	}
	more := ""
	if all := len(t.lines) - t.head; all > t.body() {
		more = fmt.Sprintf(", lines %d to %d of %d", t.first+1, t.first+t.body(), all)
	}
	return say(title, "%s, every %v%s, q: quit", t.at.Format(time.TimeOnly), t.interval, more)
}

// put draws one line, truncated to the width of the screen.
func (t *top) put(y, width int, l spans) {
	x := 0
	for _, s := range l {
		for _, c := range s.text {
			if x >= width {
				return
			}
			t.screen.SetContent(x, y, c, nil, t.style(s.tone))
			x++
		}
	}
}

// style returns the style of a tone. Without colours, styles differ only in bold and dim.
func (t *top) style(of tone) tcell.Style {
	style := tcell.StyleDefault
	colour := tcell.ColorDefault
	switch of {
	case title:
		style = style.Bold(true)
	case busy:
		colour = tcell.ColorGreen
	case idle:
		colour = tcell.ColorTeal
	case free:
		style = style.Dim(true)
	case blocked, warning:
		colour, style = tcell.ColorRed, style.Bold(true)
	}
	if !t.colours {
		return style
	}
	return style.Foreground(colour)
}
