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

// idle is how many times as long as its work takes a Loop rests at least: of a repository with 100,000 runs of 5,000
// keys the work takes 3 s.
const idle = 10

// Loop does a sync and writes the decision table, again and again.
type Loop struct {
	Every time.Duration // at most so long, and as long as it takes, a run is unknown to the next submission
	DBD   Accounting
	Repo  string // path
	Table string // path
	Field slurm.AccountingField
	Site  predict.Site
	Log   *logrus.Entry

	failing bool // it has been said
}

// Run works until ctx ends. Nothing ends it before: slurmdbd may be away for hours.
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
			l.Log.WithError(err).Warn("couldn't learn from earlier runs; what was learned before stays in force")
		case err != nil:
			l.Log.WithError(err).Debug("still couldn't learn from earlier runs")
		}
		l.failing = err != nil
	}
}

// once opens the repository anew each time: it may have been moved away meanwhile.
func (l *Loop) once(ctx context.Context) error {
	r, err := repo.Open(l.Repo, func(text string) { l.Log.Error(text) })
	if err != nil {
		return err
	}
	defer r.Close()
	done, syncErr := Sync(ctx, l.DBD, r, l.Field, time.Time{}, time.Now())
	if done.New > 0 {
		l.Log.WithFields(logrus.Fields{"new": done.New, "jobs": done.Jobs}).Info("read what earlier runs have used")
	}
	wrote, err := Write(l.Table, r, l.Site)
	if err == nil && wrote.Changed {
		l.Log.WithFields(logrus.Fields{"learned": wrote.Learned, "generation": wrote.Generation}).
			Info("wrote the decision table")
	}
	return errors.Join(syncErr, err)
}
