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

// Written is what Write has done.
type Written struct {
	Table      string `json:"table"`
	Generation uint64 `json:"generation"`
	Learned    int    `json:"learned"` // lines
	LeftOut    int    `json:"left_out,omitempty"`
	Changed    bool   `json:"changed"`
}

// errUnread is a repository that knows less than slurmdbd: what it does not know yet would be gone from the table.
var errUnread = errors.New(
	"the repository is new, and has not been filled from slurmdbd to the end: `caelum repo sync` does so; the decision table is left as it is",
)

// Write writes what the repository predicts into the decision table at path, below the admin's lines, under the next
// generation; nothing where that changes nothing. errUnread.
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

// unread reports whether a repository has been begun and not filled: its first sync has not come to an end, or there
// was none and nothing is in it.
func unread(r *repo.Repo) (bool, error) {
	if deep, err := noteTime(r, noteDeep); err != nil || !deep.IsZero() {
		return false, err
	}
	if synced, err := noteTime(r, noteSynced); err != nil || !synced.IsZero() {
		return true, err
	}
	works, err := r.Scripts()
	return len(works) == 0, err
}

func count(text string) (lines int) {
	for _, c := range text {
		if c == '\n' {
			lines++
		}
	}
	return lines
}

// decision is a profile and an expected run time in seconds, 0 if that is not known.
type decision struct {
	profile string
	seconds int
}

// alike: a line of its own would say no more. Run times scatter, so a quarter more or less is the same.
func (d decision) alike(o decision) bool {
	near := d.seconds == 0 || o.seconds > 0 && math.Abs(float64(d.seconds-o.seconds)) <= 0.25*float64(o.seconds)
	return d.profile == o.profile && near
}

// learnedLine is a line of the table, of work that last ran then.
type learnedLine struct {
	kind, who string
	decision
	last  int64
	owner int64 // the id of the user for whom it is; allUsers for a site line
}

// allUsers owns the lines that rest on the runs of several users.
const allUsers = -1

func (l learnedLine) text() string {
	seconds := ""
	if l.seconds > 0 {
		seconds = fmt.Sprintf(" %d", l.seconds)
	}
	return fmt.Sprintf("%s %s %s%s\n", l.kind, l.who, l.profile, seconds)
}

// rank puts lines in an order in which no line is left out before one that falls back on it.
var rank = map[string]int{"site": 0, "user": 1, "key": 2}

// decider makes the lines, from what serves most to what serves least: each says only what the one that a job would
// fall back on does not.
type decider struct {
	repo   *repo.Repo
	table  table
	site   predict.Site
	boards []*mig.Model
	lines  []learnedLine
	shared map[string]decision // by work
	sited  map[string]bool     // work that has a site line
	users  map[string]decision // by user and work
}

// decide makes the learned lines, those of what ran last first.
func decide(r *repo.Repo, t table, site predict.Site) ([]learnedLine, error) {
	works, err := r.Scripts()
	if err != nil {
		return nil, err
	}
	d := decider{
		repo:   r,
		table:  t,
		site:   site,
		boards: t.gpuModels(),
		shared: map[string]decision{},
		sited:  map[string]bool{},
		users:  map[string]decision{},
	}
	for _, step := range []func(repo.Script) error{d.everybody, d.user, d.key} {
		for _, w := range works { // what ran last is first, and so the newest of each user's, and of each work
			if err := step(w); err != nil {
				return nil, err
			}
		}
	}
	byAge(d.lines)
	return d.lines, nil
}

func (d *decider) everybody(w repo.Script) error {
	if _, seen := d.shared[w.Fingerprint]; seen || w.Fingerprint == "" {
		return nil
	}
	base := decision{profile: d.table.fallback}
	d.shared[w.Fingerprint] = base
	if own, ok := d.table.taken["site "+w.Fingerprint]; ok {
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

// user makes the line of a user's work. Where she has runs of her own that say what she needs and the work has a site
// line, she has a line too, also if the two agree: a site line may be dropped, or change, by what other users do.
func (d *decider) user(w repo.Script) error {
	who := userFingerprint(w)
	if _, seen := d.users[who]; seen || w.Fingerprint == "" {
		return nil
	}
	base := d.other(d.shared, w.Fingerprint)
	d.users[who] = base
	if own, ok := d.table.taken["user "+who]; ok {
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

// key makes the line of a user's key. One without work was submitted without a script, and does not say what it runs.
func (d *decider) key(w repo.Script) error {
	if w.Fingerprint == "" {
		return nil
	}
	who := fmt.Sprintf("%d:%s", w.UID, w.Key)
	if _, ok := d.table.taken["key "+who]; ok {
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

// decision is what a need comes to, for a job that would get base without it.
func (d *decider) decision(need predict.Need, complete bool, base decision) decision {
	given := Give(need, complete, d.boards, base.profile)
	now := decision{profile: given.Profile}
	if complete {
		now.seconds = int(min(math.Ceil(given.Seconds), maxSeconds))
	}
	return now
}

// other is what a job gets where nothing else is said.
func (d *decider) other(said map[string]decision, who string) decision {
	if s, ok := said[who]; ok {
		return s
	}
	return decision{profile: d.table.fallback}
}

// Given is what a job would be given, and how long it is expected to run on it, in seconds, with the 10% and the 90%
// quantile; on no GPU model, as long as on what it had last.
type Given struct {
	Profile            string
	Model              *mig.Model
	Seconds, Low, High float64
}

// Give answers the tightest profile of the first of the GPU models on which one holds what is needed; else the profile
// that a job gets without a prediction. Where no run was complete (Predict says so) only what was too little is known:
// the profile is then no smaller than without.
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

// memory is a profile's, in MiB; 0 if the GPU model does not have it.
func memory(b *mig.Model, profile string) float64 {
	k, ok := b.ProfileIndex(profile)
	if !ok {
		return 0
	}
	return b.Profiles[k].Memory()
}

// maxSeconds is the longest time that a table can say: nine digits.
const maxSeconds = 999_999_999
