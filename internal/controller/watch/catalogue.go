package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"caelum/internal/slurm"
)

// hideAgain is the minimum time between two attempts to hide the catalogue nodes.
const hideAgain = 30 * time.Second

// hideCatalogue sets catalogue nodes back to the state FUTURE. `scontrol update nodename=ALL state=resume` takes them
// out of it, and neither a reconfiguration nor a restart of slurmctld brings them back (22.05). sinfo then shows them,
// and slurmctld and sreport count them as nodes that are down.
func (w *Watcher) hideCatalogue(ctx context.Context, nodes []slurm.Node, now time.Time) error {
	if now.Before(w.hideNext) {
		return nil
	}
	var failed error
	for _, n := range nodes {
		if !n.Catalogue() || n.Is("FUTURE") {
			continue
		}
		w.hideNext = now.Add(hideAgain)
		if err := w.ctl.HideNode(ctx, n.Name); err != nil {
			failed = errors.Join(failed, fmt.Errorf("couldn't set the catalogue node %s to FUTURE: %w", n.Name, err))
			continue
		}
		w.log.WithField("node", n.Name).Info("set a catalogue node to FUTURE again")
	}
	return failed
}
