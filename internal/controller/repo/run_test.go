package repo

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"caelum/internal/core/predict"
)

// TestAddCompletes checks that partial data about a run always result in the same run, regardless of how often and in
// which order they are added.
func TestAddCompletes(t *testing.T) {
	whole := aRun()
	whole.End, whole.ForeseenMiB, whole.Args = predict.EndForeseen, 12800, []float64{2000, 0.5}
	seen := whole // the run that the agent records when it releases the lease
	seen.State, seen.Exit, seen.Args = "", 0, nil
	read := predict.Summaries(whole.Summary())[0] // the run that the sync reads from slurmdbd
	read.Job, read.Key, read.UID = whole.Job, whole.Key, whole.UID
	read.Args = whole.Args
	read.User, read.Account, read.Name, read.State = whole.User, whole.Account, whole.Name, whole.State
	short := seen // the run that an agent records after it was killed early
	short.Seconds, short.Samples, short.PeakMiB = 10, 10, 100
	blind := seen
	seen.End, seen.ForeseenMiB = "", 0
	seen.GPUType = "A100" // the Type in gres.conf; slurmdbd stores it in lower case
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
		if got := job(t, r, 7); len(got) != 1 || !reflect.DeepEqual(got[0], whole) || added != 1 {
			t.Errorf("after adding %+v:\n%d new runs, and the repository contains %+v", order, added, got)
		}
	}
}

// TestAddTellsApart checks that Add distinguishes the runs of one job by restart count, node and start.
func TestAddTellsApart(t *testing.T) {
	r := fresh(t)
	a, b, c, d := aRun(), aRun(), aRun(), aRun()
	b.Restart, c.Node, d.Start = 1, "n2", d.Start+1
	if n := add1(t, r, a, b, c, d); n != 4 || len(job(t, r, 7)) != 4 {
		t.Errorf("Add stored %d of 4 runs", n)
	}
}

// TestAddRefuses checks that Add rejects a run that cannot be restored from its summary, and does not store any other
// run from the same call.
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
			t.Errorf("%s: error %v, %d runs stored", name, err, len(job(t, r, 7)))
		}
	}
}

// TestTextIsData checks that the repository stores names with quotes, SQL, newlines and NUL in the form that text
// returns.
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
			t.Errorf("name %q: the stored runs are %+v", name, got)
		}
		if uids, err := r.Users(want); err != nil || len(uids) != 1 {
			t.Errorf("user name %q has the ids %v, %v", name, uids, err)
		}
	}
	if scripts, err := r.Scripts(); err != nil || len(scripts) != 7 {
		t.Errorf("%d scripts, %v", len(scripts), err)
	}
}

// TestHistory checks that a history has only the requested user's newest runs, oldest first.
func TestHistory(t *testing.T) {
	r := fresh(t)
	var runs []predict.Run
	for i := range Window + 10 {
		n := aRun()
		n.Job, n.Start = uint32(100+i), n.Start+int64(i)
		runs = append(runs, n)
	}
	other := aRun() // another user's run with the same fingerprint and, because of a crafted script, the same key
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
		if h, err := c.ask(); err != nil || h.Level != level || !reflect.DeepEqual(h.Runs, c.want) {
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
	if h, err := r.ByKey(1002, other.Key); err != nil || !reflect.DeepEqual(h.Runs, []predict.Run{other}) {
		t.Errorf("the other user's key: %v, %d runs", err, len(h.Runs))
	}
	users, err := r.BySite(runs[0].Fingerprint)
	if err != nil || len(users) != 2 || !reflect.DeepEqual(users[0].Runs, append(slices.Clone(newest[1:]), renamed)) ||
		!reflect.DeepEqual(users[1].Runs, []predict.Run{other}) {
		t.Errorf("by user: %v, %d users", err, len(users))
	}
	if users, err := r.BySite(""); err != nil || len(users) != 0 {
		t.Errorf("the empty fingerprint has runs of %d users, %v", len(users), err)
	}
	if uids, err := r.Owners(other.Key); err != nil || !slices.Equal(uids, []uint32{1001, 1002}) {
		t.Errorf("the key has the owners %v, %v", uids, err)
	}
}

// ofUser returns a run of the given user, with the key and the script fingerprint of aRun.
func ofUser(uid, job uint32, peak float64) predict.Run {
	n := aRun()
	n.UID, n.User, n.Job, n.PeakMiB, n.HighMiB, n.MedianMiB = uid, fmt.Sprint("user", uid), job, peak, peak, peak
	return n
}

// TestTogether checks that no run is lost if several goroutines concurrently create a repository and write to it, each
// through its own connection.
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
