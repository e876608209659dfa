package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"caelum/internal/config"
	"caelum/internal/controller/learn"
	"caelum/internal/slurm"
)

// Learning is what the repository and slurmdbd show about learning on slurmctld's host.
type Learning struct {
	learn.State
	Now time.Time // the time at which the state was read; zero if it was not read
	// Ended is the number of runs on slices that ended in the last day, but not in the last hour, because their
	// summaries may still be missing. Runs of less than a minute do not count, because they may be too short to
	// measure.
	Ended int
	// Problem is the reason why the other fields are unknown, or empty.
	Problem string
}

const (
	settled  = time.Hour      // the time after which the summary of a run is normally in the repository
	shortest = time.Minute    // the run time above which every run should have a summary
	day      = 24 * time.Hour // the time in which learning nothing is a fault if jobs have ended
)

// ReadLearning reads the state of learning from the repository at path, as the owner of its directory, and the runs of
// the last day from slurmdbd.
func (f *Facts) ReadLearning(ctx context.Context, cfg config.Config, path string, dbd *slurm.Client) {
	l := &f.Learning
	l.Now = time.Now()
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return
	}
	var err error
	l.State, err = learn.ReadState(path)
	var records []slurm.Allocation
	if field, none := cfg.Field(); none != nil {
		f.Learn = false // the watcher does not learn
	} else if err == nil {
		records, err = dbd.Allocations(ctx, field, l.Now.Add(-day), l.Now)
	}
	if err != nil {
		l.Problem = err.Error()
		return
	}
	for _, a := range records {
		onSlices := a.Requested.Total("mig") > 0 && a.Allocated.Total("mig") > 0
		if onSlices && a.End.After(l.Now.Add(-day)) && a.End.Before(l.Now.Add(-settled)) &&
			a.End.Sub(a.Start) >= shortest {
			l.Ended++
		}
	}
}

// learning checks on slurmctld's host that the watcher learns.
func learning(f *Facts) []Finding {
	t, l := f.Table, f.Learning
	uid, known := f.Config.SlurmUser()
	empty := len(t.Key)+len(t.User)+len(t.Site) == 0
	const watcher = "find the cause with `systemctl status caelum-watch` and `journalctl -u caelum-watch`"
	switch {
	case !f.Controller || t.Problem != "":
		return nil
	case f.Config.Values["AccountingStorageType"] != slurmdbd:
		return []Finding{note("Caelum does not learn, because the cluster has no slurmdbd")}
	case !f.Learn && (l.Now.IsZero() || l.Now.Sub(l.Synced) > day): // `caelum repo sync` may run in a crontab
		return []Finding{warning("learning is off: learn is false or accounting_field is none in this host's "+
			"caelum.yaml, so jobs that name no profile always get the default one", "set learn: true and an "+
			"accounting_field in caelum.yaml, then restart caelum-watch")}
	case known && uid != 0 && t.Folder != uid && empty:
		return []Finding{warning(
			"Caelum does not learn which profile a job needs: the watcher cannot write "+t.Path,
			"run `systemctl enable --now caelum-watch`, or `systemctl restart caelum-watch` if it is running; its "+
				"unit moves the table to the watcher's directory",
		)}
	case l.Now.IsZero():
		return nil
	case l.Problem != "":
		return []Finding{note("whether Caelum learns could not be checked: " + l.Problem)}
	case l.Synced.IsZero():
		return []Finding{warning("learning has not begun: no repository of runs shows that slurmdbd was read",
			"run `systemctl enable --now caelum-watch`; if it is running, "+watcher)}
	case f.Learn && l.Stuck(l.Now):
		return []Finding{warning(fmt.Sprintf("learning has stopped: slurmdbd was last read on %s",
			l.Synced.Format(time.DateTime)), watcher)}
	case l.Ended > 0 && l.Newest.Before(l.Now.Add(-day)):
		return []Finding{warning(fmt.Sprintf("Caelum has learned nothing in the last day: the %d runs on slices that "+
			"ended have no summary in slurmdbd", l.Ended), "set the same accounting_field in caelum.yaml on all "+
			"hosts, and find the cause in the agents' logs (journalctl -u caelumd) on the nodes of these jobs")}
	}
	return nil
}
