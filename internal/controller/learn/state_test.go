package learn

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
)

// TestState checks the state of learning in a repository before its first sync, after it, and after a sync failed for
// more than an hour.
func TestState(t *testing.T) {
	r, err := repo.OpenAsItIs(filepath.Join(t.TempDir(), "repo.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := StateOf(r)
	if err != nil || s != (State{}) || !s.Stuck(began) {
		t.Errorf("an empty repository: %+v, %v", s, err)
	}
	for k := range 3 {
		n := predict.Run{
			Job: uint32(1 + k), Node: "n1", GPUType: "a100", Profile: "1g.5gb", Slices: 1, State: "COMPLETED",
			Start: began.Unix() + int64(100*k), Seconds: 50, Util: -1,
		}
		if _, err := r.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.SetNote(noteSynced, strconv.FormatInt(began.Unix()+400, 10)); err != nil {
		t.Fatal(err)
	}
	s, err = StateOf(r)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	if err != nil || s.Runs != 3 || !s.First.Equal(began) || !s.Newest.Equal(at(250)) || !s.Synced.Equal(at(400)) {
		t.Errorf("%+v, %v", s, err)
	}
	since := ", with 3 runs since " + began.Format(time.DateOnly)
	if got := s.String(at(4000)); got != "learning is on"+since {
		t.Error(got)
	}
	const stopped = "learning is off or has stopped: slurmdbd was last read on "
	if got := s.String(at(4001)); !strings.HasPrefix(got, stopped) ||
		!strings.HasSuffix(got, since) {
		t.Error(got)
	}
}
