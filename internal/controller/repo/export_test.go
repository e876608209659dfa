package repo

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"caelum/internal/core/predict"
)

// TestExport checks that importing an export results in a repository whose export is identical.
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
		GPUType: "a100",
		Profile: "1g.5gb",
		Slices:  rapid.IntRange(1, 8).Draw(t, "slices"),
		Start:   rapid.Int64Range(1, 1<<33).Draw(t, "start"),
		Seconds: rapid.Float64Range(0, 1e7).Draw(t, "seconds"),
		State:   rapid.SampledFrom([]string{"", "COMPLETED", "FAILED"}).Draw(t, "state"),
		Util:    -1,
		Args:    rapid.SampledFrom([][]float64{nil, {2000}, {64.5, 0, 1e11}}).Draw(t, "args"),
	}
	if n.Samples = rapid.IntRange(0, 100).Draw(t, "samples"); n.Samples > 0 {
		n.PeakMiB, n.Util = rapid.Float64Range(0, 80000).Draw(t, "peak"), rapid.Float64Range(-1, 1).Draw(t, "util")
	}
	return n
}

// TestImportRefuses checks that Import adds no runs if one line is invalid, and that the error names the line.
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
