package watch

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/slurm"
)

// hider records the nodes that the watcher hides.
type hider struct {
	Slurmctld
	hidden []string
	err    error
}

func (h *hider) HideNode(_ context.Context, name string) error {
	h.hidden = append(h.hidden, name)
	return h.err
}

// TestHideCatalogue checks that the watcher hides only catalogue nodes that are visible, and pauses between attempts.
func TestHideCatalogue(t *testing.T) {
	mig := func(kinds ...string) (list slurm.GRESList) {
		for _, kind := range kinds {
			list = append(list, slurm.GRES{Name: "mig", Type: kind, Count: 2})
		}
		return list
	}
	nodes := []slurm.Node{
		{Name: "n1", States: []string{"IDLE"}, Gres: mig("1g.5gb", "closed")},
		{Name: "v1", States: []string{"DOWN"}, Gres: mig("1g.5gb")},
		{Name: "mig-catalog1", States: []string{"FUTURE"}, Gres: mig("1g.5gb")},
		{Name: "mig-catalog2", States: []string{"IDLE", "NOT_RESPONDING"}, Gres: mig("1g.5gb")},
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	h := &hider{err: errors.New("no answer")}
	w := &Watcher{ctl: h, log: logrus.NewEntry(log)}
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		after time.Duration
		fails bool
		want  int
	}{{0, true, 1}, {time.Second, false, 1}, {hideAgain, true, 2}} {
		err := w.hideCatalogue(t.Context(), nodes, now.Add(c.after))
		if (err != nil) != c.fails || len(h.hidden) != c.want {
			t.Errorf("after %v: %v, %v", c.after, h.hidden, err)
		}
	}
	if !slices.Equal(slices.Compact(h.hidden), []string{"mig-catalog2"}) {
		t.Errorf("hid %v", h.hidden)
	}
}
