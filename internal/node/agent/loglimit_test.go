package agent

import (
	"strings"
	"testing"
	"time"
)

// TestRefusalsAreLoggedOnceAMinute checks that the agent logs only one line per minute for any number of rejected
// calls.
func TestRefusalsAreLoggedOnceAMinute(t *testing.T) {
	w := newWorld(t, 1)
	for range 1000 {
		w.agent.Refused(20002, "POST")
	}
	lines := func() int { return strings.Count(w.log.String(), "lease change refused: caller is not root") }
	if n := lines(); n != 1 {
		t.Fatalf("%d lines", n)
	}
	w.fake.Advance(time.Minute)
	w.agent.Refused(20003, "DELETE")
	if text := w.log.String(); lines() != 2 || !strings.Contains(text, "refused=1000") ||
		!strings.Contains(text, "uid=20003") {
		t.Error(text)
	}
}
