package publish

import (
	"errors"
	"testing"
	"time"
)

// TestBackoff checks the pauses after consecutive failures, and the first pause after a success.
func TestBackoff(t *testing.T) {
	b, failed := Backoff{First: time.Second, Most: 15 * time.Second}, errors.New("failed")
	for k, want := range []time.Duration{0, 1, 2, 4, 8, 15, 15, 15, 0, 1, 2} {
		want *= time.Second
		err := failed
		if want == 0 {
			err = nil
		}
		if got := b.Pause(err); got < want || got > want+want/4 {
			t.Errorf("after attempt %d: %v, want %v and up to a quarter more", k, got, want)
		}
	}
	short := Backoff{First: time.Second, Most: 100 * time.Millisecond}
	if got := short.Pause(failed); got < short.Most || got > short.Most*5/4 {
		t.Errorf("with a poll interval of 100 ms: %v", got)
	}
}
