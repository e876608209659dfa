package learn

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
)

// version returns a run of a new script, on 7g.40gb. Each number belongs to a script of its own.
func version(number int, name string, peak float64, state string) predict.Run {
	n := seen(uint32(number+1), "n1", began.Add(time.Duration(number)*time.Minute))
	n.Key, n.Fingerprint = fmt.Sprintf("a%015x", number), fmt.Sprintf("b%015x", number)
	n.UID, n.Name, n.State, n.Profile = 1001, name, state, "7g.40gb"
	n.PeakMiB, n.MedianMiB, n.HighMiB = peak, peak, peak
	if state != "COMPLETED" {
		n.Exit = 1
	}
	return n
}

// newScript is a job with a script that has no runs.
func newScript(name string) repo.JobKeys {
	return repo.JobKeys{Key: "f000000000000001", Fingerprint: "f000000000000002", Name: name, UID: 1001}
}

// earlierScripts are cases of earlier runs, with the profile of a new script named train. The default is 7g.40gb.
var earlierScripts = []struct {
	what string
	runs func(add func(predict.Run))
	want string
}{
	{"versions", func(add func(predict.Run)) {
		for k := range 8 {
			add(version(k, "train", 2500, "COMPLETED"))
		}
	}, "2g.10gb"},
	{"one script", func(add func(predict.Run)) {
		add(version(1, "train", 50, "COMPLETED"))
	}, "7g.40gb"},
	{"one script with many arguments", func(add func(predict.Run)) {
		for k := range 10 {
			n := version(k, "train", 2500, "COMPLETED")
			n.Fingerprint = work
			add(n)
		}
	}, "7g.40gb"},
	{"one script with many names", func(add func(predict.Run)) {
		for k := range 20 {
			n := version(k, fmt.Sprint("sweep-", k), 2500, "COMPLETED")
			n.Fingerprint = work
			add(n)
		}
	}, "7g.40gb"},
	{"failed versions", func(add func(predict.Run)) {
		add(version(0, "train", 30000, "COMPLETED"))
		for k := 1; k < 12; k++ {
			add(version(k, "train", 450, "FAILED"))
		}
	}, "7g.40gb"},
	{"cancelled versions", func(add func(predict.Run)) {
		add(version(0, "train", 30000, "COMPLETED"))
		for k := 1; k < 12; k++ {
			add(version(k, "train", 450, "CANCELLED"))
		}
	}, "7g.40gb"},
	{"a version that ran out of memory", func(add func(predict.Run)) {
		for k := range 8 {
			add(version(k, "train", 2500, "COMPLETED"))
		}
		n := version(8, "train", 2000, "FAILED")
		n.Profile, n.End = "2g.10gb", predict.EndOOM
		add(n)
	}, "3g.20gb"},
	{"another name with one script", func(add func(predict.Run)) {
		for k := range 8 {
			add(version(k, fmt.Sprint("other-", k), 2500, "COMPLETED"))
		}
		add(version(8, "train", 2500, "COMPLETED"))
	}, "2g.10gb"},
}

// TestScriptsThatCount checks which earlier scripts determine the profile of a new one.
func TestScriptsThatCount(t *testing.T) {
	for _, c := range earlierScripts {
		r := fresh(t)
		c.runs(func(n predict.Run) { add(t, r, n) })
		path := begin(t, "caelum-decisions 1 1\n"+own)
		if _, err := Write(path, r, predict.DefaultSite); err != nil {
			t.Fatal(err)
		}
		tab, err := ReadTable(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := tab.Predict(r, newScript("train"), predict.DefaultSite)
		if got := inTable(t, path, newScript("train")).Profile; err != nil || got != c.want || p.profile() != got {
			t.Errorf("%s: the table has %s, and Predict %s (%v), want %s", c.what, got, p.profile(), err, c.want)
		}
	}
}

// TestFullTableKeepsOwnScripts checks that a full table loses the lines for first runs before those of the user's
// scripts.
func TestFullTableKeepsOwnScripts(t *testing.T) {
	r := fresh(t)
	add(t, r, version(0, "big", 30000, "COMPLETED"))
	for k := 1; k < 30; k++ {
		add(t, r, version(k, fmt.Sprint("n", k), 2500, "COMPLETED"))
	}
	for _, room := range []int{25, 60} {
		path := begin(t, "caelum-decisions 1 1\n"+own+strings.Repeat("#\n", 20000-room))
		w, err := Write(path, r, predict.DefaultSite)
		if err != nil {
			t.Fatal(err)
		}
		job := repo.JobKeys{Key: "a000000000000000", Fingerprint: "b000000000000000", Name: "big", UID: 1001}
		if got := inTable(t, path, job).Profile; got != "7g.40gb" {
			t.Errorf("%d lines left out: the oldest script gets %s", w.LeftOut, got)
		}
		if (w.LeftOut > 0) != (room == 25) {
			t.Errorf("room for %d lines: %d left out", room, w.LeftOut)
		}
	}
}

// TestNameLineBeforeUserLine checks that an administrator's name line for a name without scripts leaves the user's
// scripts with runs their own lines.
func TestNameLineBeforeUserLine(t *testing.T) {
	r := fresh(t)
	n := version(1, "train", 30000, "COMPLETED")
	add(t, r, n)
	path := begin(t, "caelum-decisions 1 1\n"+own+"name 1001:"+predict.NameHash("eval")+" 1g.5gb\n")
	if _, err := Write(path, r, predict.DefaultSite); err != nil {
		t.Fatal(err)
	}
	job := repo.JobKeys{Key: n.Key, Fingerprint: n.Fingerprint, Name: "eval", UID: 1001}
	if got := inTable(t, path, job).Profile; got != "7g.40gb" {
		t.Errorf("a script that needs 30000 MiB gets %s", got)
	}
}
