package repo

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"caelum/internal/predict"
)

func open(t *testing.T, path string) *Repo {
	t.Helper()
	r, err := Open(path, func(text string) { t.Error(text) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func fresh(t *testing.T) *Repo { return open(t, filepath.Join(t.TempDir(), "repo.db")) }

// aRun returns a complete run: job 7 of user1.
func aRun() predict.Run {
	return predict.Run{
		Job: 7, Node: "n1", Key: "0123456789abcdef", Fingerprint: "fedcba9876543210",
		UID: 1001, User: "user1", Account: "research", Name: "train",
		Board: "a100", Profile: "2g.10gb", Slices: 1, Start: 1795339216, Seconds: 3590,
		Samples: 3589, PeakMiB: 5321, MedianMiB: 4800, HighMiB: 5100, Util: 0.37, Processes: 2,
		State: "COMPLETED",
	}
}

func add1(t *testing.T, r *Repo, runs ...predict.Run) int {
	t.Helper()
	n, err := r.Add(runs...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func job(t *testing.T, r *Repo, id uint32) []predict.Run {
	t.Helper()
	runs, err := r.Job(id)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// TestAddCompletes: the parts of a run give the same run in any order, however often they are added.
func TestAddCompletes(t *testing.T) {
	whole := aRun()
	seen := whole // as the agent observes it, at the release
	seen.State, seen.Exit = "", 0
	read := predict.Summaries(whole.Summary())[0] // as slurmdbd has it
	read.Job, read.Key, read.UID = whole.Job, whole.Key, whole.UID
	read.User, read.Account, read.Name, read.State = whole.User, whole.Account, whole.Name, whole.State
	short := seen // from an agent that was killed early
	short.Seconds, short.Samples, short.PeakMiB = 10, 10, 100
	blind := seen
	seen.Board = "A100" // the Type in gres.conf; slurmdbd has lower case
	blind.Samples, blind.PeakMiB, blind.MedianMiB, blind.HighMiB, blind.Util, blind.Fingerprint = 0, 0, 0, 0, -1, ""
	for _, order := range [][]predict.Run{
		{seen, read},
		{read, seen},
		{short, whole},
		{whole, short},
		{whole, blind},
		{blind, read, seen},
		{whole, whole},
	} {
		r := fresh(t)
		added := 0
		for _, n := range order {
			added += add1(t, r, n)
		}
		if got := job(t, r, 7); len(got) != 1 || got[0] != whole || added != 1 {
			t.Errorf("%+v\ngave %d new: %+v", order, added, got)
		}
	}
}

// TestAddTellsApart: runs of one job differ by restart, node and start.
func TestAddTellsApart(t *testing.T) {
	r := fresh(t)
	a, b, c, d := aRun(), aRun(), aRun(), aRun()
	b.Restart, c.Node, d.Start = 1, "n2", d.Start+1
	if n := add1(t, r, a, b, c, d); n != 4 || len(job(t, r, 7)) != 4 {
		t.Errorf("%d of 4 were new", n)
	}
}

// TestAddRefuses: a run that its summary could not restore is refused, and no run of that call is stored.
func TestAddRefuses(t *testing.T) {
	r := fresh(t)
	for name, spoil := range map[string]func(*predict.Run){
		"no job":              func(n *predict.Run) { n.Job = 0 },
		"no node":             func(n *predict.Run) { n.Node = "" },
		"blank in a node":     func(n *predict.Run) { n.Node = "n 1" },
		"comma in a profile":  func(n *predict.Run) { n.Profile = "1g,5gb" },
		"no start":            func(n *predict.Run) { n.Start = 0 },
		"invalid key":         func(n *predict.Run) { n.Key = "0123456789ABCDEF" },
		"invalid fingerprint": func(n *predict.Run) { n.Fingerprint = "' OR 1=1 --" },
		"negative peak":       func(n *predict.Run) { n.PeakMiB = -1 },
	} {
		n := aRun()
		spoil(&n)
		if _, err := r.Add(aRun(), n); err == nil || len(job(t, r, 7)) != 0 {
			t.Errorf("%s: %v, %d kept", name, err, len(job(t, r, 7)))
		}
	}
}

// TestTextIsData: names with quotes, SQL, newlines, NUL and invalid UTF-8 are stored unchanged, except for invalid
// UTF-8.
func TestTextIsData(t *testing.T) {
	r := fresh(t)
	for i, name := range []string{
		`'; DROP TABLE run; --`,
		"a\nb\tc",
		"\x00nul\x00",
		`"$(id)"`,
		"\xff\xfe",
		strings.Repeat("é", 300),
		"caelum:run=forged",
	} {
		n := aRun()
		n.Job, n.User, n.Account, n.Name, n.Key = uint32(i+1), name, name, name, fmt.Sprintf("%016x", i)
		add1(t, r, n)
		want := text(name)
		if got := job(t, r, n.Job); len(got) != 1 || got[0].Name != want || got[0].User != want ||
			got[0].Account != want ||
			len(want) > textBytes {
			t.Errorf("%q came back as %+v", name, got)
		}
		if uids, err := r.Users(want); err != nil || len(uids) != 1 {
			t.Errorf("%q has the ids %v, %v", name, uids, err)
		}
	}
	if scripts, err := r.Scripts(); err != nil || len(scripts) != 7 {
		t.Errorf("%d scripts, %v", len(scripts), err)
	}
}

// TestHistory: a history has the newest runs of the right users, oldest first.
func TestHistory(t *testing.T) {
	r := fresh(t)
	var runs []predict.Run
	for i := range Window + 10 {
		n := aRun()
		n.Job, n.Start = uint32(100+i), n.Start+int64(i)
		runs = append(runs, n)
	}
	other := aRun() // another user's run with the same fingerprint and, by a crafted script, the same key
	other.Job, other.UID, other.User, other.Start, other.PeakMiB = 5, 1002, "user2", other.Start+1000, 1
	renamed := aRun()
	renamed.Job, renamed.Key, renamed.Start = 6, "1111111111111111", renamed.Start+2000
	add1(t, r, append(runs, other, renamed)...)

	newest := runs[10:]
	for level, c := range map[predict.Level]struct {
		ask  func() (predict.History, error)
		want []predict.Run
	}{
		predict.ByKey: {func() (predict.History, error) { return r.ByKey(1001, runs[0].Key) }, newest},
		predict.ByUser: {
			func() (predict.History, error) { return r.ByUser(1001, runs[0].Fingerprint) },
			append(slices.Clone(newest[1:]), renamed),
		},
	} {
		if h, err := c.ask(); err != nil || h.Level != level || !slices.Equal(h.Runs, c.want) {
			t.Errorf("%s: %v, %d runs, want %d", level, err, len(h.Runs), len(c.want))
		}
	}
	for _, h := range []func() (predict.History, error){
		func() (predict.History, error) { return r.ByKey(1001, "") },
		func() (predict.History, error) { return r.ByUser(1001, "") },
	} {
		if h, err := h(); err != nil || len(h.Runs) != 0 {
			t.Errorf("an empty key or fingerprint has a history: %v %v", h, err)
		}
	}
	if h, err := r.ByKey(1002, other.Key); err != nil || !slices.Equal(h.Runs, []predict.Run{other}) {
		t.Errorf("the other user's key: %v, %d runs", err, len(h.Runs))
	}
	users, err := r.BySite(runs[0].Fingerprint)
	if err != nil || len(users) != 2 || !slices.Equal(users[0].Runs, append(slices.Clone(newest[1:]), renamed)) ||
		!slices.Equal(users[1].Runs, []predict.Run{other}) {
		t.Errorf("by user: %v, %d users", err, len(users))
	}
	if users, err := r.BySite(""); err != nil || len(users) != 0 {
		t.Errorf("the empty fingerprint has runs of %d users, %v", len(users), err)
	}
	if uids, err := r.Owners(other.Key); err != nil || !slices.Equal(uids, []uint32{1001, 1002}) {
		t.Errorf("the key has the owners %v, %v", uids, err)
	}
}

// TestPredictFallsBack: by key, else by user and work, else by work where the site shares.
func TestPredictFallsBack(t *testing.T) {
	r := fresh(t)
	for i := range uint32(10) {
		n := aRun()
		n.Job, n.Start = 1+i, n.Start+int64(i)
		add1(t, r, n)
	}
	n := aRun()
	share := predict.DefaultSite
	share.Share = true
	add1(t, r, ofUser(1002, 20, 5000), ofUser(1003, 30, 5000))
	for _, c := range []struct {
		of   JobKeys
		site predict.Site
		want predict.Level
	}{
		{JobKeys{Key: n.Key, Fingerprint: n.Fingerprint, UID: n.UID}, predict.DefaultSite, predict.ByKey},
		{JobKeys{Key: "2222222222222222", Fingerprint: n.Fingerprint, UID: n.UID}, predict.DefaultSite, predict.ByUser},
		{JobKeys{Key: "2222222222222222", Fingerprint: n.Fingerprint, UID: 1004}, share, predict.BySite},
		{JobKeys{Key: "2222222222222222", Fingerprint: n.Fingerprint, UID: 1004}, predict.DefaultSite, predict.Unknown},
		// another user's key
		{JobKeys{Key: n.Key, Fingerprint: n.Fingerprint, UID: 1004}, predict.DefaultSite, predict.Unknown},
		{JobKeys{}, share, predict.Unknown},
	} {
		need, h, ok, err := r.Predict(c.of, c.site)
		if err != nil || ok != (c.want != predict.Unknown) || need.Level != c.want || h.Level != c.want {
			t.Errorf("%+v: by %q, %v, %v", c.of, need.Level, ok, err)
		}
	}
}

// ofUser returns another user's run with the same key and script fingerprint.
func ofUser(uid, job uint32, peak float64) predict.Run {
	n := aRun()
	n.UID, n.User, n.Job, n.PeakMiB, n.HighMiB, n.MedianMiB = uid, fmt.Sprint("user", uid), job, peak, peak, peak
	return n
}

// TestKeysOfUsers: runs of another user under the same key do not change, displace or hide the first user's history,
// whichever user ran first.
func TestKeysOfUsers(t *testing.T) {
	r := fresh(t)
	own := aRun()
	early := ofUser(1002, 8, 100)
	early.Start -= 1000
	add1(t, r, own, early)
	for i := range uint32(200) {
		n := ofUser(1002, 100+i, 100)
		n.Start += int64(i) + 1
		add1(t, r, n)
	}
	if n, err := r.Prune(time.Unix(own.Start+1000, 0)); err != nil || n != 201-keepOfKey {
		t.Errorf("%d pruned, %v", n, err)
	}
	if h, err := r.ByKey(own.UID, own.Key); err != nil || !slices.Equal(h.Runs, []predict.Run{own}) {
		t.Errorf("%v, %+v", err, h.Runs)
	}
	scripts, err := r.Scripts()
	if err != nil || len(scripts) != 2 || scripts[0].UID != 1002 || scripts[0].PeakMiB != 100 ||
		scripts[1].UID != own.UID ||
		scripts[1].PeakMiB != own.PeakMiB {
		t.Errorf("%v, %+v", err, scripts)
	}
	if n, err := r.ForgetKeyOf(1002, own.Key, time.Unix(own.Start+1000, 0)); err != nil || n != keepOfKey ||
		len(job(t, r, own.Job)) != 1 {
		t.Errorf("%d forgotten, %v", n, err)
	}
}

// TestPruneShares: if there are too many runs in all, a user with at most an equal share loses none, and the other
// users keep equal numbers of their newest runs.
func TestPruneShares(t *testing.T) {
	r := fresh(t)
	for uid, n := range map[uint32]int{1001: 3, 1002: 40, 1003: 7, 1004: 25} {
		for i := range n {
			run := ofUser(uid, uid*1000+uint32(i), 100)
			run.Key, run.Start = fmt.Sprintf("%016x", i), run.Start+int64(i)
			if uid == 1001 {
				run.Start -= 5000 // the oldest of all
			}
			add1(t, r, run)
		}
	}
	if n, err := r.prune(time.Unix(aRun().Start+100, 0), 1000, 30); err != nil || n != 45 {
		t.Errorf("%d dropped, %v", n, err)
	}
	for uid, c := range map[uint32]struct{ all, left int }{1001: {3, 3}, 1002: {40, 10}, 1003: {7, 7}, 1004: {25, 10}} {
		for i := range c.all {
			if there := len(job(t, r, uid*1000+uint32(i))) == 1; there != (i >= c.all-c.left) {
				t.Errorf("run %d of user %d is there: %v", i, uid, there)
			}
		}
	}
}

func TestScripts(t *testing.T) {
	r := fresh(t)
	old, last, other, unknown := aRun(), aRun(), aRun(), aRun()
	old.Start, old.PeakMiB, old.Name = old.Start-100, 9000, "before"
	last.Job = 8
	other.Job, other.Key, other.Start = 9, "1111111111111111", other.Start+5
	other.Samples, other.PeakMiB, other.Util = 0, 0, -1
	other.MedianMiB, other.HighMiB = 0, 0
	unknown.Job, unknown.Key = 10, ""
	add1(t, r, old, last, other, unknown)
	scripts, err := r.Scripts()
	if err != nil || len(scripts) != 2 {
		t.Fatalf("%v %+v", err, scripts)
	}
	if w := scripts[0]; w.Key != other.Key || w.Runs != 1 || w.PeakMiB != 0 {
		t.Errorf("first %+v", w)
	}
	if w := scripts[1]; w.Key != last.Key || w.Runs != 2 || w.PeakMiB != 9000 || w.Name != "train" ||
		w.Last != last.Start ||
		w.UID != 1001 ||
		w.Fingerprint != last.Fingerprint {
		t.Errorf("second %+v", w)
	}
}

// TestForget: a sync does not add forgotten runs again, and later runs are stored.
func TestForget(t *testing.T) {
	now := time.Unix(aRun().Start+100, 0)
	for name, c := range map[string]struct {
		forget func(*Repo) (int, error)
		gone   []uint32
	}{
		"key":         {func(r *Repo) (int, error) { return r.ForgetKey(aRun().Key, now) }, []uint32{1, 2}},
		"user's key":  {func(r *Repo) (int, error) { return r.ForgetKeyOf(1001, aRun().Key, now) }, []uint32{1, 2}},
		"other's key": {func(r *Repo) (int, error) { return r.ForgetKeyOf(1002, aRun().Key, now) }, nil},
		"user":        {func(r *Repo) (int, error) { return r.ForgetUser(1001, now) }, []uint32{1, 2, 3}},
		"before":      {func(r *Repo) (int, error) { return r.ForgetBefore(time.Unix(aRun().Start, 0)) }, []uint32{1}},
	} {
		r := fresh(t)
		a, b, c3, d := aRun(), aRun(), aRun(), aRun()
		a.Job, a.Start = 1, a.Start-10
		b.Job = 2
		c3.Job, c3.Key = 3, "1111111111111111"
		d.Job, d.Key, d.UID = 4, "2222222222222222", 1002
		add1(t, r, a, b, c3, d)
		n, err := c.forget(r)
		if err != nil || n != len(c.gone) {
			t.Errorf("%s: %d forgotten, %v", name, n, err)
		}
		if n := add1(t, r, a, b, c3, d); n != 0 {
			t.Errorf("%s: %d came back", name, n)
		}
		for id := uint32(1); id <= 4; id++ {
			if got := len(job(t, r, id)) == 0; got != slices.Contains(c.gone, id) {
				t.Errorf("%s: job %d is gone: %v", name, id, got)
			}
		}
		later := a
		later.Start = now.Unix()
		if n := add1(t, r, later); n != 1 {
			t.Errorf("%s: a later run is not kept", name)
		}
	}
}

func TestPrune(t *testing.T) {
	r := fresh(t)
	start := aRun().Start
	var runs []predict.Run
	for i := range 20 {
		n := aRun()
		n.Job, n.Start, n.Key = uint32(i+1), start+int64(i), fmt.Sprintf("%016x", i%2)
		runs = append(runs, n)
	}
	ancient := aRun()
	ancient.Job, ancient.Start = 99, start-int64(keepFor/time.Second)
	add1(t, r, append(runs, ancient)...)

	// A clock at 1970 or a century ahead removes no run that a correct clock would not.
	for _, now := range []time.Time{time.Unix(0, 0), time.Unix(start+3e9, 0)} {
		if n, err := r.prune(now, 10, 20); err != nil || n > 1 || len(job(t, r, 1)) != 1 {
			t.Errorf("%d dropped, %v", n, err)
		}
	}
	if len(job(t, r, 99)) != 0 {
		t.Error("the ancient run is still there")
	}
	if n, err := r.prune(time.Unix(start+20, 0), 8, 20); err != nil || n != 4 || len(job(t, r, 4)) != 0 ||
		len(job(t, r, 5)) != 1 {
		t.Errorf("of each key: %d dropped, %v", n, err)
	}
	if n, err := r.prune(time.Unix(start+20, 0), 8, 5); err != nil || n != 11 || len(job(t, r, 15)) != 0 ||
		len(job(t, r, 16)) != 1 {
		t.Errorf("in all: %d dropped, %v", n, err)
	}
}

// TestOutbox: a run passes from an open observation to slurmdbd across restarts of the agent.
func TestOutbox(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repo.db")
	r := open(t, path)
	check(t, r.Observe(Observation{7, 0, []byte("begun")}))
	check(t, r.Observe(Observation{8, 1, []byte("other")}))
	check(t, r.Observe(Observation{7, 0, []byte("\x00more\xff")}))
	check(t, r.Close())
	r = open(t, path)
	o, err := r.Observations()
	if err != nil || len(o) != 2 || string(o[0].Text) != "\x00more\xff" || o[1].Job != 8 || o[1].Restart != 1 {
		t.Fatalf("%+v %v", o, err)
	}
	check(t, r.Dismiss(8, 1))

	end := time.Unix(1795342806, 0)
	n := aRun()
	check(t, r.Ended(n, end))
	check(t, r.Ended(n, end.Add(time.Hour))) // a second epilog of the same run
	if o, err := r.Observations(); err != nil || len(o) != 0 {
		t.Errorf("still open: %v %v", o, err)
	}
	due, err := r.Due(end, 10)
	if err != nil || len(due) != 1 || due[0].Run != n || !due[0].Since.Equal(end) || due[0].Written ||
		due[0].Tries != 0 {
		t.Fatalf("%+v %v", due, err)
	}
	check(t, r.Recorded(n))
	if len(job(t, r, 7)) != 1 {
		t.Error("the run must stay")
	}
	nothingDue(t, r)
}

// TestPostpone: a postponed run is due at its time, and also if the clock was set back.
func TestPostpone(t *testing.T) {
	r, n, end := fresh(t), aRun(), time.Unix(1795342806, 0)
	check(t, r.Ended(n, end))
	check(t, r.Postpone(n, end.Add(time.Minute), true))
	if due, err := r.Due(end, 10); err != nil || len(due) != 0 {
		t.Errorf("postponed, but due: %+v %v", due, err)
	}
	if next, some, err := r.Next(); err != nil || !some || !next.Equal(end.Add(time.Minute)) {
		t.Errorf("next at %v %v %v", next, some, err)
	}
	for _, now := range []time.Time{end.Add(time.Minute), end.Add(-48 * time.Hour)} {
		if due, err := r.Due(now, 10); err != nil || len(due) != 1 || !due[0].Written || due[0].Tries != 1 {
			t.Errorf("at %v: %+v %v", now, due, err)
		}
	}
	check(t, r.Recorded(n))
	nothingDue(t, r)
}

// TestForgottenIsNotWritten: a forgotten run leaves the outbox, and does not return if it ends again.
func TestForgottenIsNotWritten(t *testing.T) {
	r, n, end := fresh(t), aRun(), time.Unix(1795342806, 0)
	check(t, r.Ended(n, end))
	_, err := r.ForgetKey(n.Key, end)
	check(t, err)
	nothingDue(t, r)
	check(t, r.Ended(n, end))
	nothingDue(t, r)
}

// nothingDue checks that no run waits to be written to slurmdbd.
func nothingDue(t *testing.T, r *Repo) {
	t.Helper()
	if w, err := r.Waiting(); err != nil || w != 0 {
		t.Errorf("%d runs wait, %v", w, err)
	}
	if _, some, err := r.Next(); err != nil || some {
		t.Errorf("something is next: %v", err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNotes(t *testing.T) {
	r := fresh(t)
	if v, err := r.Note("synced"); err != nil || v != "" {
		t.Errorf("%q %v", v, err)
	}
	for _, want := range []string{"1", "2"} {
		if err := r.SetNote("synced", want); err != nil {
			t.Fatal(err)
		}
		if v, err := r.Note("synced"); err != nil || v != want {
			t.Errorf("%q %v", v, err)
		}
	}
}

// TestExport: an export imported into another repository gives the same export.
func TestExport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir := filepath.Join(testDir, fmt.Sprint(time.Now().UnixNano()))
		a, b := mustOpen(t, dir+"a"), mustOpen(t, dir+"b")
		defer a.Close()
		defer b.Close()
		for range rapid.IntRange(0, 8).Draw(t, "runs") {
			n := drawRun(t)
			if _, err := a.Add(n); err != nil {
				t.Fatal(err)
			}
		}
		var one, two, three strings.Builder
		if err := a.Export(&one); err != nil {
			t.Fatal(err)
		}
		read, added, err := b.Import(strings.NewReader(one.String()))
		if err != nil || read != added || read != strings.Count(one.String(), "\n") {
			t.Fatalf("%d read, %d new, %v", read, added, err)
		}
		if err := b.Export(&two); err != nil || one.String() != two.String() {
			t.Fatalf("%v\n%s\n%s", err, one.String(), two.String())
		}
		if _, added, err := b.Import(strings.NewReader(one.String())); err != nil || added != 0 {
			t.Fatalf("again: %d new, %v", added, err)
		}
		if err := b.Export(&three); err != nil || three.String() != one.String() {
			t.Fatalf("again: %v", err)
		}
	})
}

func drawRun(t *rapid.T) predict.Run {
	n := predict.Run{
		Job:     rapid.Uint32Range(1, 5).Draw(t, "job"),
		Restart: rapid.IntRange(0, 2).Draw(t, "restart"),
		Node:    rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node"),
		Key:     rapid.SampledFrom([]string{"", "0123456789abcdef"}).Draw(t, "key"),
		UID:     rapid.Uint32().Draw(t, "uid"),
		Name:    rapid.String().Draw(t, "name"),
		Board:   "a100",
		Profile: "1g.5gb",
		Slices:  rapid.IntRange(1, 8).Draw(t, "slices"),
		Start:   rapid.Int64Range(1, 1<<33).Draw(t, "start"),
		Seconds: rapid.Float64Range(0, 1e7).Draw(t, "seconds"),
		State:   rapid.SampledFrom([]string{"", "COMPLETED", "FAILED"}).Draw(t, "state"),
		Util:    -1,
	}
	if n.Samples = rapid.IntRange(0, 100).Draw(t, "samples"); n.Samples > 0 {
		n.PeakMiB, n.Util = rapid.Float64Range(0, 80000).Draw(t, "peak"), rapid.Float64Range(-1, 1).Draw(t, "util")
	}
	return n
}

// TestImportRefuses: a file with an invalid line is not imported at all, and the error names the line.
func TestImportRefuses(t *testing.T) {
	r := fresh(t)
	add1(t, r, aRun())
	var b strings.Builder
	if err := r.Export(&b); err != nil {
		t.Fatal(err)
	}
	good := b.String()
	for name, bad := range map[string]string{
		"no JSON":        "x\n",
		"empty line":     "\n",
		"another object": `{"a":1}` + "\n",
		"cut short":      good[:40],
		"negative":       strings.Replace(good, `"peak_mib":5321`, `"peak_mib":-1`, 1),
		"two in a line":  strings.TrimSpace(good) + good,
		"too long":       strings.Repeat("x", maxLine+1),
		"invalid key":    strings.Replace(good, "0123456789abcdef", "0123", 1),
	} {
		r := fresh(t)
		if _, _, err := r.Import(strings.NewReader(good + bad)); err == nil ||
			!strings.Contains(err.Error(), "line 2: ") ||
			len(job(t, r, 7)) != 0 {
			t.Errorf("%s: %v, %d runs", name, err, len(job(t, r, 7)))
		}
	}
}

// TestMigratesKeys: version 2 grouped runs by key. In version 3 the runs of one key belong to their users, and a key
// that an administrator has forgotten stays forgotten.
func TestMigratesKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repo.db")
	values := func(id, uid int) string {
		return fmt.Sprintf(
			`(%d, 0, 'n1', 1795339216, '0123456789abcdef', 'fedcba9876543210', %d, 'user', 'research', 'train',
			'a100', '2g.10gb', 1, 3590, 3589, 5321, 4800, 5100, 0.37, 'COMPLETED', 0, 1)`,
			id,
			uid,
		)
	}
	edit(
		t,
		path,
		schema[0]+schema[1]+`; PRAGMA user_version = 2; INSERT INTO run VALUES `+values(7, 1001)+","+values(8, 1002)+`;
		INSERT INTO forgotten VALUES ('1111111111111111', -1, 1795339217)`,
	)
	r := open(t, path)
	for uid, id := range map[uint32]uint32{1001: 7, 1002: 8} {
		if h, err := r.ByKey(uid, "0123456789abcdef"); err != nil || len(h.Runs) != 1 || h.Runs[0].Job != id {
			t.Errorf("user %d: %+v, %v", uid, h.Runs, err)
		}
	}
	n := aRun()
	n.Job, n.Key = 9, "1111111111111111"
	if add1(t, r, n) != 0 {
		t.Error("a forgotten run came back")
	}
}

// TestMigrates: the repository of an earlier release keeps its runs.
func TestMigrates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repo.db")
	edit(t, path, schema[0]+`; PRAGMA user_version = 1;
		INSERT INTO run VALUES (7, 0, 'n1', 1795339216, '0123456789abcdef', 'fedcba9876543210', 1001, 'user1',
		'research', 'train', 'a100', '2g.10gb', 1, 3590, 3589, 5321, 4800, 5100, 0.37, 'COMPLETED', 0)`)
	r := open(t, path)
	want := aRun()
	want.Processes = 0
	if got := job(t, r, 7); len(got) != 1 || got[0] != want {
		t.Errorf("%+v", got)
	}
	if add1(t, r, aRun()) != 0 {
		t.Error("the same run is new")
	}
	if got := job(t, r, 7); got[0] != aRun() {
		t.Errorf("completed: %+v", got)
	}
}

// TestTogether: several processes open a new repository and write to it at the same time, and no run is lost.
func TestTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repo.db")
	var all sync.WaitGroup
	for w := range 6 {
		all.Go(func() {
			r, err := Open(path, func(text string) { t.Error(text) })
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			for i := range 20 {
				n := aRun()
				n.Job = uint32(1 + 100*w + i)
				if _, err := r.Add(n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	r := open(t, path)
	if scripts, err := r.Scripts(); err != nil || len(scripts) != 1 || scripts[0].Runs != 120 {
		t.Errorf("%+v %v", scripts, err)
	}
}
