package learn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"caelum/internal/predict"
	"caelum/internal/repo"
)

// Written is the result of Write.
type Written struct {
	Table      string `json:"table"`
	Generation uint64 `json:"generation"`
	Learned    int    `json:"learned"` // the number of learned lines
	LeftOut    int    `json:"left_out,omitempty"`
	Changed    bool   `json:"changed"`
}

// errUnread is returned for a repository that has not yet read all runs from slurmdbd. The predictions of such a
// repository would lack runs, and writing them would remove learned lines from the table.
var errUnread = errors.New("the repository is new and was never filled completely from slurmdbd; " +
	"the decision table is left as it is: run `caelum repo sync`")

// Write writes the predictions of the repository into the decision table at path, below the administrator's lines, with
// the next generation number. If the predictions have not changed, Write does not write the file. If the repository has
// not yet read all runs from slurmdbd, Write returns errUnread.
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

// unread reports whether a repository has not yet read all runs from slurmdbd. This is the case if its first sync has
// not completed, or if the repository is empty and no sync has run.
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

// decision is the content of a line of the table after the line's name.
type decision struct {
	profile string
	seconds int // expected run time; 0 if unknown
	busy    int // Need.Busy in percent; -1 if unknown, as always without a run time
}

// alike reports whether a line for d is redundant because the decision o, which would apply without that line, is
// equivalent. Run times vary, so run times that differ by at most a quarter are treated as equivalent, and so are busy
// shares that differ by at most 10 points. A decision without a busy share is equivalent to one with any busy share.
func (d decision) alike(o decision) bool {
	near := d.seconds == 0 || o.seconds > 0 && math.Abs(float64(d.seconds-o.seconds)) <= 0.25*float64(o.seconds)
	asBusy := d.busy < 0 || o.busy >= 0 && max(d.busy, o.busy)-min(d.busy, o.busy) <= 10
	return d.profile == o.profile && near && asBusy
}

// learnedLine is a learned line of the table. last is the start of the newest run on which it is based, in Unix
// seconds.
type learnedLine struct {
	kind    predict.Level
	subject string
	decision
	last  int64
	owner int64 // a user id, or allUsers for a site line
}

// allUsers is the owner of lines that are based on the runs of several users.
const allUsers = -1

func (l learnedLine) text() string {
	figures := ""
	if l.seconds > 0 {
		figures = fmt.Sprintf(" %d", l.seconds)
		if l.busy >= 0 {
			figures += fmt.Sprintf(" %d", l.busy)
		}
	}
	return fmt.Sprintf("%s %s %s%s\n", l.kind, l.subject, l.profile, figures)
}

// subject returns the second word of the line that applies to a job at this level.
func subject(kind predict.Level, job repo.JobKeys) string {
	switch kind {
	case predict.ByKey:
		return fmt.Sprintf("%d:%s", job.UID, job.Key)
	case predict.ByUser:
		return fmt.Sprintf("%d:%s", job.UID, job.Fingerprint)
	}
	return job.Fingerprint
}

// lineName returns the first two words of the line that applies to a job at this level.
func lineName(kind predict.Level, job repo.JobKeys) string {
	return string(kind) + " " + subject(kind, job)
}

// decider creates the learned lines, from the most general to the most specific. It creates no line for a script if the
// more general line that would then apply is equivalent.
type decider struct {
	repo  *repo.Repo
	table Table
	site  predict.Site
	lines []learnedLine
	// now maps the name of each line to the prediction for the jobs to which the line applies, or would apply if it
	// existed. has contains the names of the lines that exist.
	now map[string]Prediction
	has map[string]bool
}

// decide returns the learned lines, sorted by their newest run. The line with the newest run is the first.
func decide(r *repo.Repo, t Table, site predict.Site) ([]learnedLine, error) {
	scripts, err := r.Scripts()
	if err != nil {
		return nil, err
	}
	d := decider{repo: r, table: t, site: site, now: map[string]Prediction{}, has: map[string]bool{}}
	general := predict.Unknown // the kind of the more general line that applies if there is no line of this kind
	for _, kind := range slices.Backward(predict.Levels) {
		for _, w := range scripts { // newest first: the newest run of a line determines the line
			base, ok := d.now[lineName(general, w.JobKeys)]
			if !ok {
				base = t.without()
			}
			if err := d.line(kind, w, base); err != nil {
				return nil, err
			}
		}
		general = kind
	}
	byAge(d.lines)
	return d.lines, nil
}

// line creates the line of a kind for a script, unless the line is redundant. base is the prediction without this line.
// There is no line for a job that was submitted without a script. Such a job has no script fingerprint, and its key
// does not identify the program.
//
// If there is a site line, a user with complete runs gets a user line even if it is equivalent to the site line,
// because other users' runs may change or remove the site line.
func (d *decider) line(kind predict.Level, w repo.Script, base Prediction) error {
	name := lineName(kind, w.JobKeys)
	if _, seen := d.now[name]; seen || w.Fingerprint == "" {
		return nil
	}
	now, err := d.table.at(kind, w.JobKeys, base, d.repo, d.site)
	if err != nil {
		return err
	}
	d.now[name] = base
	if _, own := d.table.decided[name]; own {
		d.now[name], d.has[name] = now, true
		return nil
	}
	complete := now.Complete && now.Need.Level == kind
	own := kind == predict.ByUser && complete && d.has[lineName(predict.BySite, w.JobKeys)]
	if now.decision().alike(base.decision()) && !own {
		return nil
	}
	d.now[name], d.has[name] = now, true
	owner := int64(w.UID)
	if kind == predict.BySite {
		owner = allUsers
	}
	d.lines = append(d.lines, learnedLine{kind, subject(kind, w.JobKeys), now.decision(), w.Last, owner})
	return nil
}

// maxSeconds is the longest run time in seconds that the format of the table allows, which is nine digits.
const maxSeconds = 999_999_999
