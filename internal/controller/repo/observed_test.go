package repo

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/internal/core/predict"
)

func observedLine(job uint32) Observed {
	return Observed{
		Line: Line(predict.Run{Job: job, Node: "n1", Key: "0123456789abcdef", Fingerprint: "fedcba9876543210",
			UID: 1001, User: "ada", Name: "a\x1b[2J\n\"x", GPUType: "a100", Profile: "7g.40gb", Slices: 1,
			Start: 1795339300, Seconds: 60.5, Samples: 60, PeakMiB: 3000, MedianMiB: 2900, HighMiB: 3000,
			Util: -1, State: "COMPLETED"}),
		Partition: "gpu", Submit: 1795339200, Limit: 3600, Nodes: 1, GPUs: 1, GPUUtil: 0.4,
		Devices: []ObservedDevice{{UUID: "GPU-1", Profile: "7g.40gb", PeakMiB: 3000}},
	}
}

func mustOpenObserved(t *testing.T, path string) *ObservedFile {
	t.Helper()
	o, err := OpenObserved(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

// TestObservedFile checks that the file is private, that a name cannot add a line, and that a second import adds
// nothing. The first line is incomplete, as after a crash.
func TestObservedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "observed.jsonl")
	if err := os.WriteFile(path, []byte(`{"job":1`), 0o644); err != nil {
		t.Fatal(err)
	}
	o := mustOpenObserved(t, path)
	if _, err := OpenObserved(path); err == nil || !strings.Contains(err.Error(), "in use by another") {
		t.Errorf("the file was opened twice: %v", err)
	}
	for job := range uint32(3) {
		if err := o.Append(observedLine(job + 1)); err != nil {
			t.Fatal(err)
		}
	}
	o.Close()
	mustOpenObserved(t, path)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	r, err := OpenAsItIs(filepath.Join(t.TempDir(), "repo.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for k, want := range []int{3, 0} {
		f, err := OpenRuns(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if read, added, err := r.Import(f); read != 3 || added != want || err != nil {
			t.Errorf("import %d: %d read, %d new, %v", k, read, added, err)
		}
	}
	if runs, err := r.RunsOfKey(1001, "0123456789abcdef"); len(runs) != 3 || runs[0].PeakMiB != 3000 || err != nil {
		t.Errorf("%+v, %v", runs, err)
	}
}

// TestObservedFileUsable checks that a run that a reader would refuse is not appended.
func TestObservedFileUsable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "observed.jsonl")
	o := mustOpenObserved(t, path)
	negative, long, good := observedLine(1), observedLine(2), observedLine(3)
	negative.Limit, long.Partition = -1, strings.Repeat("p", maxLine)
	for _, bad := range []Observed{negative, long} {
		if err := o.Append(bad); err == nil {
			t.Errorf("job %d was appended", bad.Job)
		}
	}
	// The longest line has maxLine bytes with its newline.
	text, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	good.Partition += strings.Repeat("p", maxLine-1-len(text))
	if err := o.Append(good); err != nil {
		t.Error(err)
	}
	f, err := OpenRuns(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read := 0
	err = EachRun(f, func(Observed) error {
		read++
		return nil
	})
	if read != 1 || err != nil {
		t.Errorf("%d runs, %v", read, err)
	}
}

// TestObservedFileFull checks that the file does not grow without limit.
func TestObservedFileFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "observed.jsonl")
	o := mustOpenObserved(t, path)
	o.most = 2000
	for job := range uint32(40) {
		if err := o.Append(observedLine(job + 1)); err != nil {
			t.Fatal(err)
		}
	}
	last := uint32(0)
	for _, name := range []string{path + ".1", path} {
		f, err := OpenRuns(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || info.Size() > o.most {
			t.Errorf("%s: %v bytes, %v", name, info.Size(), err)
		}
		err = EachRun(f, func(n Observed) error {
			if last != 0 && n.Job != last+1 {
				t.Errorf("job %d follows job %d", n.Job, last)
			}
			last = n.Job
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if last != 40 {
		t.Errorf("the last job is %d", last)
	}
}

// TestObservedFileRefused tests files that OpenObserved and OpenRuns must not use.
func TestObservedFileRefused(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("root:x:0:0"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{other, link, dir, "/dev/null", filepath.Join(dir, "none", "file")} {
		if o, err := OpenObserved(path); err == nil {
			o.Close()
			t.Errorf("%s was opened", path)
		}
	}
	if text, err := os.ReadFile(other); string(text) != "root:x:0:0" || err != nil {
		t.Errorf("the file contains %q, %v", text, err)
	}
	if f, err := OpenRuns("/dev/null"); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	if err := os.Chmod(other, 0o622); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRuns(other); err == nil || !strings.Contains(err.Error(), "writable by group and others") {
		t.Errorf("OpenRuns: %v", err)
	}
}

// TestObservedMalformed tests lines that a reader must refuse.
func TestObservedMalformed(t *testing.T) {
	good, err := json.Marshal(observedLine(7))
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		`"peak_mib":3000,"median`: `"peak_mib":-1,"median`,
		`"seconds":60.5`:          `"seconds":1e300`,
		`"submit":1795339200`:     `"submit":-1`,
		`"limit":3600`:            `"limit":9e12`,
		`"gpu_util":0.4`:          `"gpu_util":7`,
		`"node":"n1"`:             `"node":""`,
		`"gpus":1`:                `"gpus":-1`,
		`"nodes":1`:               `"nodes":99999999`,
		`"key":"0`:                `"key":"x`,
		`"job":7`:                 `"job":7,"more":1`,
		`"n1"`:                    `"` + strings.Repeat("n", maxLine) + `"`,
	} {
		bad := strings.Replace(string(good), from, to, 1)
		if bad == string(good) {
			t.Fatalf("no %s in %s", from, good)
		}
		err := EachRun(strings.NewReader(string(good)+"\n"+bad+"\n"), func(Observed) error { return nil })
		if err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
			t.Errorf("%.80s: %v", to, err)
		}
	}
}
