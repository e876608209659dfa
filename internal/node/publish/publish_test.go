package publish

import (
	"testing"
	"time"
)

// TestPauseAfterPass checks that the pause after a long pass is longer than the poll interval, but never several
// minutes.
func TestPauseAfterPass(t *testing.T) {
	for _, c := range []struct{ took, poll, pause time.Duration }{
		{100 * time.Millisecond, 15 * time.Second, 15 * time.Second},
		{time.Second, 15 * time.Second, 20 * time.Second},
		{10 * time.Minute, 15 * time.Second, time.Minute},
		{10 * time.Minute, 5 * time.Minute, 5 * time.Minute},
	} {
		if got := pauseAfter(c.took, c.poll); got != c.pause {
			t.Errorf("after %v, poll interval %v: %v, want %v", c.took, c.poll, got, c.pause)
		}
	}
}
