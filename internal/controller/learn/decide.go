package learn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/controller/decisions"
	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
)

// Written is the result of Write.
type Written struct {
	Table      string `json:"table"`
	Generation uint64 `json:"generation"`
	Learned    int    `json:"learned"` // the number of learned lines
	LeftOut    int    `json:"left_out,omitempty"`
	Changed    bool   `json:"changed"`
}

// errUnread is the error for a repository that does not yet contain all runs from slurmdbd. A table based on such a
// repository would lack learned lines.
var errUnread = errors.New("the repository is new and does not contain all runs from slurmdbd yet; " +
	"the decision table was not changed; run `caelum repo sync`")

// Write writes the repository's predictions into the decision table at path, below the administrator's lines, and
// increments the generation number. If the predictions have not changed, it leaves the file untouched. If the
// repository does not yet contain all runs from slurmdbd, it returns errUnread.
func Write(path string, r *repo.Repo, site predict.Site) (Written, error) {
	t, was, err := readTable(path)
	if err != nil {
		return Written{}, err
	}
	if unread, err := unread(r); err != nil || unread {
		return Written{}, cmp.Or(err, errUnread)
	}
	lines, err := decide(r, t.forPredictions(), site)
	if err != nil {
		return Written{}, err
	}
	text := t.with(lines)
	now, err := parseTable(text)
	if err == nil {
		_, err = decisions.Parse(text) // job_submit.lua would keep the last valid table
	}
	if err != nil {
		return Written{}, err
	}
	done := Written{Table: path, Generation: t.generation, Learned: strings.Count(now.learned, "\n")}
	done.LeftOut = len(lines) - done.Learned
	if now.learned == t.learned {
		return done, nil
	}
	done.Generation, done.Changed = now.generation, true
	return done, replace(path, was, text)
}

// unread reports whether a repository does not yet contain all runs from slurmdbd, either because its first sync has
// not completed or because it is empty and no sync has run.
func unread(r *repo.Repo) (bool, error) {
	if deep, err := noteTime(r, noteDeep); err != nil || !deep.IsZero() {
		return false, err
	}
	if synced, err := noteTime(r, noteSynced); err != nil || !synced.IsZero() {
		return true, err
	}
	scripts, err := r.Scripts()
	return len(scripts) == 0, err
}

// alike reports whether line d is redundant because it is equivalent to line o, which would apply without d. Because
// run times vary, run times and quantiles that differ by at most a quarter are considered equivalent. The same applies
// to busy shares that differ by at most 10 percentage points. A line without a busy share is equivalent to a line with
// any busy share.
func alike(d, o predict.Line) bool {
	within := func(a, b int) bool { return math.Abs(float64(a-b)) <= 0.25*float64(b) }
	near := d.Seconds == 0 || o.Seconds > 0 && within(d.Seconds, o.Seconds) && within(d.High, o.High)
	asBusy := d.Busy < 0 || o.Busy >= 0 && max(d.Busy, o.Busy)-min(d.Busy, o.Busy) <= 10
	return d.Profile == o.Profile && near && asBusy
}

// learnedLine is a learned line of the table. last is the start of the newest run on which the line is based, in Unix
// seconds.
type learnedLine struct {
	kind    predict.Level
	subject string
	predict.Line
	steps string // the content of an args line, which has no predict.Line
	last  int64
	owner int64 // a user id, or allUsers for a site line
}

// allUsers is the owner of lines that are based on the runs of several users.
const allUsers = -1

func (l learnedLine) text() string {
	if l.kind == predict.ByArgs {
		return fmt.Sprintf("%s %s %s\n", l.kind, l.subject, l.steps)
	}
	figures := ""
	if l.Seconds > 0 {
		figures = " " + predict.RunTime(l.Seconds, l.High)
		if l.Busy >= 0 {
			figures += fmt.Sprintf(" %d", l.Busy)
		}
	}
	return fmt.Sprintf("%s %s %s%s\n", l.kind, l.subject, l.Profile, figures)
}

// subject returns the second word of the line that would apply to a job at the given level.
func subject(kind predict.Level, job repo.JobKeys) string {
	switch kind {
	case predict.ByArgs, predict.ByKey:
		return fmt.Sprintf("%d:%s", job.UID, job.Key)
	case predict.ByUser:
		return fmt.Sprintf("%d:%s", job.UID, job.Fingerprint)
	case predict.ByName:
		return fmt.Sprintf("%d:%s", job.UID, predict.NameHash(job.Name))
	case predict.ByOwner:
		return fmt.Sprint(job.UID)
	}
	return job.Fingerprint
}

// lineName returns the first two words of the line that would apply to a job at the given level.
func lineName(kind predict.Level, job repo.JobKeys) string {
	return string(kind) + " " + subject(kind, job)
}

// decider creates the learned lines, from the most general to the most specific. It does not create a line for a script
// if the more general line that applies to the script is equivalent.
type decider struct {
	repo  *repo.Repo
	table Table
	site  predict.Site
	lines []learnedLine
	// of holds each user's scripts, and named those with a job name, newest first.
	of    map[uint32][]repo.Script
	named map[string][]repo.Script // by the name of the line
	// now maps the name of each possible line to the prediction for the jobs to which it would apply. has contains the
	// names of the existing lines.
	now map[string]Prediction
	has map[string]bool
	// first contains the users who have a name or owner line.
	first map[uint32]bool
}

// decide returns the learned lines in the order of their newest runs, newest first.
func decide(r *repo.Repo, t Table, site predict.Site) ([]learnedLine, error) {
	scripts, err := r.Scripts()
	if err != nil {
		return nil, err
	}
	d := decider{repo: r, table: t, site: site, of: map[uint32][]repo.Script{}, named: map[string][]repo.Script{},
		now: map[string]Prediction{}, has: map[string]bool{}, first: map[uint32]bool{}}
	for _, w := range scripts {
		name := lineName(predict.ByName, w.JobKeys)
		d.of[w.UID], d.named[name] = append(d.of[w.UID], w), append(d.named[name], w)
	}
	for name := range t.decided { // an administrator's lines
		kind, rest, _ := strings.Cut(name, " ")
		user, _, _ := strings.Cut(rest, ":")
		if uid, err := strconv.ParseUint(user, 10, 32); err == nil &&
			(kind == string(predict.ByName) || kind == string(predict.ByOwner)) {
			d.first[uint32(uid)] = true
		}
	}
	for _, kind := range slices.Backward(predict.Levels) {
		for _, w := range scripts { // newest first, because the newest script determines a line
			if err := d.line(kind, w, d.base(kind, w.JobKeys)); err != nil {
				return nil, err
			}
		}
	}
	byAge(d.lines)
	return d.lines, nil
}

// base returns the prediction that applies to a job if there is no line of the given kind. User and site lines apply to
// jobs with any name, so they do not depend on name lines.
func (d *decider) base(kind predict.Level, job repo.JobKeys) Prediction {
	var general []predict.Level
	switch kind {
	case predict.ByKey:
		general = predict.Levels[1:]
	case predict.ByUser:
		general = []predict.Level{predict.BySite}
	case predict.ByName:
		general = []predict.Level{predict.ByOwner}
	}
	for _, level := range general {
		if name := lineName(level, job); d.has[name] {
			return d.now[name]
		}
	}
	return d.table.without()
}

// line creates the line of the given kind for a script, unless the line is redundant. base is the prediction without
// the line. There is no line for jobs submitted without a script, because they have no script fingerprint and their
// keys do not identify the program.
//
// If the table has a site line for the script, it also has a user line for each user with complete runs, even if the
// two are equivalent, because other users' runs may change or remove the site line. If a user has a name or an owner
// line, there is a user line for each of the user's scripts with runs, because those lines are for first runs.
func (d *decider) line(kind predict.Level, w repo.Script, base Prediction) error {
	name := lineName(kind, w.JobKeys)
	if _, seen := d.now[name]; seen || w.Fingerprint == "" {
		return nil
	}
	similar := d.of[w.UID]
	if kind == predict.ByName {
		similar = d.named[name]
	}
	now, known, err := d.table.at(kind, w.JobKeys, base, similar, d.repo, d.site)
	if err != nil {
		return err
	}
	d.now[name] = base
	first := kind == predict.ByName || kind == predict.ByOwner
	if _, own := d.table.decided[name]; own {
		d.now[name], d.has[name] = now, true
		return nil
	}
	if kind == predict.ByKey {
		d.args(w, now)
	}
	complete := now.Complete && now.Need.Level == kind
	own := kind == predict.ByUser &&
		(complete && d.has[lineName(predict.BySite, w.JobKeys)] || known && d.first[w.UID])
	if alike(now.line(), base.line()) && !own {
		return nil
	}
	d.now[name], d.has[name], d.first[w.UID] = now, true, d.first[w.UID] || first
	owner := int64(w.UID)
	if kind == predict.BySite {
		owner = allUsers
	}
	last := w.Last
	if first {
		last = 0 // a full table must not lose the lines of the user's own scripts first
	}
	d.lines = append(d.lines, learnedLine{
		kind: kind, subject: subject(kind, w.JobKeys), Line: now.line(), last: last, owner: owner,
	})
	return nil
}

// args creates the args line of a key, unless it is redundant or the administrator has written one. p is the prediction
// for the key.
func (d *decider) args(w repo.Script, p Prediction) {
	who := subject(predict.ByArgs, w.JobKeys)
	if _, own := d.table.lines.Args[who]; own {
		return
	}
	if _, steps, ok := d.table.args(p, d.site); ok {
		d.lines = append(d.lines, learnedLine{
			kind: predict.ByArgs, subject: who, steps: steps.String(), last: w.Last, owner: int64(w.UID),
		})
	}
}

// maxSeconds is the longest run time, in seconds, that fits into the nine digits that the table format allows.
const maxSeconds = 999_999_999
