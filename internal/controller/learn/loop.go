package learn

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// idle is the minimum pause between the passes of a Loop, as a multiple of the duration of the preceding pass. A pass
// takes 3 s for a repository with 100,000 runs of 5,000 keys.
const idle = 10

// Loop periodically runs a sync and writes the decision table.
type Loop struct {
	Every time.Duration // minimum pause between passes
	DBD   Accounting
	Repo  string // path of the repository
	Table string // path of the decision table
	Field slurm.AccountingField
	Site  predict.Site
	Log   *logrus.Entry

	failing bool // true if the last pass failed
}

// Run runs passes until ctx is done. Errors do not stop the loop, because slurmdbd may be unreachable for hours.
func (l *Loop) Run(ctx context.Context) {
	for next := time.NewTimer(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		began := time.Now()
		err := l.once(ctx)
		next.Reset(max(l.Every, idle*time.Since(began)))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !l.failing:
			l.Log.WithError(err).Warn("couldn't learn from earlier runs; the previously learned lines remain valid")
		case err != nil:
			l.Log.WithError(err).Debug("still couldn't learn from earlier runs")
		}
		l.failing = err != nil
	}
}

// once runs one pass. It opens the repository each time, because another program may have replaced the file since the
// previous pass.
func (l *Loop) once(ctx context.Context) error {
	r, err := repo.Open(l.Repo, func(text string) { l.Log.Error(text) })
	if err != nil {
		return err
	}
	defer r.Close()
	done, syncErr := Sync(ctx, l.DBD, r, l.Field, time.Time{}, time.Now())
	if done.New > 0 {
		l.Log.WithFields(logrus.Fields{"new": done.New, "jobs": done.Jobs}).Info("read the earlier runs from slurmdbd")
	}
	wrote, err := Write(l.Table, r, l.Site)
	if err == nil && wrote.Changed {
		l.Log.WithFields(logrus.Fields{"learned": wrote.Learned, "generation": wrote.Generation}).
			Info("decision table written")
	}
	return errors.Join(syncErr, err)
}
