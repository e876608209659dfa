package learn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

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
var errUnread = errors.New("the repository is new, and has not been filled from slurmdbd to the end: `caelum repo sync` does so; the decision table is left as it is")

// Write writes what the repository predicts into the decision table at path, below the admin's lines, under the next generation; nothing where that changes nothing. errUnread.
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

// unread reports whether a repository has been begun and not filled: its first sync has not come to an end, or there was none and nothing is in it.
func unread(r *repo.Repo) (bool, error) {
	if deep, err := noteTime(r, noteDeep); err != nil || !deep.IsZero() {
		return false, err
	}
	if synced, err := noteTime(r, noteSynced); err != nil || !synced.IsZero() {
		return true, err
	}
	works, err := r.Works()
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
	last int64
}

// rank puts lines in an order in which no line is left out before one that falls back on it.
var rank = map[string]int{"site": 0, "user": 1, "key": 2}

// decider makes the lines, from what serves most to what serves least: each says only what the one that a job would fall back on does not.
type decider struct {
	repo   *repo.Repo
	table  table
	site   predict.Site
	boards []*mig.Board
	lines  []learnedLine
	shared map[string]decision // by work
	users  map[string]decision // by user and work
}

// decide makes the learned lines, those of what ran last first.
func decide(r *repo.Repo, t table, site predict.Site) ([]string, error) {
	works, err := r.Works()
	if err != nil {
		return nil, err
	}
	d := decider{repo: r, table: t, site: site, boards: t.boards(), shared: map[string]decision{}, users: map[string]decision{}}
	for _, step := range []func(repo.Work) error{d.everybody, d.user, d.key} {
		for _, w := range works { // what ran last is first, and so the newest of each user's, and of each work
			if err := step(w); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(d.lines, func(a, b learnedLine) int {
		return cmp.Or(cmp.Compare(b.last, a.last), cmp.Compare(rank[a.kind], rank[b.kind]), cmp.Compare(a.who, b.who))
	})
	lines := make([]string, len(d.lines))
	for i, l := range d.lines {
		lines[i] = fmt.Sprintf("%s %s %s", l.kind, l.who, l.profile)
		if l.seconds > 0 {
			lines[i] += fmt.Sprintf(" %d", l.seconds)
		}
		lines[i] += "\n"
	}
	return lines, nil
}

func (d *decider) everybody(w repo.Work) error {
	if _, seen := d.shared[w.Work]; seen || !d.site.Share || w.Work == "" {
		return nil
	}
	return d.say("site", w.Work, w.Last, decision{profile: d.table.fallback}, d.shared, w.Work, func() (predict.History, error) { return d.repo.BySite(w.Work) })
}

func userWork(w repo.Work) string { return fmt.Sprintf("%d:%s", w.UID, w.Work) }

func (d *decider) user(w repo.Work) error {
	if _, seen := d.users[userWork(w)]; seen || w.Work == "" {
		return nil
	}
	return d.say("user", userWork(w), w.Last, d.other(d.shared, w.Work), d.users, userWork(w), func() (predict.History, error) { return d.repo.ByUser(w.UID, w.Work) })
}

// key: one without work was submitted without a script, and says nothing of what it runs.
func (d *decider) key(w repo.Work) error {
	if w.Work == "" {
		return nil
	}
	base := d.other(d.shared, w.Work)
	if u, ok := d.users[userWork(w)]; ok {
		base = u
	}
	return d.say("key", w.Key, w.Last, base, nil, "", func() (predict.History, error) { return d.repo.ByKey(w.Key) })
}

// other is what a job gets where nothing else is said.
func (d *decider) other(said map[string]decision, who string) decision {
	if s, ok := said[who]; ok {
		return s
	}
	return decision{profile: d.table.fallback}
}

// Given is what a job would be given, and how long it is expected to run on it, in seconds, with the 10% and the 90% quantile; on no board, as long as on what it had last.
type Given struct {
	Profile            string
	Board              *mig.Board
	Seconds, Low, High float64
}

// Give answers the tightest profile of the first of the boards on which one holds what is needed; else the profile that a job gets without a prediction. Where
// no run was complete (Predict says so) only what was too little is known: the profile is then no smaller than without.
func Give(need predict.Need, complete bool, boards []*mig.Board, without string) Given {
	g := Given{Seconds: need.Seconds, Low: need.Low, High: need.High}
	g.Profile, g.Board = tightest(need, complete, boards, without)
	if g.Board != nil {
		if k, ok := g.Board.ProfileIndex(g.Profile); ok {
			g.Seconds, g.Low, g.High = need.Takes(g.Board.Profiles[k].Compute)
		}
	}
	return g
}

func tightest(need predict.Need, complete bool, boards []*mig.Board, without string) (string, *mig.Board) {
	if complete || need.PeakMiB > 0 {
		for _, b := range boards {
			profile, ok := need.On(b, b.Open(0, 0))
			if ok && (complete || memory(b, profile) > memory(b, without)) {
				return profile, b
			}
			if ok {
				break
			}
		}
	}
	for _, b := range boards {
		if _, ok := b.ProfileIndex(without); ok {
			return without, b
		}
	}
	return without, nil
}

// memory is a profile's, in MiB; 0 if the board does not have it.
func memory(b *mig.Board, profile string) float64 {
	k, ok := b.ProfileIndex(profile)
	if !ok {
		return 0
	}
	return b.Profiles[k].Memory()
}

// maxSeconds is the longest time that a table can say: nine digits.
const maxSeconds = 999_999_999

// say adds a line for what a history predicts, unless that is what stands without it, and notes in said what then holds.
func (d *decider) say(kind, who string, last int64, without decision, said map[string]decision, as string, history func() (predict.History, error)) error {
	if said != nil {
		said[as] = without
	}
	if own, ok := d.table.taken[kind+" "+who]; ok {
		if said != nil {
			said[as] = own
		}
		return nil
	}
	h, err := history()
	if err != nil {
		return err
	}
	need, complete := predict.Predict(h, d.site)
	given := Give(need, complete, d.boards, without.profile)
	now := decision{profile: given.Profile}
	if complete {
		now.seconds = int(min(math.Ceil(given.Seconds), maxSeconds))
	}
	if now.alike(without) {
		return nil
	}
	d.lines = append(d.lines, learnedLine{kind, who, now, last})
	if said != nil {
		said[as] = now
	}
	return nil
}
