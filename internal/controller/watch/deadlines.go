package watch

import (
	"maps"

	"github.com/sirupsen/logrus"

	"caelum/internal/core/offer"
	"caelum/internal/core/plan"
)

// deadlines contains the waiting jobs that the watcher has logged because they cannot meet their deadlines.
type deadlines map[uint32]bool

// report logs each waiting job that cannot meet its deadline, but only once while the job is waiting. If the job is
// held and released in the meantime, the line is not repeated, even though a held job is not part of the plan.
func (d deadlines) report(snapshot plan.Snapshot, v *plan.View, made offer.Plan, log *logrus.Entry) {
	waits := map[uint32]bool{}
	for k := range snapshot.Queue.Waiting {
		waits[snapshot.Queue.Waiting[k].ID] = true
	}
	maps.DeleteFunc(d, func(id uint32, _ bool) bool { return !waits[id] })
	missing := v.Misses(made)
	for _, j := range v.Jobs {
		if why, missed := missing[j.ID]; missed && !d[j.ID] {
			d[j.ID] = true
			log.WithField("job", j.ID).WithField("reason", why).Warn("a waiting job cannot meet its deadline")
		}
	}
}
