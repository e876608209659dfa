package learn

import (
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/internal/controller/decisions"
	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// numbered returns complete runs whose peak in MiB is the number in their arguments.
func numbered(key string, numbers ...float64) (runs []predict.Run) {
	for i, x := range numbers {
		n := seen(uint32(2000+i), "n1", began.Add(time.Duration(i)*time.Hour))
		n.Key, n.Args, n.PeakMiB, n.MedianMiB, n.HighMiB = key, []float64{x}, x, x, x
		runs = append(runs, n)
	}
	return runs
}

// TestArgs checks the args lines, which have to be valid, and that a prediction is the profile in the line.
func TestArgs(t *testing.T) {
	const id = "1001:" + key
	line := func(steps string) string { return "args " + id + " " + steps + "\n" }
	related := []float64{1000, 2000, 6000}
	for name, c := range map[string]struct {
		own     string
		numbers []float64
		want    string
		of      map[float64]string // profiles by number
	}{
		"related": {"", related, line("1 4632=1g.5gb 8709=1g.10gb 12000=3g.20gb *=7g.40gb"),
			map[float64]string{1000: "1g.5gb", 4632: "1g.5gb", 5000: "1g.10gb", 1e6: "7g.40gb"}},
		"one run": {"", []float64{1500}, line("1 4005=1g.5gb 7809=1g.10gb 15510=3g.20gb *=7g.40gb"),
			map[float64]string{1500: "1g.5gb", 9000: "3g.20gb"}},
		"the whole GPU suffices for all": {"", []float64{30000}, "", map[float64]string{5: "7g.40gb"}},
		"a line for the key": {"key " + id + " 4g.20gb\n", related, "",
			map[float64]string{1000: "4g.20gb", 1e6: "4g.20gb"}},
		"a line for the arguments": {"args " + id + " 1 5=2g.10gb *=3g.20gb\n", related, "",
			map[float64]string{5: "2g.10gb", 6: "3g.20gb"}},
	} {
		r := fresh(t)
		add(t, r, numbered(key, c.numbers...)...)
		path := begin(t, "caelum-decisions 1 1\n"+own+c.own)
		if _, err := Write(path, r, memoryOnly); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for l := range strings.Lines(learned(t, path)) {
			if strings.HasPrefix(l, "args ") {
				lines = append(lines, l)
			}
		}
		if got := strings.Join(lines, ""); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if _, err := decisions.Parse(read(t, path)); err != nil {
			t.Errorf("%s: %v\n%s", name, err, read(t, path))
		}
		tab, err := ReadTable(path)
		if err != nil {
			t.Fatal(err)
		}
		for x, want := range c.of {
			job := repo.JobKeys{Key: key, Fingerprint: work, UID: 1001, Args: []float64{x}}
			if p, err := tab.Predict(r, job, memoryOnly); err != nil || p.profile() != want {
				t.Errorf("%s: %s for %v, want %s (%v)", name, p.profile(), x, want, err)
			}
		}
	}
}

// TestArgsSmallDefault checks that a number larger than that of the only run does not select a larger profile if the
// default profile is small.
func TestArgsSmallDefault(t *testing.T) {
	r := fresh(t)
	add(t, r, numbered(key, 1500)...)
	path := begin(t, "caelum-decisions 1 1\n"+strings.Replace(own, "default 7g.40gb", "default 1g.5gb", 1))
	if _, err := Write(path, r, memoryOnly); err != nil || strings.Contains(read(t, path), "args ") {
		t.Errorf("%v\n%s", err, read(t, path))
	}
}

// TestSyncReadsArgs checks that a sync reads the numbers of the arguments, and that it ignores an invalid list.
func TestSyncReadsArgs(t *testing.T) {
	for tag, want := range map[string][]float64{
		"2000,0.5": {2000, 0.5}, "": nil, "2000,": nil, "-1": nil, "1,2,3,4,5": nil, "1e3": nil,
	} {
		r := fresh(t)
		rec := record(1, 7, began, []string{"n1"}, seen(7, "n1", began))
		rec.Comment += " caelum:args=" + tag
		d := &dbd{records: []slurm.Record{rec}, names: map[uint64]string{1: "train"}}
		if _, err := Sync(t.Context(), d, r, slurm.AdminComment, time.Time{}, began.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if runs, err := r.Job(7); err != nil || len(runs) != 1 || !slices.Equal(runs[0].Args, want) {
			t.Errorf("%q: %+v, %v", tag, runs, err)
		}
	}
}
