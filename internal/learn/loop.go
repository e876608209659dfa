package learn

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/predict"
	"caelum/internal/repo"
	"caelum/internal/slurm"
)

// Every is how often a Loop does its work. At most so long, and as long as slurmdbd takes, a run is unknown to the next submission.
const Every = time.Minute

// Loop does a sync and writes the decision table, again and again.
type Loop struct {
	DBD   Accounting
	Repo  string // path
	Table string // path
	Field slurm.AccountingField
	Site  predict.Site
	Log   *logrus.Entry

	failing string // what was said last, so that it is said once
}

// Run works until ctx ends. Nothing ends it before: slurmdbd may be away for hours.
func (l *Loop) Run(ctx context.Context) {
	for next := time.NewTimer(0); ; next.Reset(Every) {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		err := l.once(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			l.failing = ""
		case err.Error() != l.failing:
			l.failing = err.Error()
			l.Log.WithError(err).Warn("couldn't learn from earlier runs; what was learned before stays in force")
		}
	}
}

// once opens the repository anew each time: it may have been moved away meanwhile.
func (l *Loop) once(ctx context.Context) error {
	r, err := repo.Open(l.Repo)
	if err != nil {
		return err
	}
	defer r.Close()
	if r.SetAside != "" {
		l.Log.Error(r.SetAside)
	}
	done, syncErr := Sync(ctx, l.DBD, r, l.Field, time.Time{}, time.Now())
	if done.New > 0 {
		l.Log.WithFields(logrus.Fields{"new": done.New, "jobs": done.Jobs}).Info("read what earlier runs have used")
	}
	wrote, err := Write(l.Table, r, l.Site)
	if err == nil && wrote.Changed {
		l.Log.WithFields(logrus.Fields{"learned": wrote.Learned, "generation": wrote.Generation}).Info("wrote the decision table")
	}
	return errors.Join(syncErr, err)
}
