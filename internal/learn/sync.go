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

	"caelum/internal/predict"
	"caelum/internal/repo"
	"caelum/internal/slurm"
)

// Accounting is what a sync asks of slurmdbd.
type Accounting interface {
	Records(ctx context.Context, field slurm.AccountingField, from, to time.Time) ([]slurm.Record, error)
	RecordsOf(ctx context.Context, field slurm.AccountingField, id uint32) ([]slurm.Record, error)
	Names(ctx context.Context, from, to time.Time) (map[uint64]string, error)
}

const (
	// Slurmdbd is asked for a day at once, and for more while it has few jobs to tell of: it reads them all before it
	// answers.
	page, largestPage = 24 * time.Hour, 32 * 24 * time.Hour
	fewJobs           = 5000
	// Some jobs are in slurmdbd late, and some summaries: a node that could not write one goes on trying for 30 days.
	// So a sync looks an hour back each time, and once a day 30 days.
	overlap, deepOverlap = time.Hour, 30 * 24 * time.Hour
	deepEvery            = 24 * time.Hour
	first                = 400 * 24 * time.Hour // what a new repository is filled with: as much as it keeps
	// A node's clock and slurmctld's may differ by so much.
	clocks = time.Hour
)

// The repository's notes: until when everything has been read, and when a sync last looked far back. Unix seconds.
const noteSynced, noteDeep = "synced", "synced deep"

// Synced is what a sync has done.
type Synced struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Jobs int       `json:"jobs"` // records of slurmdbd
	Runs int       `json:"runs"` // with a summary, of runs that are over
	New  int       `json:"new"`
}

// Sync reads what slurmdbd has since a time, or, with the zero time, since the last sync, into the repository. What it
// has read when it fails stays, and the next goes on from there.
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
		if err := done.read(ctx, dbd, r, field, from, to); err != nil {
			return done, err
		}
		done.To = to
		if span = page; done.Jobs-before < fewJobs {
			span = min(2*to.Sub(from), largestPage)
		}
		if since.IsZero() || !from.After(synced) { // else something between them has not been read
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

// due is from when a sync has to read, and whether that is far back. A clock that has been set back makes it read more,
// never less.
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
		return time.Time{}, nil // as if there were none: everything is read anew
	}
	return time.Unix(n, 0), nil
}

// read reads one page.
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
	// Users write the names: an odd one costs the others theirs, not the runs.
	names, err := dbd.Names(ctx, from, to)
	if errors.Is(err, slurm.ErrNoAccounting) || ctx.Err() != nil {
		return fmt.Errorf("couldn't read the jobs' names of %s: %w", from.Format(time.DateTime), err)
	}
	for i := range runs {
		runs[i].Name = names[of[i]]
	}
	added, err := r.Add(runs...)
	done.Runs, done.New = done.Runs+len(runs), done.New+added
	return err
}

// runsOf are the runs of which the records have summaries, and by Index the record of each. Whose run it was and how it
// ended the record says; a summary that fits none of the job's runs is nobody's.
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
		said := predict.Summaries(rec.Text)
		if len(said) == 0 || rec.End.IsZero() {
			continue
		}
		all := jobs[rec.ID]
		for _, n := range said {
			own, ok := runOf(all, n)
			if !ok && time.Unix(n.Start, 0).Before(rec.Start) {
				// The last run's record has the summaries of the earlier runs too, and their records may be on an
				// earlier page.
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

// runOf is the record of the run that a summary is of: over, on its node, and the one that began nearest to it.
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

// nodeOf is the node's name as slurmctld writes it: sacctmgr has written the summary in lower case.
func nodeOf(rec slurm.Record, n predict.Run) string {
	i := slices.IndexFunc(rec.Nodes, func(name string) bool { return strings.EqualFold(name, n.Node) })
	if i < 0 {
		return ""
	}
	return rec.Nodes[i]
}

func complete(n predict.Run, rec slurm.Record) predict.Run {
	n.Job, n.Node = rec.ID, nodeOf(rec, n)
	n.UID, n.User, n.Account = rec.UID, rec.User, rec.Account
	n.State, n.Exit = rec.State, rec.Exit
	n.Key, n.Fingerprint = hash(rec.Comment, slurm.TagKey), hash(rec.Comment, slurm.TagFingerprint)
	return n
}

// hash is a key or a work in a comment; empty if there is none.
func hash(comment, mark string) string {
	if h := slurm.TagValue(comment, mark); repo.IsHash(h) {
		return h
	}
	return ""
}
