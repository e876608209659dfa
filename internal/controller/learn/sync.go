package learn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// Accounting provides the part of slurmdbd's data that a sync reads.
type Accounting interface {
	Records(ctx context.Context, field slurm.AccountingField, from, to time.Time) ([]slurm.Record, error)
	RecordsOf(ctx context.Context, field slurm.AccountingField, id uint32) ([]slurm.Record, error)
	Names(ctx context.Context, from, to time.Time) (map[uint64]string, error)
}

const (
	// A query covers one day, or up to 32 days if the previous query returned few jobs. The time span is limited
	// because slurmdbd reads all of a query's jobs before it replies.
	page, largestPage = 24 * time.Hour, 32 * 24 * time.Hour
	fewJobs           = 5000
	// If there are too many jobs for one query (slurm.ErrTooLong), the span is halved, down to shortestPage.
	shortestPage = time.Minute
	// Some jobs and summaries reach slurmdbd late, because a node that cannot write a summary retries for up to 30
	// days. Each sync therefore also rereads the last hour that the previous sync covered. Once a day, a sync rereads
	// the last 30 days.
	overlap, deepOverlap = time.Hour, 30 * 24 * time.Hour
	deepEvery            = 24 * time.Hour
	first                = 400 * 24 * time.Hour // the time span of the first sync and of the runs in a repository
	// clocks is the maximum allowed difference between a node's clock and slurmctld's clock.
	clocks = time.Hour
)

// noteSynced and noteDeep are the names of notes in the repository. The first holds the time up to which all records
// have been read, and the second holds the time of the last sync that reread the previous 30 days, both in Unix
// seconds.
const noteSynced, noteDeep = "synced", "synced deep"

// Synced is the result of Sync.
type Synced struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Jobs int       `json:"jobs"` // the number of records in slurmdbd
	Runs int       `json:"runs"` // the number of finished runs with a summary
	New  int       `json:"new"`
}

// Sync copies runs from slurmdbd into the repository. It reads the records since the given time or, if since is zero,
// since the last sync. If it fails, the repository keeps the runs that have already been read, and the next sync
// continues from there.
func Sync(
	ctx context.Context,
	dbd Accounting,
	r *repo.Repo,
	field slurm.AccountingField,
	since, now time.Time,
) (Synced, error) {
	synced, err := noteTime(r, noteSynced)
	if err != nil {
		return Synced{}, err
	}
	done := Synced{From: since, To: since}
	deep := false
	if since.IsZero() {
		if done.From, deep, err = due(r, synced, now); err != nil {
			return done, err
		}
		done.To = done.From
	}
	for span := page; done.To.Before(now); {
		from := done.To
		to := from.Add(span)
		if to.After(now) {
			to = now
		}
		before := done.Jobs
		err := done.read(ctx, dbd, r, field, from, to)
		if errors.Is(err, slurm.ErrTooLong) && span >= 2*shortestPage {
			span = min(span, to.Sub(from)) / 2
			continue
		}
		if err != nil {
			return done, err
		}
		done.To = to
		if span = min(span, page); done.Jobs-before < fewJobs {
			span = min(2*to.Sub(from), largestPage)
		}
		if since.IsZero() || !from.After(synced) { // otherwise, the repository may lack records from before that time
			if err := r.SetNote(noteSynced, strconv.FormatInt(to.Unix(), 10)); err != nil {
				return done, err
			}
			synced = to
		}
	}
	if deep {
		if err := r.SetNote(noteDeep, strconv.FormatInt(now.Unix(), 10)); err != nil {
			return done, err
		}
	}
	if done.New > 0 {
		_, err = r.Prune(now)
	}
	return done, err
}

// due returns the start of the period that a sync must read, and whether this period includes the last 30 days. If the
// clock was set back, the sync reads additional records, but does not skip any.
func due(r *repo.Repo, synced, now time.Time) (from time.Time, deep bool, err error) {
	if synced.IsZero() {
		return now.Add(-first), true, nil
	}
	last, err := noteTime(r, noteDeep)
	if synced.After(now) {
		synced = now
	}
	if now.Sub(last).Abs() >= deepEvery {
		return synced.Add(-deepOverlap), true, err
	}
	return synced.Add(-overlap), false, err
}

func noteTime(r *repo.Repo, name string) (time.Time, error) {
	text, err := r.Note(name)
	if err != nil || text == "" {
		return time.Time{}, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, nil // an invalid note is ignored, and all records are reread
	}
	return time.Unix(n, 0), nil
}

// read reads one page of records.
func (done *Synced) read(
	ctx context.Context,
	dbd Accounting,
	r *repo.Repo,
	field slurm.AccountingField,
	from, to time.Time,
) error {
	records, err := dbd.Records(ctx, field, from, to)
	if err != nil {
		return fmt.Errorf("couldn't read the jobs of %s: %w", from.Format(time.DateTime), err)
	}
	done.Jobs += len(records)
	runs, of, err := runsOf(ctx, dbd, field, records)
	if err != nil || len(runs) == 0 {
		return err
	}
	// A user can choose a job name that makes the output unreadable. The page's runs are then stored without names.
	names, err := dbd.Names(ctx, from, to)
	if errors.Is(err, slurm.ErrNoAccounting) || ctx.Err() != nil {
		return fmt.Errorf("couldn't read the job names of %s: %w", from.Format(time.DateTime), err)
	}
	for i := range runs {
		runs[i].Name = names[of[i]]
	}
	added, err := r.Add(runs...)
	done.Runs, done.New = done.Runs+len(runs), done.New+added
	return err
}

// runsOf returns the runs whose summaries are in the records, and the Index of each run's record. The owner and the end
// of a run are taken from its record. A summary that does not match any run of the job is ignored.
func runsOf(
	ctx context.Context,
	dbd Accounting,
	field slurm.AccountingField,
	records []slurm.Record,
) (runs []predict.Run, of []uint64, err error) {
	jobs := map[uint32][]slurm.Record{}
	for _, rec := range records {
		jobs[rec.ID] = append(jobs[rec.ID], rec)
	}
	for _, rec := range records {
		summaries := predict.Summaries(rec.Text)
		if len(summaries) == 0 || rec.End.IsZero() {
			continue
		}
		all := jobs[rec.ID]
		for _, n := range summaries {
			own, ok := runOf(all, n)
			if !ok && time.Unix(n.Start, 0).Before(rec.Start) {
				// The last run's record also holds the summaries of the job's earlier runs, whose own records may be
				// on an earlier page.
				if all, err = dbd.RecordsOf(ctx, field, rec.ID); err != nil && !errors.Is(err, slurm.ErrNoJob) {
					return nil, nil, fmt.Errorf("couldn't read job %d: %w", rec.ID, err)
				}
				jobs[rec.ID] = all
				own, ok = runOf(all, n)
			}
			if !ok {
				continue
			}
			runs, of = append(runs, complete(n, own)), append(of, rec.Index)
		}
	}
	return runs, of, nil
}

// runOf returns the record to which a summary belongs: the one with the nearest start among the records of finished
// runs on the summary's node.
func runOf(all []slurm.Record, n predict.Run) (slurm.Record, bool) {
	var fit []slurm.Record
	for _, rec := range all {
		apart := time.Unix(n.Start, 0).Sub(rec.Start).Abs()
		if !rec.Start.IsZero() && !rec.End.IsZero() && apart <= clocks && nodeOf(rec, n) != "" {
			fit = append(fit, rec)
		}
	}
	if len(fit) == 0 {
		return slurm.Record{}, false
	}
	return slices.MinFunc(fit, func(a, b slurm.Record) int {
		at := time.Unix(n.Start, 0)
		return cmp.Compare(at.Sub(a.Start).Abs(), at.Sub(b.Start).Abs())
	}), true
}

// nodeOf returns the name of the summary's node as slurmctld spells it. The summary contains the name in lower case,
// because sacctmgr converts summaries to lower case.
func nodeOf(rec slurm.Record, n predict.Run) string {
	i := slices.IndexFunc(rec.Nodes, func(name string) bool { return strings.EqualFold(name, n.Node) })
	if i < 0 {
		return ""
	}
	return rec.Nodes[i]
}

// complete fills in the fields of the run that only the record contains, and returns the run.
func complete(n predict.Run, rec slurm.Record) predict.Run {
	n.Job, n.Node = rec.ID, nodeOf(rec, n)
	n.UID, n.User, n.Account = rec.UID, rec.User, rec.Account
	n.State, n.Exit = rec.State, rec.Exit
	n.Args = predict.ParseNumbers(tags.Value(rec.Comment, tags.Args))
	n.Key, n.Fingerprint = hash(rec.Comment, tags.Key), hash(rec.Comment, tags.Fingerprint)
	return n
}

// hash returns the valid hash after a tag in a comment, or an empty string if there is none. The tag determines
// whether this is the job key or the script fingerprint.
func hash(comment, tag string) string {
	if h := tags.Value(comment, tag); repo.IsHash(h) {
		return h
	}
	return ""
}
