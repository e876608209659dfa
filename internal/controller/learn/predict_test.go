package learn

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"caelum/internal/controller/decisions"
	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
)

// TestPredictFallsBack checks which runs a prediction uses. It must use the runs with the job's key or, if there are
// none, the user's runs with the same script fingerprint. If there are none either and the site shares runs, it must
// use all users' runs with this fingerprint.
func TestPredictFallsBack(t *testing.T) {
	r := fresh(t)
	n := seen(0, "n1", began)
	add(t, r, ten(n.Key, n.Fingerprint, n.UID, 5000, began)...)
	for _, uid := range []uint32{1002, 1003} {
		other := seen(uid, "n1", began)
		other.UID = uid
		add(t, r, other)
	}
	share := memoryOnly
	share.Share = true
	for _, c := range []struct {
		of   repo.JobKeys
		site predict.Site
		want predict.Level
	}{
		{repo.JobKeys{Key: n.Key, Fingerprint: n.Fingerprint, UID: n.UID}, memoryOnly, predict.ByKey},
		{repo.JobKeys{Key: otherKey, Fingerprint: n.Fingerprint, UID: n.UID}, memoryOnly, predict.ByUser},
		{repo.JobKeys{Key: otherKey, Fingerprint: n.Fingerprint, UID: 1004}, share, predict.BySite},
		{repo.JobKeys{Key: otherKey, Fingerprint: n.Fingerprint, UID: 1004}, memoryOnly, predict.Unknown},
		// another user's key
		{repo.JobKeys{Key: n.Key, Fingerprint: n.Fingerprint, UID: 1004}, memoryOnly, predict.Unknown},
		{repo.JobKeys{}, share, predict.Unknown},
	} {
		p, err := Table{}.Predict(r, c.of, c.site)
		if err != nil || p.Complete != (c.want != predict.Unknown) || p.Need.Level != c.want ||
			p.History.Level != c.want {
			t.Errorf("%+v: by %q, %v, %v", c.of, p.Need.Level, p.Complete, err)
		}
	}
}

const otherKey = "2222222222222222"

// TestOwn checks that an administrator's line takes precedence over a learned line if job_submit.lua reads it first.
func TestOwn(t *testing.T) {
	path := begin(t, "caelum-decisions 1 1\n"+own+"user 1002:"+work+" 3g.20gb\nsite "+work+" 4g.20gb\n")
	tab, err := ReadTable(path)
	if err != nil {
		t.Fatal(err)
	}
	runs := func(key string, uid uint32) []predict.Run { return ten(key, work, uid, 5000, began) }
	for _, c := range []struct {
		what string
		job  repo.JobKeys
		runs []predict.Run
		want string
	}{
		{"a line for the key", repo.JobKeys{Key: "00000000000000aa", Fingerprint: work, UID: 1002},
			runs("00000000000000aa", 1002), "4g.20gb"},
		{"runs of the key", repo.JobKeys{Key: "00000000000000b1", Fingerprint: work, UID: 1002},
			runs("00000000000000b1", 1002), ""},
		{"runs of the user", repo.JobKeys{Key: "00000000000000b1", Fingerprint: work, UID: 1002},
			runs(otherKey, 1002), "3g.20gb"},
		{"runs of a user without a line", repo.JobKeys{Key: "00000000000000a1", Fingerprint: work, UID: 1001},
			runs(otherKey, 1001), ""},
		{"a line for the site", repo.JobKeys{Key: "00000000000000a1", Fingerprint: work, UID: 1001},
			nil, "4g.20gb"},
		{"a job without a script", repo.JobKeys{Key: "00000000000000aa", UID: 1002}, nil, "4g.20gb"},
	} {
		r := fresh(t)
		add(t, r, c.runs...)
		if p, err := tab.Predict(r, c.job, memoryOnly); err != nil || p.Own != c.want {
			t.Errorf("%s: %q %v, want %q", c.what, p.Own, err, c.want)
		}
	}
}

// killed returns a run that ran out of memory on a profile with this memory.
func killed(key string, job uint32, profile string, mib float64, start time.Time) predict.Run {
	n := seen(job, "n1", start)
	n.Key, n.Profile, n.State, n.Exit = key, profile, "FAILED", 1
	n.PeakMiB, n.MedianMiB, n.HighMiB = mib, mib, mib
	return n
}

// inTable returns the decision that job_submit.lua makes for a job according to a table: the first line that applies
// (key, user, site, name, owner) or, if there is none, the default profile.
func inTable(t *testing.T, path string, job repo.JobKeys) predict.Line {
	t.Helper()
	table, err := decisions.Parse(read(t, path))
	if err != nil {
		t.Fatal(err)
	}
	for kind, lines := range []map[string]predict.Line{table.Key, table.User, table.Site, table.Name, table.Owner} {
		if l, ok := lines[subject(predict.Levels[kind], job)]; ok {
			return l
		}
	}
	return predict.Line{Profile: table.Default, Busy: -1}
}

// TestBoundOfKey checks a key whose only run ran out of memory, although the script completed under another of the
// user's keys. The lower bound that follows from the failed run must apply both in the table and in the prediction.
func TestBoundOfKey(t *testing.T) {
	r := fresh(t)
	add(t, r, killed(otherKey, 7, "3g.20gb", 20000, began.Add(-time.Hour)))
	add(t, r, ten(key, work, 1001, 5000, began.Add(24*time.Hour))...)
	path := begin(t, "caelum-decisions 1 1\n"+own)
	if _, err := Write(path, r, memoryOnly); err != nil {
		t.Fatal(err)
	}
	tab, err := ReadTable(path)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{otherKey: "7g.40gb", key: "1g.10gb"} {
		job := repo.JobKeys{Key: key, Fingerprint: work, UID: 1001}
		p, err := tab.Predict(r, job, memoryOnly)
		has := inTable(t, path, job).Profile
		if err != nil || p.Profile != want || p.Need.Level != predict.ByKey || has != want {
			t.Errorf("%s: the prediction is %s by %q, the table contains %s, want %s (%v)",
				key, p.Profile, p.Need.Level, has, want, err)
		}
	}
}

// TestPredictAsTable checks, for random runs and random administrator's lines, that the prediction for each key is
// equivalent to the written table's decision for a job with this key. With -short, it uses 12 rounds instead of 60.
func TestPredictAsTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	profiles := []struct {
		name string
		mib  float64
	}{{"1g.5gb", 5000}, {"1g.10gb", 9500}, {"3g.20gb", 20000}, {"7g.40gb", 39000}}
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	works := []string{work, "00000000000000f2"}
	rounds := 60
	if testing.Short() {
		rounds = 12
	}
	for round := range rounds {
		r, text := fresh(t), "caelum-decisions 1 1\n"+own
		names, scatter := 1+rng.IntN(3), rng.Float64()
		for k := range uint32(1 + rng.IntN(40)) {
			on := profiles[rng.IntN(len(profiles))]
			n := killed(pick(key, otherKey, fmt.Sprintf("333333333333333%x", rng.IntN(16))), 1+k, on.name, on.mib,
				began.Add(time.Duration(rng.IntN(1000))*time.Minute))
			n.Fingerprint, n.UID = works[rng.IntN(2)], 1001+uint32(rng.IntN(3))
			n.Name = fmt.Sprint("name", rng.IntN(names))
			if rng.IntN(2) == 0 {
				n.State, n.Exit, n.PeakMiB = "COMPLETED", 0, on.mib*(1-scatter*rng.Float64())
				n.Util = []float64{-1, 0, rng.Float64(), 1}[rng.IntN(4)]
			}
			add(t, r, n)
		}
		for _, line := range []string{"user 1001:" + work, "user 1002:" + works[1], "site " + work, "key 1001:" + key,
			"owner 1001", "name 1002:" + predict.NameHash("name0")} {
			if rng.IntN(4) == 0 {
				text += fmt.Sprintf("%s %s%s\n", line, pick("1g.5gb", "2g.10gb", "7g.40gb"), pick("", " 60", " 600 50"))
			}
		}
		site := memoryOnly
		site.Share, site.Users = rng.IntN(2) == 0, 1+rng.IntN(2)
		site.FirstRunQuantile = []float64{0, 0.5, 0.9}[rng.IntN(3)]
		comparePredictions(t, fmt.Sprint("round ", round), r, begin(t, text), site)
	}
}

// comparePredictions writes the table at path, and compares it with the prediction for each key in the repository and
// for a new key of each user.
func comparePredictions(t *testing.T, what string, r *repo.Repo, path string, site predict.Site) {
	t.Helper()
	if _, err := Write(path, r, site); err != nil {
		t.Fatal(err)
	}
	tab, err := ReadTable(path)
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := r.Scripts()
	if err != nil || len(scripts) == 0 {
		t.Fatal(err, len(scripts))
	}
	for _, s := range scripts {
		renamed, edited := s.JobKeys, s.JobKeys
		renamed.Key = "4444444444444444"
		edited.Key, edited.Fingerprint = renamed.Key, "00000000000000f3"
		other := edited
		other.Name = "another name"
		for _, job := range []repo.JobKeys{s.JobKeys, renamed, edited, other} {
			p, err := tab.Predict(r, job, site)
			if has := inTable(t, path, job); err != nil || p.profile() != has.Profile || !alike(p.line(), has) {
				t.Errorf("%s: %+v: the prediction is %+v, the table contains %+v (%v)", what, job, p.line(), has, err)
			}
		}
	}
}
