package learn

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"caelum/internal/mig"
	"caelum/internal/predict"
	"caelum/internal/repo"
)

// Written is the result of Write.
type Written struct {
	Table      string `json:"table"`
	Generation uint64 `json:"generation"`
	Learned    int    `json:"learned"` // number of learned lines
	LeftOut    int    `json:"left_out,omitempty"`
	Changed    bool   `json:"changed"`
}

// errUnread is returned for a repository that is not filled from slurmdbd yet. Writing its predictions would remove
// learned lines from the table.
var errUnread = errors.New("the repository is new and was never filled completely from slurmdbd; " +
	"the decision table is left as it is: run `caelum repo sync`")

// Write writes the predictions of the repository into the decision table at path, below the administrator's lines, with
// the next generation. It does not write a table that would not change. It fails with errUnread if the repository is
// not filled yet.
func Write(path string, r *repo.Repo, site predict.Site) (Written, error) {
	t, was, err := readTable(path)
	if err != nil {
		return Written{}, err
	}
	if unread, err := unread(r); err != nil || unread {
		return Written{}, cmp.Or(err, errUnread)
	}
	lines, err := decide(r, t, site)
	if err != nil {
		return Written{}, err
	}
	text := t.with(lines)
	now, err := parseTable(text)
	if err != nil {
		return Written{}, err
	}
	done := Written{Table: path, Generation: t.generation, Learned: count(now.learned)}
	done.LeftOut = len(lines) - done.Learned
	if now.learned == t.learned {
		return done, nil
	}
	done.Generation, done.Changed = now.generation, true
	return done, replace(path, was, text)
}

// unread reports whether a repository is not filled yet: its first sync has not completed, or there was no sync and the
// repository is empty.
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

func count(text string) (lines int) {
	for _, c := range text {
		if c == '\n' {
			lines++
		}
	}
	return lines
}

// decision is a profile and an expected run time in seconds, 0 if unknown.
type decision struct {
	profile string
	seconds int
}

// alike reports whether a line for d is redundant if o applies without it. Run times vary, so a difference of at most a
// quarter does not count.
func (d decision) alike(o decision) bool {
	near := d.seconds == 0 || o.seconds > 0 && math.Abs(float64(d.seconds-o.seconds)) <= 0.25*float64(o.seconds)
	return d.profile == o.profile && near
}

// learnedLine is a learned line of the table. last is when the newest of its runs began, in Unix seconds.
type learnedLine struct {
	kind, subject string
	decision
	last  int64
	owner int64 // user id; allUsers for a site line
}

// allUsers owns the lines that depend on the runs of several users.
const allUsers = -1

func (l learnedLine) text() string {
	seconds := ""
	if l.seconds > 0 {
		seconds = fmt.Sprintf(" %d", l.seconds)
	}
	return fmt.Sprintf("%s %s %s%s\n", l.kind, l.subject, l.profile, seconds)
}

// rank orders the kinds of lines so that no line is left out before a line that falls back on it.
var rank = map[string]int{"site": 0, "user": 1, "key": 2}

// decider creates the learned lines, from the most general to the most specific. A line is left out if the line that a
// job would otherwise fall back on is equivalent.
type decider struct {
	repo   *repo.Repo
	table  table
	site   predict.Site
	models []*mig.Model
	lines  []learnedLine
	shared map[string]decision // by script fingerprint
	sited  map[string]bool     // script fingerprints with a site line
	users  map[string]decision // by user and script fingerprint
}

// decide returns the learned lines, the one with the newest run first.
func decide(r *repo.Repo, t table, site predict.Site) ([]learnedLine, error) {
	scripts, err := r.Scripts()
	if err != nil {
		return nil, err
	}
	d := decider{
		repo:   r,
		table:  t,
		site:   site,
		models: t.gpuModels(),
		shared: map[string]decision{},
		sited:  map[string]bool{},
		users:  map[string]decision{},
	}
	for _, step := range []func(repo.Script) error{d.siteLine, d.userLine, d.keyLine} {
		for _, w := range scripts { // newest first, so the newest of each user and of each script fingerprint counts
			if err := step(w); err != nil {
				return nil, err
			}
		}
	}
	byAge(d.lines)
	return d.lines, nil
}

// siteLine creates the line of a script fingerprint for all users.
func (d *decider) siteLine(w repo.Script) error {
	if _, seen := d.shared[w.Fingerprint]; seen || w.Fingerprint == "" {
		return nil
	}
	base := decision{profile: d.table.fallback}
	d.shared[w.Fingerprint] = base
	if own, ok := d.table.decided["site "+w.Fingerprint]; ok {
		d.shared[w.Fingerprint], d.sited[w.Fingerprint] = own, true
		return nil
	}
	if !d.site.Share {
		return nil
	}
	users, err := d.repo.BySite(w.Fingerprint)
	if err != nil {
		return err
	}
	need, ok := predict.PredictShared(users, d.site)
	if !ok {
		return nil
	}
	if now := d.decision(need, true, base); !now.alike(base) {
		d.lines = append(d.lines, learnedLine{"site", w.Fingerprint, now, w.Last, allUsers})
		d.shared[w.Fingerprint], d.sited[w.Fingerprint] = now, true
	}
	return nil
}

func userFingerprint(w repo.Script) string { return fmt.Sprintf("%d:%s", w.UID, w.Fingerprint) }

// userLine creates the line of a user's script fingerprint. If the user has complete runs of her own and there is a
// site line, she gets a line even if the two agree: other users' runs may change or remove the site line.
func (d *decider) userLine(w repo.Script) error {
	who := userFingerprint(w)
	if _, seen := d.users[who]; seen || w.Fingerprint == "" {
		return nil
	}
	base := d.orDefault(d.shared, w.Fingerprint)
	d.users[who] = base
	if own, ok := d.table.decided["user "+who]; ok {
		d.users[who] = own
		return nil
	}
	h, err := d.repo.ByUser(w.UID, w.Fingerprint)
	if err != nil {
		return err
	}
	need, complete := predict.Predict(h, d.site)
	if now := d.decision(need, complete, base); !now.alike(base) || complete && d.sited[w.Fingerprint] {
		d.lines = append(d.lines, learnedLine{"user", who, now, w.Last, int64(w.UID)})
		d.users[who] = now
	}
	return nil
}

// keyLine creates the line of a user's key. A run without a script fingerprint was submitted without a script: its key
// does not identify what it ran, so it gets no line.
func (d *decider) keyLine(w repo.Script) error {
	if w.Fingerprint == "" {
		return nil
	}
	who := fmt.Sprintf("%d:%s", w.UID, w.Key)
	if _, ok := d.table.decided["key "+who]; ok {
		return nil
	}
	h, err := d.repo.ByKey(w.UID, w.Key)
	if err != nil {
		return err
	}
	base := d.users[userFingerprint(w)]
	need, complete := predict.Predict(h, d.site)
	if now := d.decision(need, complete, base); !now.alike(base) {
		d.lines = append(d.lines, learnedLine{"key", who, now, w.Last, int64(w.UID)})
	}
	return nil
}

// decision converts a need into a decision, for a job that would otherwise get base.
func (d *decider) decision(need predict.Need, complete bool, base decision) decision {
	given := Give(need, complete, d.models, base.profile)
	now := decision{profile: given.Profile}
	if complete {
		now.seconds = int(min(math.Ceil(given.Seconds), maxSeconds))
	}
	return now
}

// orDefault returns the decision for a script fingerprint, or the table's default profile if there is none.
func (d *decider) orDefault(decisions map[string]decision, fingerprint string) decision {
	if s, ok := decisions[fingerprint]; ok {
		return s
	}
	return decision{profile: d.table.fallback}
}

// Given is the profile that a job would get, and its expected run time on that profile in seconds, with the 10% and 90%
// quantiles. If Model is nil, the run times are those on the profile of the last run.
type Given struct {
	Profile            string
	Model              *mig.Model
	Seconds, Low, High float64
}

// Give returns the smallest sufficient profile of the first of the GPU models that has one; otherwise without, the
// profile of a job without a prediction. If no run was complete (see predict.Predict), only a lower bound of the need
// is known: the profile is then never smaller than without.
func Give(need predict.Need, complete bool, models []*mig.Model, without string) Given {
	g := Given{Seconds: need.Seconds, Low: need.Low, High: need.High}
	g.Profile, g.Model = tightest(need, complete, models, without)
	if g.Model != nil {
		if k, ok := g.Model.ProfileIndex(g.Profile); ok {
			g.Seconds, g.Low, g.High = need.Takes(g.Model.Profiles[k].Compute)
		}
	}
	return g
}

func tightest(need predict.Need, complete bool, models []*mig.Model, without string) (string, *mig.Model) {
	if complete || need.PeakMiB > 0 {
		for _, b := range models {
			profile, ok := need.On(b, b.Open(0, 0))
			if ok && (complete || memory(b, profile) > memory(b, without)) {
				return profile, b
			}
			if ok {
				break
			}
		}
	}
	for _, b := range models {
		if _, ok := b.ProfileIndex(without); ok {
			return without, b
		}
	}
	return without, nil
}

// memory returns the memory of a profile in MiB, 0 if the GPU model does not have the profile.
func memory(b *mig.Model, profile string) float64 {
	k, ok := b.ProfileIndex(profile)
	if !ok {
		return 0
	}
	return b.Profiles[k].Memory()
}

// maxSeconds is the longest run time that the format of the table allows: nine digits.
const maxSeconds = 999_999_999
