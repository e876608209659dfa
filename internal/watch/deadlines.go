package watch

import (
	"github.com/sirupsen/logrus"

	"caelum/internal/offer"
	"caelum/internal/plan"
)

// deadlines contains the waiting jobs that the watcher has logged because they cannot meet their deadlines.
type deadlines map[uint32]bool

// report logs each waiting job that cannot meet its deadline. It logs a job again only if the job could meet its
// deadline in the meantime.
func (d deadlines) report(v *plan.View, made offer.Plan, log *logrus.Entry) {
	missing := v.Misses(made)
	for id := range d {
		if _, still := missing[id]; !still {
			delete(d, id)
		}
	}
	for _, j := range v.Jobs {
		if why, missed := missing[j.ID]; missed && !d[j.ID] {
			d[j.ID] = true
			log.WithField("job", j.ID).WithField("reason", why).Warn("a waiting job cannot meet its deadline")
		}
	}
}
