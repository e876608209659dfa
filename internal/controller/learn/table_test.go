package learn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"caelum/internal/controller/decisions"
	"caelum/internal/controller/repo"
	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
)

// own holds the administrator's lines of a table, with the profiles of an A100-40GB.
const own = `partition gpu   # GPUs
profile 1g.5gb 4864
profile 1g.10gb
profile 2g.10gb
profile 3g.20gb
profile 4g.20gb
profile 7g.40gb
default 7g.40gb
max_nodes 2
key 1002:00000000000000aa 4g.20gb  # mine
`

func begin(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "decisions")
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ten returns ten runs with the given script fingerprint and peak. The last run starts at the time last.
func ten(key, work string, uid uint32, peak float64, last time.Time) (runs []predict.Run) {
	for i := range 10 {
		n := seen(uint32(1000+i), "n"+key[12:], last.Add(time.Duration(i-9)*time.Hour))
		n.Key, n.Fingerprint, n.UID, n.PeakMiB, n.MedianMiB, n.HighMiB = key, work, uid, peak, peak, peak
		runs = append(runs, n)
	}
	return runs
}

var lineSeconds = regexp.MustCompile(`(?m)^((?:key|user|site) \S+ \S+)(?: [0-9-]+){1,2}$`)

// learned returns the learned lines of a table without their expected run times and busy shares.
func learned(t *testing.T, path string) string {
	t.Helper()
	_, text, ok := strings.Cut(read(t, path), marker)
	if !ok {
		t.Fatalf("no marker in\n%s", read(t, path))
	}
	return lineSeconds.ReplaceAllString(text, "$1")
}

func filled(t *testing.T) *repo.Repo {
	r := fresh(t)
	add(t, r, ten("00000000000000a1", work, 1001, 5000, began)...) // needs 1g.10gb, and is the newest
	// The same script under another name must not cause an additional line.
	add(t, r, ten("00000000000000a2", work, 1001, 5000, began.Add(-24*time.Hour))...)
	add(t, r, ten("00000000000000b1", work, 1002, 100, began.Add(-48*time.Hour))...) // another user's runs
	// Jobs without a script must not cause a line, because their key does not identify the program.
	add(t, r, ten("00000000000000d1", "", 1003, 20000-9000, began.Add(-72*time.Hour))...)
	add(t, r, ten("00000000000000aa", "", 1004, 100, began.Add(-80*time.Hour))...) // decided by the administrator
	return r
}

// TestWrite checks that the administrator's lines remain unchanged and are followed by the learned lines, newest first,
// without any redundant ones.
func TestWrite(t *testing.T) {
	path := begin(t, "caelum-decisions 1 41\n"+own)
	done, err := Write(path, filled(t), memoryOnly)
	if err != nil || !done.Changed || done.Generation != 42 || done.LeftOut != 0 {
		t.Fatalf("%+v %v", done, err)
	}
	text := read(t, path)
	if !strings.HasPrefix(text, "caelum-decisions 1 42\n"+own+marker) {
		t.Errorf("the administrator's lines:\n%s", text)
	}
	const want = `user 1001:fedcba9876543210 1g.10gb
user 1002:fedcba9876543210 1g.5gb
`
	if got := learned(t, path); got != want || done.Learned != 2 {
		t.Errorf("%d lines:\n%s", done.Learned, got)
	}
}

// TestWriteOldMarker checks that the lines below the marker of earlier versions count as learned, and that a write
// replaces both the lines and the marker.
func TestWriteOldMarker(t *testing.T) {
	const site = "site 0123456789abcdef 1g.5gb\n"
	for _, below := range []string{oldMarker, oldMarker + marker, marker + oldMarker} {
		path := begin(t, "caelum-decisions 1 41\n"+own+below+site)
		if done, err := Write(path, filled(t), memoryOnly); err != nil || !done.Changed {
			t.Fatalf("%+v %v", done, err)
		}
		text := read(t, path)
		if !strings.HasPrefix(text, "caelum-decisions 1 42\n"+own+marker) || strings.Contains(text, oldMarker) ||
			strings.Contains(text, site) || strings.Count(text, marker) != 1 {
			t.Errorf("the table after a write:\n%s", text)
		}
	}
}

// TestWriteShared checks that the table has a site line for a script if the site shares runs and enough users have run
// the script. It must also have one for each user with runs of the script.
func TestWriteShared(t *testing.T) {
	path := begin(t, "caelum-decisions 1 1\n"+own+"user 1002:"+work+" 3g.20gb\n")
	site := memoryOnly
	site.Share = true
	for _, c := range []struct {
		users int
		want  string
	}{
		{0, "user 1001:fedcba9876543210 1g.10gb\nkey 1002:00000000000000b1 1g.5gb\n"}, // requires three
		{2, "site fedcba9876543210 1g.10gb\nuser 1001:fedcba9876543210 1g.10gb\nkey 1002:00000000000000b1 1g.5gb\n"},
	} {
		site.Users = c.users
		if _, err := Write(path, filled(t), site); err != nil {
			t.Fatal(err)
		}
		if got := learned(t, path); got != c.want {
			t.Errorf("%d users:\n%s", c.users, got)
		}
	}
}

// TestWriteBusy checks that a learned line shows the 90% quantile of the run time, and the busy share if it is known
// from the runs, and that it is omitted as redundant if the administrator's line has almost the same values.
func TestWriteBusy(t *testing.T) {
	const user, name = "user 1001:" + work + " 1g.10gb", "key 1001:" + key + " 1g.10gb"
	for _, c := range []struct {
		util      float64 // of the whole GPU, which has 7 compute slices; -1: unknown
		own, want string
	}{
		{0.5, "", user + " 2642-2985 89\n"},
		{0, "", user + " 719-812 19\n"},
		{1, "", user + " 3191-3604 94\n"},
		{-1, "", user + " 1957-2211\n"},
		{0.5, user + " 2400-2700 79\n", ""},
		{0.5, user + " 2400-2700 99\n", ""},
		{0.5, user + " 2400-2700 78\n", name + " 2642-2985 89\n"},
		{0.5, user + " 2400-2700 100\n", name + " 2642-2985 89\n"},
		{0.5, user + " 2400-2700\n", name + " 2642-2985 89\n"},
		{-1, user + " 1957-2211\n", ""},
		{-1, user + " 1957-2211 0\n", ""},
		{-1, user + " 1957\n", name + " 1957-2211\n"},
	} {
		r := fresh(t)
		runs := ten(key, work, 1001, 5000, began)
		for i := range runs {
			runs[i].Util = c.util
		}
		add(t, r, runs...)
		path := begin(t, "caelum-decisions 1 1\n"+own+c.own)
		if _, err := Write(path, r, memoryOnly); err != nil {
			t.Fatal(err)
		}
		if _, got, _ := strings.Cut(read(t, path), marker); got != c.want {
			t.Errorf("utilisation %g, %q: %q, want %q", c.util, c.own, got, c.want)
		}
		if _, err := decisions.Parse(read(t, path)); err != nil {
			t.Errorf("utilisation %g, %q: %v", c.util, c.own, err)
		}
	}
}

// TestAlike checks by how much a line may differ from the decision that would apply without it and still be redundant.
func TestAlike(t *testing.T) {
	line := func(profile string, seconds, busy int) predict.Line {
		return predict.Line{Profile: profile, Seconds: seconds, Busy: busy}
	}
	base := line("2g.10gb", 1000, 50)
	high := func(seconds int) predict.Line {
		return predict.Line{Profile: "2g.10gb", Seconds: 1000, High: seconds, Busy: 50}
	}
	for _, c := range []struct {
		line, without predict.Line
		want          bool
	}{
		{base, base, true},
		{line("3g.20gb", 1000, 50), base, false},
		{line("2g.10gb", 750, 50), base, true},
		{line("2g.10gb", 1250, 50), base, true},
		{line("2g.10gb", 1251, 50), base, false},
		{line("2g.10gb", 1000, 40), base, true},
		{line("2g.10gb", 1000, 60), base, true},
		{line("2g.10gb", 1000, 39), base, false},
		{line("2g.10gb", 1000, 61), base, false},
		{line("2g.10gb", 1000, -1), base, true},
		{base, line("2g.10gb", 1000, -1), false},
		{base, line("2g.10gb", 0, -1), false},
		{line("2g.10gb", 1000, 0), line("2g.10gb", 1000, -1), false},
		{line("2g.10gb", 1000, -1), line("2g.10gb", 1000, -1), true},
		{high(1250), high(1000), true},
		{high(1251), high(1000), false},
		{high(0), high(1000), false},
		{high(1000), high(0), false},
		{line("2g.10gb", 0, -1), high(1000), true},
		{line("2g.10gb", 0, -1), line("2g.10gb", 1000, -1), true},
	} {
		if got := alike(c.line, c.without); got != c.want {
			t.Errorf("%+v, otherwise %+v: %v", c.line, c.without, got)
		}
	}
}

// TestWriteChangesNothing checks that Write does not write the file if the repository has not changed, and that new
// runs change only the generation number and the learned lines.
func TestWriteChangesNothing(t *testing.T) {
	path := begin(t, "caelum-decisions 1 1\n"+own)
	r := filled(t)
	if _, err := Write(path, r, memoryOnly); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(path)
	if done, err := Write(path, r, memoryOnly); err != nil || done.Changed || done.Generation != 2 ||
		done.Learned != 2 {
		t.Fatalf("%+v %v", done, err)
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(before, now) || before.ModTime() != now.ModTime() {
		t.Errorf("Write wrote an unchanged table: %v", err)
	}
	if _, err := r.ForgetUser(1001, began.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if done, err := Write(path, r, memoryOnly); err != nil || !done.Changed || done.Generation != 3 ||
		done.Learned != 1 ||
		!strings.HasPrefix(read(t, path), "caelum-decisions 1 3\n"+own+marker) {
		t.Errorf("%+v %v\n%s", done, err, read(t, path))
	}
}

// TestWriteKeepsOwnerAndMode checks that slurmctld's user can still read the file after Write, that a symbolic link is
// preserved, and that Write leaves no other file in the directory.
func TestWriteKeepsOwnerAndMode(t *testing.T) {
	path := begin(t, "caelum-decisions 1 1\n"+own)
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 4711, 4712); err != nil {
			t.Fatal(err)
		}
	}
	was, _ := os.Stat(path)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(link, filled(t), memoryOnly); err != nil {
		t.Fatal(err)
	}
	now, err := os.Stat(path)
	if err != nil || os.SameFile(was, now) || now.Mode() != was.Mode() ||
		now.Sys().(*syscall.Stat_t).Uid != was.Sys().(*syscall.Stat_t).Uid ||
		now.Sys().(*syscall.Stat_t).Gid != was.Sys().(*syscall.Stat_t).Gid {
		t.Errorf("%v %v %v", was, now, err)
	}
	if target, err := os.Readlink(link); err != nil || target != path {
		t.Errorf("the symbolic link refers to %s, %v", target, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("other files in the directory: %v %v", left, err)
	}
	if err := replace(path, was, "mine"); !errors.Is(err, errChanged) || read(t, path) == "mine" {
		t.Errorf("Write overwrote another program's change: %v", err)
	}
}

// TestWriteBounds checks that a table has at most 20,000 lines and 1 MiB, and that the lines with the oldest runs are
// left out.
func TestWriteBounds(t *testing.T) {
	tab, err := parseTable("caelum-decisions 1 1\n" + own)
	if err != nil {
		t.Fatal(err)
	}
	var short, long []learnedLine
	for i := range 30000 {
		l := learnedLine{kind: "key", subject: fmt.Sprintf("1001:%016x", i), Line: predict.Line{Profile: "2g.10gb"}}
		short = append(short, l)
		l.subject += " " + strings.Repeat("x", 60)
		long = append(long, l)
	}
	text := tab.with(short)
	if n := strings.Count(text, "\n"); n != decisions.MaxLines ||
		!strings.HasSuffix(text, short[decisions.MaxLines-1-len(strings.Split(own, "\n"))-1].text()) {
		t.Errorf("%d lines", n)
	}
	if text := tab.with(long); len(text) > decisions.MaxBytes || len(text) < decisions.MaxBytes-100 {
		t.Errorf("%d bytes", len(text))
	}
}

// TestWriteRefuses checks that Write does not change a file that is not a decision table, and that the error names
// it.
func TestWriteRefuses(t *testing.T) {
	r := filled(t)
	for text, want := range map[string]string{
		"":                                  "the first line is not",
		"caelum-decisions 2 1\n" + own:      "the first line is not",
		"caelum-decisions 1 -1\n" + own:     "the first line is not",
		"caelum-decisions 1 x\n" + own:      "the first line is not",
		"caelum-decisions 1 1\r\n" + own:    "the first line is not",
		"caelum-decisions 1 1\n":            "the default line is missing",
		"caelum-decisions 1 1\n" + own[:90]: "the last line is not complete",
		"caelum-decisions 1 1\nprofile 1g.5gb\ndefault 2g.10gb\n": "line 3 names a profile that has no profile line",
		strings.Repeat("x", decisions.MaxBytes+1):                 "is not a decision table",
	} {
		path := begin(t, text)
		if _, err := Write(path, r, memoryOnly); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) ||
			read(t, path) != text {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	if _, err := Write(filepath.Join(t.TempDir(), "none"), r, memoryOnly); err == nil ||
		!strings.Contains(err.Error(), "caelum slurm-config --section decisions") {
		t.Errorf("%v", err)
	}
	if _, err := Write(t.TempDir(), r, memoryOnly); err == nil {
		t.Error("no error for a directory")
	}
}

// TestModels checks the order of the GPU models: the model with the default profile, and then the other models whose
// whole-GPU profile the table lists. The memory sizes must match the table.
func TestModels(t *testing.T) {
	tab, err := parseTable("caelum-decisions 1 1\n" + own + "profile 7g.80gb\nprofile 3g.40gb\nprofile 1g.5gb+me\n")
	if err != nil {
		t.Fatal(err)
	}
	models := tab.gpuModels()
	if len(models) < 2 || models[0].Name != "A100-40GB" || len(models[0].Profiles) != 6 ||
		models[0].Profiles[0].Memory() != 4864 {
		t.Fatalf("%d GPU models, first %+v", len(models), models[0])
	}
	for _, c := range []struct {
		peak float64
		want string
	}{{100, "1g.5gb"}, {4864, "1g.5gb"}, {4865, "1g.10gb"}, {39000, "7g.40gb"}, {60000, "7g.80gb"}, {1e6, "3g.20gb"}} {
		need := predict.Need{PeakMiB: c.peak, HighestMiB: c.peak}
		if got := Choose(need, true, models, "3g.20gb").Profile; got != c.want {
			t.Errorf("%.0f MiB: %q, want %q", c.peak, got, c.want)
		}
		// Without a complete run, an insufficient profile must lead to a larger choice, and no run may lead to a
		// smaller one.
		want := c.want
		if c.peak < 19000 {
			want = "3g.20gb"
		}
		if got := Choose(need, false, models, "3g.20gb").Profile; got != want {
			t.Errorf("at least %.0f MiB: %q, want %q", c.peak, got, want)
		}
	}
	if got := Choose(predict.Need{}, false, models, "3g.20gb"); got.Profile != "3g.20gb" ||
		got.Model.Name != "A100-40GB" {
		t.Errorf("without runs: %+v", got)
	}

	tab, err = parseTable("caelum-decisions 1 1\nprofile 1g.5gb\nprofile 3g.20gb\ndefault 3g.20gb\n")
	if models := tab.gpuModels(); err != nil || len(models) == 0 || models[0].Name != "A100-40GB" {
		t.Errorf("a site that offers no whole GPU: %d GPU models, %v", len(models), err)
	}
}

// TestReplaceInADirectoryOfAnother checks that root does not write into a directory of another user, who could
// redirect the write with a symbolic link.
func TestReplaceInADirectoryOfAnother(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to change the owner of a directory")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "decisions")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 20001, 20001); err != nil {
		t.Fatal(err)
	}
	if err := replace(path, was, "new"); err == nil ||
		!strings.Contains(err.Error(), "run this command as that user") ||
		read(t, path) != "old" {
		t.Errorf("root wrote %q: %v", read(t, path), err)
	}
}

// memoryOnly has a site's default settings, except that run times do not influence the profile.
var memoryOnly = predict.Site{Margin: predict.DefaultSite.Margin, Users: predict.DefaultSite.Users}

// TestFractionModels checks the predictions for a cluster whose GPUs have no MIG: the smallest fraction with enough
// memory, and a full GPU only for a job that needs it. The expected run time is the same on each of them.
func TestFractionModels(t *testing.T) {
	const lines = "caelum-decisions 1 1\npartition gpu\nprofile 1f.11gb 11389 32\nprofile 2f.22gb 22778 16\n" +
		"profile full 46068 8\nmodel L40S 1f.11gb 4\nmodel L40S 2f.22gb\nmodel L40S full\n"
	for _, c := range []struct {
		rest string // of the table
		peak float64
		want string
	}{
		{"default full\n", 100, "1f.11gb"},
		{"default full\n", 11390, "2f.22gb"},
		{"default full\n", 30000, mig.Full},
		{"default full\n", 46069, mig.Full}, // the default
		{"default 1f.11gb\n", 46069, "1f.11gb"},
		{"default 1f.11gb\nmodel l40 99f.7gb\nprofile 99f.7gb\n", 12000, "2f.22gb"}, // no such GPU
		{"default 7g.40gb\nprofile 1g.5gb\nprofile 7g.40gb\n", 100, "1g.5gb"},
		{"default 7g.40gb\nprofile 1g.5gb\nprofile 7g.40gb\n", 43000, mig.Full},
		{"default 1f.11gb\nprofile 1g.5gb\nprofile 7g.40gb\n", 100, "1f.11gb"},
	} {
		tab, err := parseTable(lines + c.rest)
		if err != nil {
			t.Fatal(err)
		}
		need := predict.Need{PeakMiB: c.peak, HighestMiB: c.peak, Seconds: 60, Compute: 1, Busy: 0.9}
		got := Choose(need, true, tab.gpuModels(), tab.fallback)
		if got.Profile != c.want || got.Model != nil && got.Model.Fractions > 0 && got.Seconds != 60 {
			t.Errorf("%q: %.0f MiB: %q, %.0f s, want %q", c.rest, c.peak, got.Profile, got.Seconds, c.want)
		}
	}
}
